#include "tests/recorded/answer_text.h"

#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <span>
#include <stdexcept>
#include <vector>

namespace specd::recorded {
namespace {

// The recordings are older than the names of these details. One number stood for several of them,
// and none for those of bad rows.
uint32_t RecordedDetail(uint32_t detail) {
  if (detail >= SPECD_DETAIL_TARGET_NAN && detail <= SPECD_DETAIL_BAD_TOKEN) return 0;
  return detail >= SPECD_DETAIL_FINAL_MASK && detail <= SPECD_DETAIL_ARGMAX_SCORED
             ? uint32_t{SPECD_DETAIL_TWICE}
             : detail;
}

}  // namespace

std::string Bits(float value) {
  return std::isnan(value) ? kNanText : fmt::format("\"{:08x}\"", std::bit_cast<uint32_t>(value));
}
std::string Bits(double value) {
  return std::isnan(value) ? kNanText : fmt::format("\"{:016x}\"", std::bit_cast<uint64_t>(value));
}

Answer Refused(int code) { return {Field("code", code)}; }

std::string ScoresText(const specd_token_score* scores, uint32_t num_tokens, uint32_t per_token) {
  std::vector<std::string> tokens;
  for (uint32_t i = 0; i < num_tokens; ++i) {
    std::vector<std::string> entries;
    for (const specd_token_score& score : std::span(scores + i * per_token, per_token)) {
      entries.push_back(fmt::format("[{},{},{}]", score.id, Bits(score.value), score.rank));
    }
    tokens.push_back(fmt::format("[{}]", fmt::join(entries, ",")));
  }
  return fmt::format("[{}]", fmt::join(tokens, ","));
}

Answer AnswerOf(const specd_result& result) {
  for (uint32_t i = 0; i < result.num_accepted; ++i) {
    // The accepted nodes of a chain are its beginning.
    if (result.path[i] != static_cast<int32_t>(i)) throw std::runtime_error("path is no prefix");
  }
  Answer answer;
  AddUnless(0u, "status", result.status, &answer);
  AddUnless(0u, "detail", RecordedDetail(result.detail), &answer);
  AddUnless(0u, "finish_reason", result.finish_reason, &answer);
  answer.push_back(Field("num_accepted", result.num_accepted));
  answer.push_back(Field("num_kept", result.num_kept));
  answer.push_back(Field("total_kept", result.total_kept));
  AddUnless(-1, "stop_token", result.stop_token, &answer);
  const std::span tokens(result.tokens, result.num_kept);
  answer.push_back(Field("tokens", fmt::format("[{}]", fmt::join(tokens, ","))));
  if (result.scores != nullptr) {
    answer.push_back(
        Field("scores", ScoresText(result.scores, result.num_kept, result.scores_per_token)));
  }
  AddUnless(std::string(kNanText), "cumulative_logprob", Bits(result.cumulative_logprob), &answer);
  return answer;
}

Answer AnswerOf(const specd_engine_stats& stats) {
  Answer answer;
  // Lives do not record the number of rounds.
  const auto add = [&answer](std::string_view name, uint64_t sum) {
    if (name != "rounds") AddUnless(uint64_t{0}, name, sum, &answer);
  };
#define SPECD_COUNTER(name, metric, meaning) add(#name, stats.name);
#include "kernels/core/counter_list.inc"
  return answer;
}

}  // namespace specd::recorded
