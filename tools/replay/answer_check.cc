#include "tools/replay/answer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "daemon/trace/trace_fields.h"
#include "tools/replay/names.h"

namespace specd::replay {
namespace {

std::string Text(double value) { return fmt::format("{}", value); }
template <class T>
std::string Text(const T& value) {
  if constexpr (std::is_same_v<T, OutcomeStatus> || std::is_same_v<T, RowFault> ||
                std::is_same_v<T, Purpose> || std::is_same_v<T, ZeroStep>) {
    return std::string(NameOf(value));
  } else {
    return fmt::format("{}", value);
  }
}
std::string Text(const CoinInterval& value) {
  return fmt::format("[{}, {})", value.low, value.high);
}

template <class T>
bool SameBits(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  } else if constexpr (std::is_same_v<T, CoinInterval>) {
    return a.low == b.low && a.high == b.high;
  } else {
    return a == b;
  }
}

class Comparison {
 public:
  template <class Record>
  void Members(std::string_view where, const Record& recorded, const Record& replayed) {
    VisitFields(RecordType<Record>{}, [&](const char* name, auto member) {
      if (SameBits(recorded.*member, replayed.*member)) return;
      differences.push_back(fmt::format("{}{} was {}, and is {} now", where, name,
                                        Text(recorded.*member), Text(replayed.*member)));
    });
  }

  template <class T>
  void Lists(std::string_view name, const std::vector<T>& recorded, std::span<const T> replayed) {
    if (std::equal(recorded.begin(), recorded.end(), replayed.begin(), replayed.end())) return;
    differences.push_back(fmt::format("{} were {}, and are {} now", name, fmt::join(recorded, " "),
                                      fmt::join(replayed, " ")));
  }

  std::vector<std::string> differences;
};

}  // namespace

std::vector<std::string> CompareAnswers(const TraceTask& recorded, const RoundRebuilder& replayed,
                                        size_t i, bool is_staged) {
  Comparison comparison;
  TaskOutcome outcome = replayed.outcome(i);
  // Earlier programs recorded no fault.
  if (recorded.outcome.fault == RowFault::kNone) outcome.fault = RowFault::kNone;
  comparison.Members("", recorded.outcome, outcome);
  comparison.Lists("the tokens", recorded.confirmed, replayed.tokens(i));
  if (!recorded.path.empty() || !is_staged)
    comparison.Lists("the path", recorded.path, replayed.path(i));
  const std::span<const TokenScore> scores = replayed.scores(i);
  const size_t stride = replayed.batch().scores_stride;
  const size_t num_scores = NumScores(replayed.batch().tasks[i].scores);
  const size_t wanted = num_scores * replayed.tokens(i).size();
  if (recorded.token_scores.size() != wanted && !(is_staged && recorded.token_scores.empty())) {
    comparison.differences.push_back(fmt::format("{} scores were recorded, and the tokens have {}",
                                                 recorded.token_scores.size(), wanted));
  }
  for (size_t j = 0; j < recorded.token_scores.size() && num_scores > 0; ++j) {
    const size_t place = j / num_scores * stride + j % num_scores;
    if (place >= scores.size()) break;
    comparison.Members(fmt::format("score {} of token {}: ", j % num_scores, j / num_scores),
                       recorded.token_scores[j], scores[place]);
  }
  const std::span<const PlaceDecision> decisions = replayed.decisions(i);
  // A backend may keep no decisions.
  const bool are_kept = std::any_of(decisions.begin(), decisions.end(),
                                    [](const PlaceDecision& d) { return d.judged; });
  // Earlier programs recorded every bound of `block` (RecordsBounds).
  const bool has_every_bound = recorded.method == VerifyMethod::kBlock &&
                               std::ranges::all_of(recorded.decisions, [](const PlaceDecision& d) {
                                 return d.accept_coin == kNoCoin || d.bound >= 0;
                               });
  for (size_t j = 0; are_kept && j < recorded.decisions.size() && j < decisions.size(); ++j) {
    PlaceDecision decision = decisions[j];
    // Earlier programs recorded no step, and no round computes the other two numbers.
    if (recorded.decisions[j].zero_step == ZeroStep::kNone) decision.zero_step = ZeroStep::kNone;
    const bool has_coin_alone = decision.bound < 0 && decision.accept_coin != kNoCoin;
    if (has_every_bound && has_coin_alone) decision.bound = recorded.decisions[j].bound;
    decision.overlap = recorded.decisions[j].overlap;
    decision.best_draft_p = recorded.decisions[j].best_draft_p;
    comparison.Members(fmt::format("place {}: ", j), recorded.decisions[j], decision);
  }
  return std::move(comparison.differences);
}

}  // namespace specd::replay
