// ToyEngine runs whole sequences over the toy tokenizer through the C interface, on random rows.
//
//   ToyEngine engine;
//   const ToyEngine::Output output = engine.Run(Constrained(kind, text), 2, ToyText().IdsOf("ab"));
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detokenizer/tokenizer_file.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/c_drafts.h"

namespace specd::test {

inline constexpr uint32_t kVocab = 2048;  // ids of tools/toy_engine/tokenizer.json
inline constexpr int32_t kEos = 0;        // <|endoftext|>
inline constexpr uint32_t kMaxDraft = 4;

inline specd_options ToyOptions() {
  static const int32_t eos[] = {kEos};
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = kVocab;
  options.max_draft = kMaxDraft;
  options.threads = 1;
  options.tokenizer = SPECD_TOKENIZER;
  options.eos_token_ids = {eos, 1};
  return options;
}

inline specd_params Constrained(uint32_t kind, const char* text) {
  specd_params params;
  specd_params_init(&params);
  params.max_tokens = 200;
  params.has_seed = 1;
  params.seed = 1;
  params.grammar_kind = kind;
  params.grammar = text;
  return params;
}

// An engine over the toy tokenizer, whose rows depend on the position alone.
class ToyEngine {
 public:
  explicit ToyEngine(const specd_options& options = ToyOptions()) {
    const int code = specd_open("embedded:cpu", &options, &engine_);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    specd_region region;
    REQUIRE(specd_alloc(engine_, (kMaxDraft + 1) * kVocab * sizeof(float), &region) == SPECD_OK);
    rows_ = static_cast<float*>(region.data);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.num_rows = kMaxDraft + 1;
    REQUIRE(specd_bind(engine_, SPECD_TARGET_ROWS, &tensor) == SPECD_OK);
  }
  ~ToyEngine() { specd_close(engine_); }
  ToyEngine(const ToyEngine&) = delete;
  ToyEngine& operator=(const ToyEngine&) = delete;

  int TryOpen(const specd_params& params, specd_sequence* sequence) {
    specd_sequence_info info = Sized<specd_sequence_info>();
    const int code = specd_open_sequence(engine_, std::to_string(++names_).c_str(), &params, &info);
    *sequence = info.sequence;
    return code;
  }

  std::string Warnings() { return specd_opening_warnings(engine_); }

  struct Output {
    std::vector<int32_t> tokens;
    uint32_t finish_reason = SPECD_FINISH_NONE;
    int32_t stop_token = -1;
    uint32_t accepted = 0;
    uint64_t num_rounds = 0;
  };

  // Runs rounds to the end. Each has a draft of up to num_draft of these ids, drawn at random.
  // `look` is called after each.
  Output Run(const specd_params& params, uint32_t num_draft, const std::vector<int32_t>& drafted,
             const std::function<void(specd_sequence)>& look = nullptr) {
    return Run(params, num_draft, drafted, false, look);
  }
  // The same, with the ids that the constraint forces as drafts.
  Output RunForced(const specd_params& params) { return Run(params, 0, {}, true, nullptr); }

  specd_engine* handle() const { return engine_; }

 private:
  Output Run(const specd_params& params, uint32_t num_draft, const std::vector<int32_t>& drafted,
             bool forced, const std::function<void(specd_sequence)>& look) {
    specd_sequence sequence = 0;
    const int code = TryOpen(params, &sequence);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    std::mt19937 random(static_cast<uint32_t>(params.seed) * 31 + num_draft);
    const std::array<uint32_t, kMaxDraft + 1> row_indices = {0, 1, 2, 3, 4};
    Output output;
    for (uint64_t round = 1; output.finish_reason == SPECD_FINISH_NONE; ++round) {
      std::vector<int32_t> draft(num_draft);
      for (int32_t& id : draft) id = forced ? 0 : drafted[random() % drafted.size()];
      if (forced) {
        draft.resize(kMaxDraft);
        num_draft = 0;
        REQUIRE(specd_forced_tokens(engine_, sequence, nullptr, 0, draft.data(), kMaxDraft,
                                    &num_draft) == SPECD_OK);
      }
      output.num_rounds = round;
      for (uint32_t i = 0; i <= num_draft; ++i) FillRow(i, params.seed, output.tokens.size() + i);
      const specd_draft part = ChainDraft(sequence, num_draft, draft.data(), row_indices.data());
      REQUIRE(specd_submit(engine_, round, &part, 1) == SPECD_OK);
      specd_completion done = SizedCompletion();
      REQUIRE(specd_poll(engine_, &done, 10000) == SPECD_OK);
      const specd_result& result = done.results[0];
      REQUIRE(result.status == SPECD_STATUS_OK);
      REQUIRE(result.num_kept > 0);
      output.tokens.insert(output.tokens.end(), result.tokens, result.tokens + result.num_kept);
      output.finish_reason = result.finish_reason;
      output.stop_token = result.stop_token;
      output.accepted += result.num_accepted;
      if (look) look(sequence);
    }
    REQUIRE(specd_close_sequence(engine_, sequence) == SPECD_OK);
    return output;
  }

  void FillRow(uint32_t row, uint64_t seed, uint64_t position) {
    std::mt19937_64 random(seed * 1000 + position);
    for (uint32_t id = 0; id < kVocab; ++id) {
      rows_[row * kVocab + id] = static_cast<float>(random() % 4096) / 1024.0f;
    }
  }

  specd_engine* engine_ = nullptr;
  float* rows_ = nullptr;
  int names_ = 0;
};

class ToyText {
 public:
  ToyText() {
    absl::StatusOr<Vocabulary> loaded = OpenTokenizer(SPECD_TOKENIZER);
    REQUIRE(loaded.ok());
    vocabulary_ = *std::move(loaded);
    REQUIRE(vocabulary_.size() == static_cast<int32_t>(kVocab));
  }

  std::string TextOf(const ToyEngine::Output& output) const {
    std::string text;
    for (const int32_t id : output.tokens) {
      if (id != output.stop_token) text += vocabulary_.Bytes(id);
    }
    return text;
  }

  // The ids whose text has these characters alone.
  std::vector<int32_t> IdsOf(std::string_view characters) const {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      const std::string_view bytes = vocabulary_.Bytes(id);
      const bool fits = bytes.find_first_not_of(characters) == std::string_view::npos;
      if (!bytes.empty() && !vocabulary_.IsAdded(id) && fits) ids.push_back(id);
    }
    return ids;
  }

 private:
  Vocabulary vocabulary_;
};

}  // namespace specd::test
