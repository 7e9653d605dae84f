// EmbeddedEngine gives tests of the C interface an engine with eight tokens, over the real backend.
//
// The engine is embedded, or attached if it gets the uri of an EngineHost. It has rows, draft rows
// and a mask, and tests compare its answers with numbers worked out by hand.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/support/c_drafts.h"

namespace specd::test {

struct EmbeddedEngine {
  static constexpr uint32_t kVocab = 8;
  static constexpr uint32_t kRows = 8;  // in each tensor
  static constexpr uint32_t kMaxDraft = 3;
  static constexpr uint32_t kMaxScores = 5;

  explicit EmbeddedEngine(const std::string& uri = "embedded:cpu") {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_batch = 4;
    options.max_draft = kMaxDraft;
    options.max_scores_per_token = kMaxScores;
    const int code = specd_open(uri.c_str(), &options, &engine);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    target = Alloc<float>(kRows * kVocab);
    draft = Alloc<float>(kRows * kVocab);
    mask = Alloc<uint32_t>(kRows);
    REQUIRE(Bind(SPECD_TARGET_ROWS, 1) == SPECD_OK);
    REQUIRE(Bind(SPECD_DRAFT_ROWS, 2) == SPECD_OK);
    REQUIRE(Bind(SPECD_GRAMMAR_MASK, 3) == SPECD_OK);
  }
  ~EmbeddedEngine() { specd_close(engine); }
  EmbeddedEngine(const EmbeddedEngine&) = delete;
  EmbeddedEngine& operator=(const EmbeddedEngine&) = delete;

  template <class T>
  T* Alloc(size_t count) {
    specd_region region;
    REQUIRE(specd_alloc(engine, count * sizeof(T), &region) == SPECD_OK);
    return static_cast<T*>(region.data);
  }

  int Bind(int role, uint32_t region, uint32_t kind = SPECD_LOGITS) {
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region;
    tensor.num_rows = kRows;
    tensor.kind = kind;
    return specd_bind(engine, role, &tensor);
  }

  static specd_params Params(double temperature = 0) {
    specd_params params;
    specd_params_init(&params);
    params.temperature = temperature;
    params.max_tokens = 100;
    params.has_seed = 1;
    params.seed = 5;
    return params;
  }

  specd_sequence Open(const specd_params& params, const std::string& name = "r") {
    std::vector<specd_sequence_info> infos(params.n, Sized<specd_sequence_info>());
    const int code = specd_open_sequence(engine, name.c_str(), &params, infos.data());
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    return infos[0].sequence;
  }

  static void SetRow(float* rows, uint32_t row, std::vector<float> values) {
    values.resize(kVocab, -10.0f);
    std::copy(values.begin(), values.end(), rows + row * kVocab);
  }

  // The result of a round with this one draft.
  specd_result Round(const specd_draft& part) {
    const int code = specd_submit(engine, 1, &part, 1);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    specd_completion done = SizedCompletion();
    REQUIRE(specd_poll(engine, &done, 10000) == SPECD_OK);
    REQUIRE(done.num_results == 1);
    return done.results[0];
  }

  // Samples from one row, without a draft.
  specd_result Sample(specd_sequence sequence, uint32_t row = 0) {
    return Round(ChainDraft(sequence, 0, nullptr, &row));
  }

  specd_engine_stats Stats() {
    specd_engine_stats stats;
    specd_engine_stats_init(&stats);
    REQUIRE(specd_get_engine_stats(engine, &stats) == SPECD_OK);
    return stats;
  }

  static bool LastErrorHas(const char* part) {
    INFO(specd_last_error());
    return std::string(specd_last_error()).find(part) != std::string::npos;
  }

  specd_engine* engine = nullptr;
  float* target = nullptr;
  float* draft = nullptr;
  uint32_t* mask = nullptr;
  const uint32_t rows[4] = {0, 1, 2, 3};
};

inline std::vector<int32_t> TokensOf(const specd_result& result) {
  return {result.tokens, result.tokens + result.num_kept};
}

// The value of ln softmax(logits)[id].
inline double LogProb(const std::vector<double>& logits, size_t id) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return logits[id] - std::log(sum);
}

}  // namespace specd::test
