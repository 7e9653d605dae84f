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
inline constexpr uint32_t kCacheRoom = 512;

// The contents of an engine's memory, in any memory. The offsets are no round numbers.
struct Tensors {
  float unused[3];
  float target[kTargetRows * kVocab];
  float draft[kDraftRows * kVocab];
  int32_t draft_tokens[kSlots * kMaxDraft];
  // Slot outputs.
  int32_t next_tokens[kSlots];
  int32_t num_kept[kSlots];
  int32_t num_accepted[kSlots];
  int32_t accepted_path[kSlots * kMaxDraft];
  int64_t kept_tokens[kSlots * (kMaxDraft + 1)];
  int64_t total_kept[kSlots];
  // The model's own cache: the token at each position, and those of the last draft, which the model
  // keeps in another place until it knows which nodes stand.
  int32_t cache[kSlots][kCacheRoom];
  int32_t drafted[kSlots][kMaxDraft];
  int64_t cached[kSlots];  // total_kept, when nodes of the draft were moved last
};

// A model whose next token depends on the position and on two cached tokens, and a drafter that is
// nearly as good. The drafter also draws numbers that are not ids, and ends some drafts early.
//
// As an engine with a cache of keys and values does, the model finds out by slot what the last
// round kept: how many tokens, where they go, and which nodes of the draft they are. It never sees
// the other tokens of the sequence again.
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

  // Moves what the last round kept into the cache, and writes the next draft and all rows. `step`
  // moves the drafter's noise, like the counter of a drafter on the device.
  void Forward(uint32_t sequence, uint32_t slot, uint32_t step, Tensors* tensors) const {
    KeepAccepted(slot, tensors);
    int64_t position = tensors->total_kept[slot];
    int32_t before = position == 0 ? 0 : tensors->cache[slot][(position - 1) % kCacheRoom];
    int32_t last = tensors->cache[slot][position % kCacheRoom];
    int32_t* const tokens = &tensors->draft_tokens[slot * kMaxDraft];
    for (uint32_t i = 0; i <= kMaxDraft; ++i, ++position) {
      const auto context = static_cast<uint32_t>(last + 31 * before + 7 * position);
      float* const row = &tensors->target[(sequence * (kMaxDraft + 1) + i) * kVocab];
      std::copy_n(Row(target_, context), kVocab, row);
      if (i == kMaxDraft) break;
      const float* const drawn_from = Row(draft_, context);
      std::copy_n(drawn_from, kVocab, &tensors->draft[(sequence * kMaxDraft + i) * kVocab]);
      const uint32_t noise = (step * 7 + sequence * 3 + i) * 2654435761u >> 20;
      before = last;
      last = static_cast<int32_t>(std::max_element(drawn_from, drawn_from + kVocab) - drawn_from);
      if (noise % 11 == 0) last = 100000;
      if (noise % 13 == 0) last = -1;
      tokens[i] = last;
      tensors->drafted[slot][kMaxDraft - 1 - i] = last;
    }
  }

  // A prompt of one token, at position 0.
  static void Prefill(uint32_t slot, int32_t token, Tensors* tensors) {
    tensors->total_kept[slot] = 0;
    tensors->cached[slot] = 0;
    tensors->cache[slot][0] = token;
  }

 private:
  // A token that is not an id has a row too. The round never needs such a row, but reads it.
  static const float* Row(const std::vector<float>& table, uint32_t context) {
    return &table[context % kVocab * kVocab];
  }

  // The last token was no node of the draft: it is new.
  static void KeepAccepted(uint32_t slot, Tensors* tensors) {
    const int64_t total = tensors->total_kept[slot];
    if (total == tensors->cached[slot]) return;  // no round has added anything
    const int32_t num_kept = tensors->num_kept[slot];
    for (int32_t i = 0; i < tensors->num_accepted[slot]; ++i) {
      const int32_t node = tensors->accepted_path[slot * kMaxDraft + static_cast<uint32_t>(i)];
      tensors->cache[slot][(total - num_kept + 1 + i) % kCacheRoom] =
          tensors->drafted[slot][kMaxDraft - 1 - static_cast<uint32_t>(node)];
    }
    const uint32_t last = slot * (kMaxDraft + 1) + static_cast<uint32_t>(num_kept) - 1;
    tensors->cache[slot][total % kCacheRoom] = static_cast<int32_t>(tensors->kept_tokens[last]);
    tensors->cached[slot] = total;
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

// An embedded engine records a trace with these; without a directory it records nothing.
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

  void Bind(int role, uint32_t region, const Tensors* base, const void* at, uint64_t num_rows,
            uint32_t dtype = SPECD_FLOAT32) {
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region;
    tensor.dtype = dtype;
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
    Bind(SPECD_DRAFT_TOKENS, region, tensors, tensors->draft_tokens, kSlots);
    Bind(SPECD_NEXT_TOKEN, region, tensors, tensors->next_tokens, kSlots);
    if (writes_outputs) return;
    Bind(SPECD_KEPT_TOKENS, region, tensors, tensors->kept_tokens, kSlots, SPECD_INT64);
    Bind(SPECD_NUM_KEPT, region, tensors, tensors->num_kept, kSlots, SPECD_INT32);
    Bind(SPECD_NUM_ACCEPTED, region, tensors, tensors->num_accepted, kSlots, SPECD_INT32);
    Bind(SPECD_TOTAL_KEPT, region, tensors, tensors->total_kept, kSlots, SPECD_INT64);
    Bind(SPECD_ACCEPTED_PATH, region, tensors, tensors->accepted_path, kSlots, SPECD_INT32);
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
    Model::Prefill(SlotOf(i), static_cast<int32_t>(i), tensors);
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
      if (writes_outputs) WriteOutputs(result);
      CHECK(result.total_kept == of.tokens.size());
    }
    return true;
  }

  // Writes what specd writes for an engine that binds the roles.
  void WriteOutputs(const specd_result& result) {
    const uint32_t slot = specd_sequence_slot(result.sequence);
    tensors->num_kept[slot] = static_cast<int32_t>(result.num_kept);
    tensors->num_accepted[slot] = static_cast<int32_t>(result.num_accepted);
    tensors->total_kept[slot] = result.total_kept;
    std::copy_n(result.tokens, result.num_kept, &tensors->kept_tokens[slot * (kMaxDraft + 1)]);
    std::copy_n(result.path, result.num_accepted, &tensors->accepted_path[slot * kMaxDraft]);
  }

  static constexpr int32_t kStopId = 17;
  static constexpr uint8_t kSampled[kMaxDraft] = {SPECD_SAMPLED, SPECD_SAMPLED, SPECD_SAMPLED};
  static constexpr uint32_t kRowIndices[kTargetRows] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                        8, 9, 10, 11, 12, 13, 14, 15};
  specd_engine* engine = nullptr;
  bool writes_outputs = false;  // the engine fills the slot outputs itself, from each answer
  Tensors* tensors = nullptr;
  Batch sequences = {};
  std::map<specd_sequence, uint32_t> num_forwards;
  Kept kept[kSequences];
};

}  // namespace specd::test
