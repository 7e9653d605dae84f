#include "tests/daemon/client/embedded_engine.h"

#include <algorithm>
#include <cmath>

namespace specd::test {

EmbeddedEngine::EmbeddedEngine(const std::string& uri, uint32_t reconnect_ms) {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = kVocab;
  options.max_batch = 4;
  options.max_draft = kMaxDraft;
  options.max_scores_per_token = kMaxScores;
  options.reconnect_ms = reconnect_ms;
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

int EmbeddedEngine::Bind(int role, uint32_t region, uint32_t kind) {
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region;
  tensor.num_rows = kRows;
  tensor.kind = kind;
  return specd_bind(engine, role, &tensor);
}

specd_params EmbeddedEngine::Params(double temperature) {
  specd_params params;
  specd_params_init(&params);
  params.temperature = temperature;
  params.max_tokens = 100;
  params.has_seed = 1;
  params.seed = 5;
  return params;
}

specd_sequence EmbeddedEngine::Open(const specd_params& params, const std::string& name) {
  std::vector<specd_sequence_info> infos(params.n, Sized<specd_sequence_info>());
  const int code = specd_open_sequence(engine, name.c_str(), &params, infos.data());
  INFO(specd_last_error());
  REQUIRE(code == SPECD_OK);
  return infos[0].sequence;
}

void EmbeddedEngine::SetRow(float* rows, uint32_t row, std::vector<float> values) {
  values.resize(kVocab, -10.0f);
  std::copy(values.begin(), values.end(), rows + row * kVocab);
}

specd_result EmbeddedEngine::Round(const specd_draft& part) {
  const int code = specd_submit(engine, 1, &part, 1);
  INFO(specd_last_error());
  REQUIRE(code == SPECD_OK);
  specd_completion done = SizedCompletion();
  REQUIRE(specd_poll(engine, &done, 10000) == SPECD_OK);
  REQUIRE(done.num_results == 1);
  return done.results[0];
}

specd_engine_stats EmbeddedEngine::Stats() {
  specd_engine_stats stats;
  specd_engine_stats_init(&stats);
  REQUIRE(specd_get_engine_stats(engine, &stats) == SPECD_OK);
  return stats;
}

double LogProb(const std::vector<double>& logits, size_t id) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return logits[id] - std::log(sum);
}

}  // namespace specd::test
