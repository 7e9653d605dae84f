// Generator plays one generation of four sequences in different ways for tests, over the C
// interface.
//
// Its engine has a small model and a drafter. A test waits for each answer, or runs the rounds
// inside a CUDA graph. All memory that the model reads and writes is in Tensors, in any memory. One
// thread.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/support/c_drafts.h"

namespace specd::test {

inline constexpr uint32_t kVocab = 300;
inline constexpr uint32_t kMaxDraft = 3;
inline constexpr uint32_t kSequences = 4;
inline constexpr uint32_t kSlots = 6;
inline constexpr uint32_t kTargetRows = kSequences * (kMaxDraft + 1);
inline constexpr uint32_t kDraftRows = kSequences * kMaxDraft;

// The contents of an engine's memory, in any memory. The offsets are no round numbers.
struct Tensors {
  float unused[3];
  float target[kTargetRows * kVocab];
  float draft[kDraftRows * kVocab];
  int32_t next_tokens[kSlots];
  int32_t draft_tokens[kSlots * kMaxDraft];
};

// A model whose next token depends on the last token only, and a drafter that is nearly as good.
// The drafter also draws numbers that are not ids, and ends some drafts early.
class Model {
 public:
  Model() : target_(kVocab * kVocab), draft_(kVocab * kVocab) {
    std::mt19937_64 random(3);
    for (size_t i = 0; i < target_.size(); ++i) {
      target_[i] = static_cast<float>(random() % 1000) / 250;
      if (i % kVocab == i / kVocab * 37 % kVocab) target_[i] += 4;  // the best next token
      draft_[i] = target_[i] + static_cast<float>(random() % 1000) / 1000;
    }
  }

  // Reads the sequence's next token, and writes its draft and all rows. `step` moves the drafter's
  // noise, like the counter of a drafter on the device.
  void Forward(uint32_t sequence, uint32_t slot, uint32_t step, Tensors* tensors) const {
    int32_t* const tokens = &tensors->draft_tokens[slot * kMaxDraft];
    int32_t last = tensors->next_tokens[slot];
    for (uint32_t i = 0; i <= kMaxDraft; ++i) {
      float* const row = &tensors->target[(sequence * (kMaxDraft + 1) + i) * kVocab];
      std::copy_n(Row(target_, last), kVocab, row);
      if (i == kMaxDraft) break;
      const float* const drawn_from = Row(draft_, last);
      std::copy_n(drawn_from, kVocab, &tensors->draft[(sequence * kMaxDraft + i) * kVocab]);
      const uint32_t noise = (step * 7 + sequence * 3 + i) * 2654435761u >> 20;
      last = static_cast<int32_t>(std::max_element(drawn_from, drawn_from + kVocab) - drawn_from);
      if (noise % 11 == 0) last = 100000;
      if (noise % 13 == 0) last = -1;
      tokens[i] = last;
    }
  }

 private:
  // A token that is not an id has a row too. The round never needs such a row, but reads it.
  static const float* Row(const std::vector<float>& table, int32_t token) {
    const uint32_t row = static_cast<uint32_t>(token) % kVocab;
    return &table[row * kVocab];
  }

  std::vector<float> target_;
  std::vector<float> draft_;
};

inline const Model& TheModel() {
  static const Model model;
  return model;
}

// Four methods, with every parameter that depends on tokens that only the device knows.
inline specd_params ParamsOf(uint32_t i, const int32_t* stop_id) {
  specd_params params;
  specd_params_init(&params);
  params.has_seed = 1;
  params.seed = 40 + i;
  params.max_tokens = i == 3 ? 17 : 60;
  const uint32_t methods[] = {SPECD_VERIFY_GREEDY, SPECD_VERIFY_EXACT_MATCH, SPECD_VERIFY_TOKEN,
                              SPECD_VERIFY_BLOCK};
  params.verify = methods[i];
  params.temperature = i == 0 ? 0 : 0.7;
  params.frequency_penalty = i == 0 ? 1.5 : 0.5;
  params.presence_penalty = i == 2 ? 1 : 0;
  params.repetition_penalty = i == 1 ? 1.5 : 1;
  if (i == 1) {
    params.min_tokens = 9;
    params.stop_token_ids = {stop_id, 1};
  }
  if (i == 2) params.top_k = 40;
  params.logprobs = i == 0 ? 1 : -1;
  return params;
}

struct Kept {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> accepted;  // one number for each round
  std::vector<float> logprobs;
  uint32_t finish_reason = SPECD_FINISH_NONE;

  friend bool operator==(const Kept&, const Kept&) = default;
};

// What an embedded engine records; nothing without a directory.
struct TraceOf {
  const char* directory = nullptr;
  const char* options = nullptr;
};

// One engine and its four sequences.
class Generator {
 public:
  explicit Generator(const std::string& uri, void* cuda_stream = nullptr,
                     const TraceOf& trace = {}) {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_batch = kSequences;
    options.max_sequences = kSlots;
    options.max_draft = kMaxDraft;
    options.cuda_stream = cuda_stream;
    options.trace = trace.directory;
    options.trace_options = trace.options;
    REQUIRE(specd_open(uri.c_str(), &options, &engine) == SPECD_OK);
  }
  ~Generator() { specd_close(engine); }

  void Bind(int role, uint32_t region, const Tensors* base, const void* at, uint64_t num_rows) {
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region;
    tensor.offset_bytes =
        static_cast<uint64_t>(static_cast<const char*>(at) - reinterpret_cast<const char*>(base));
    tensor.num_rows = num_rows;
    const int code = specd_bind(engine, role, &tensor);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
  }
  void BindAll(uint32_t region) {
    Bind(SPECD_TARGET_ROWS, region, tensors, tensors->target, kTargetRows);
    Bind(SPECD_DRAFT_ROWS, region, tensors, tensors->draft, kDraftRows);
    Bind(SPECD_NEXT_TOKEN, region, tensors, tensors->next_tokens, kSlots);
    Bind(SPECD_DRAFT_TOKENS, region, tensors, tensors->draft_tokens, kSlots);
  }

  void Open() {
    for (uint32_t i = 0; i < kSequences; ++i) OpenOne(i, ParamsOf(i, &kStopId));
  }
  void OpenOne(uint32_t i, const specd_params& params) {
    specd_sequence_info info = Sized<specd_sequence_info>();
    const std::string name = std::to_string(params.seed);
    REQUIRE(specd_open_sequence(engine, name.c_str(), &params, &info) == SPECD_OK);
    sequences[i] = info.sequence;
    kept[i] = {};
    tensors->next_tokens[SlotOf(i)] = static_cast<int32_t>(i);  // the last token of the prompt
  }
  uint32_t SlotOf(uint32_t i) const { return specd_sequence_slot(sequences[i]); }

  // The sequences of a batch, in its order. Each sequence counts its own rounds.
  using Batch = std::array<specd_sequence, kSequences>;
  void Forward(const Batch& batch) {
    for (uint32_t i = 0; i < kSequences; ++i) {
      TheModel().Forward(i, specd_sequence_slot(batch[i]), num_forwards[batch[i]]++, tensors);
    }
  }

  // Drafts for all sequences that have not finished, as far as the engine knows. Their tokens are
  // given by slot or as ids.
  std::vector<specd_draft> Drafts(bool by_slot) const {
    std::vector<specd_draft> parts;
    for (uint32_t i = 0; i < kSequences; ++i) {
      if (kept[i].finish_reason != SPECD_FINISH_NONE) continue;
      const int32_t* const tokens = &tensors->draft_tokens[SlotOf(i) * kMaxDraft];
      specd_draft part = ChainDraft(sequences[i], kMaxDraft, by_slot ? nullptr : tokens,
                                    &kRowIndices[i * (kMaxDraft + 1)]);
      part.flags = by_slot ? uint32_t{SPECD_DRAFTS_BY_SLOT} : 0;
      part.draft_rows = &kRowIndices[i * kMaxDraft];
      if (i >= 2) part.kinds = kSampled;
      parts.push_back(part);
    }
    return parts;
  }

  // Takes an answer. Rounds of finished sequences add nothing.
  bool Poll(uint64_t round_id, int timeout_ms = 20000) {
    specd_completion done = SizedCompletion();
    if (specd_poll(engine, &done, timeout_ms) != SPECD_OK) return false;
    CHECK(done.round_id == round_id);
    for (uint32_t j = 0; j < done.num_results; ++j) {
      const specd_result& result = done.results[j];
      const auto at = std::find(sequences.begin(), sequences.end(), result.sequence);
      if (at == sequences.end()) {
        CHECK(result.status == SPECD_STATUS_UNKNOWN_SEQUENCE);
        continue;
      }
      Kept& of = kept[at - sequences.begin()];
      if (of.finish_reason != SPECD_FINISH_NONE) {
        CHECK(result.status == SPECD_STATUS_FINISHED);
        continue;
      }
      REQUIRE(result.status == SPECD_STATUS_OK);
      of.tokens.insert(of.tokens.end(), result.tokens, result.tokens + result.num_kept);
      of.accepted.push_back(result.num_accepted);
      for (uint32_t t = 0; t < result.num_kept * result.scores_per_token; ++t) {
        of.logprobs.push_back(result.scores[t].value);
      }
      of.finish_reason = result.finish_reason;
      CHECK(result.total_kept == of.tokens.size());
    }
    return true;
  }

  static constexpr int32_t kStopId = 17;
  static constexpr uint8_t kSampled[kMaxDraft] = {SPECD_SAMPLED, SPECD_SAMPLED, SPECD_SAMPLED};
  static constexpr uint32_t kRowIndices[kTargetRows] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                        8, 9, 10, 11, 12, 13, 14, 15};
  specd_engine* engine = nullptr;
  Tensors* tensors = nullptr;
  Batch sequences = {};
  std::map<specd_sequence, uint32_t> num_forwards;
  Kept kept[kSequences];
};

}  // namespace specd::test
