// EmbeddedEngine gives tests of the C interface an engine with eight tokens, over the real backend.
//
// The engine is embedded, or attached if it gets the uri of an EngineHost. It has rows, draft rows
// and a mask, and tests compare its answers with numbers worked out by hand.
#pragma once

#include <doctest/doctest.h>

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

  explicit EmbeddedEngine(const std::string& uri = "embedded:cpu", uint32_t reconnect_ms = 0);
  ~EmbeddedEngine() { specd_close(engine); }
  EmbeddedEngine(const EmbeddedEngine&) = delete;
  EmbeddedEngine& operator=(const EmbeddedEngine&) = delete;

  template <class T>
  T* Alloc(size_t count) {
    specd_region region;
    REQUIRE(specd_alloc(engine, count * sizeof(T), &region) == SPECD_OK);
    return static_cast<T*>(region.data);
  }

  int Bind(int role, uint32_t region, uint32_t kind = SPECD_LOGITS);

  static specd_params Params(double temperature = 0);

  specd_sequence Open(const specd_params& params, const std::string& name = "r");

  static void SetRow(float* rows, uint32_t row, std::vector<float> values);

  // The result of a round with this one draft.
  specd_result Round(const specd_draft& part);

  // Samples from one row, without a draft.
  specd_result Sample(specd_sequence sequence, uint32_t row = 0) {
    return Round(ChainDraft(sequence, 0, nullptr, &row));
  }

  specd_engine_stats Stats();

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
double LogProb(const std::vector<double>& logits, size_t id);

}  // namespace specd::test
