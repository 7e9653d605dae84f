// ScriptEngine runs the same rows, sequences and rounds over the C interface in two places for
// tests. Its answers must be the same for every place of rows and verifier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/support/c_drafts.h"

namespace specd {

class ScriptEngine {
 public:
  static constexpr uint32_t kVocab = 300;
  static constexpr uint32_t kRows = 12;
  static constexpr uint32_t kMaxDraft = 3;
  static constexpr uint32_t kMaxSequences = 6;
  static constexpr uint64_t kRowsBytes = uint64_t{kRows} * kVocab * sizeof(float);

  ~ScriptEngine() { Close(); }

  // Target rows, or those of a draft model that is nearly the same: each row prefers one id.
  static std::vector<float> Rows(bool is_target) {
    std::mt19937_64 random(is_target ? 11 : 12);
    std::vector<float> rows(size_t{kRows} * kVocab);
    for (float& x : rows) x = static_cast<float>(random() % 1000) / 500;
    for (uint32_t row = 0; row < kRows; ++row) rows[row * kVocab + LikelyId(row)] = 8;
    return rows;
  }
  static uint32_t LikelyId(uint32_t row) { return row * 37 % kVocab; }

  int Open(const std::string& uri, uint32_t stream_timeout_ms = 0) {
    specd_options options;
    specd_options_init(&options);
    options.stream_timeout_ms = stream_timeout_ms;
    options.vocab_size = kVocab;
    options.max_batch = 4;
    options.max_sequences = kMaxSequences;
    options.max_draft = kMaxDraft;
    options.timeout_ms = 60000;
    return specd_open(uri.c_str(), &options, &engine_);
  }
  void Close() {
    specd_close(engine_);
    engine_ = nullptr;
  }
  specd_engine* get() const { return engine_; }

  int Bind(int role, uint32_t region, uint64_t offset_bytes, uint64_t num_rows) {
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region;
    tensor.offset_bytes = offset_bytes;
    tensor.num_rows = num_rows;
    return specd_bind(engine_, role, &tensor);
  }

  int OpenSequence(uint64_t seed, specd_sequence* sequence, bool is_greedy = false) {
    specd_params params;
    specd_params_init(&params);
    if (is_greedy) params.temperature = 0;
    params.has_seed = 1;
    params.seed = seed;
    params.max_tokens = is_greedy ? 1'000'000 : 1000;
    specd_sequence_info info = Sized<specd_sequence_info>();
    const int code = specd_open_sequence(engine_, std::to_string(seed).c_str(), &params, &info);
    *sequence = info.sequence;
    return code;
  }

  // Submits three sampled drafts with the four rows from `first_row` on; on a CUDA stream unless it
  // is null.
  int Submit(specd_sequence sequence, uint32_t first_row, void* stream = nullptr) {
    int32_t tokens[kMaxDraft];
    uint8_t kinds[kMaxDraft];
    uint32_t rows[kMaxDraft + 1];
    for (uint32_t i = 0; i <= kMaxDraft; ++i) rows[i] = (first_row + i) % kRows;
    for (uint32_t i = 0; i < kMaxDraft; ++i) tokens[i] = static_cast<int32_t>(LikelyId(rows[i]));
    std::fill_n(kinds, kMaxDraft, static_cast<uint8_t>(SPECD_SAMPLED));
    specd_draft part = ChainDraft(sequence, kMaxDraft, tokens, rows);
    part.kinds = kinds;
    part.draft_rows = rows;
    if (stream != nullptr) return specd_submit_on_stream(engine_, 1, &part, 1, stream);
    return specd_submit(engine_, 1, &part, 1);
  }

  // The oldest round's kept tokens, at most four; none if its status is not SPECD_STATUS_OK.
  int Poll(std::vector<int32_t>* kept, uint64_t* status) {
    specd_completion done = SizedCompletion();
    const int code = specd_poll(engine_, &done, 60000);
    if (code != SPECD_OK) return code;
    const specd_result& result = done.results[0];
    *status = result.status;
    if (result.status == SPECD_STATUS_OK)
      kept->assign(result.tokens, result.tokens + result.num_kept);
    return SPECD_OK;
  }

  int Round(specd_sequence sequence, uint32_t first_row, std::vector<int32_t>* kept) {
    const int code = Submit(sequence, first_row);
    uint64_t status = SPECD_STATUS_OK;
    return code == SPECD_OK ? Poll(kept, &status) : code;
  }

 private:
  specd_engine* engine_ = nullptr;
};

}  // namespace specd
