// DecisionText and RecordedDecisions give the records of a round as texts for tests: equal texts
// for equal bits.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/decision.h"

namespace specd {

// -0 and 0 differ here; two NaNs do not.
inline std::string DecisionText(const PlaceDecision& d) {
  return fmt::format(
      "judged {} stands {} bad {}{} token {} position {} draft {} p {:a}/{:a} q {:a}/{:a} coin "
      "{:#x} prefix "
      "{:a} bound {:a} draw {:#x} of {} in [{:#x}, {:#x}) residual {:a} weight {:a} zero {}",
      d.judged, d.stands, d.bad_target, d.bad_draft, d.token, d.position, d.draft, d.p_weight,
      d.p_mass, d.q_weight, d.q_mass, d.accept_coin, d.prefix, d.bound, d.draw_coin,
      static_cast<int>(d.draw_purpose), d.draw_interval.low, d.draw_interval.high, d.residual_mass,
      d.token_weight, static_cast<int>(d.zero_step));
}

// Room for the decisions of a round, one after another for each task.
struct RecordedDecisions {
  RecordedDecisions(RoundBatch* batch, int32_t places) : num_places(places) {
    all.resize(static_cast<size_t>(batch->num_tasks * num_places));
    batch->decisions = all.data();
    batch->decisions_stride = num_places;
  }
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const PlaceDecision& decision : all) texts.push_back(DecisionText(decision));
    return texts;
  }

  int32_t num_places;
  std::vector<PlaceDecision> all;
};

// Runs the batch with records.
inline std::vector<PlaceDecision> DecisionsOf(Backend& backend, RoundBatch batch,
                                              int32_t num_places) {
  const RecordedDecisions decisions(&batch, num_places);
  const absl::Status status = backend.Run(batch);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  return decisions.all;
}

// A comparison counts the kinds of decisions that it has seen, so that a test can demand them.
struct DecisionCounts {
  void Add(const Task& task, const TaskOutcome& outcome, std::span<const PlaceDecision> places) {
    const auto method = static_cast<size_t>(task.method);
    for (const PlaceDecision& place : places) {
      judged[method] += place.judged ? 1 : 0;
      drawn += place.judged && place.draw_coin != kNoCoin ? 1 : 0;
      from_residual += place.judged && place.residual_mass > 0 ? 1 : 0;
      bounds += place.bound >= 0 ? 1 : 0;
      bad += place.bad_target || place.bad_draft ? 1 : 0;
    }
    cut_drafts += outcome.num_drafts < task.draft.num_nodes ? 1 : 0;
  }
  bool HasAll() const {
    for (const VerifyMethod method : {VerifyMethod::kGreedy, VerifyMethod::kExactMatch,
                                      VerifyMethod::kToken, VerifyMethod::kBlock}) {
      if (judged[static_cast<size_t>(method)] == 0) return false;
    }
    return drawn > 0 && from_residual > 0 && bounds > 0 && bad > 0 && cut_drafts > 0;
  }

  int64_t judged[8] = {};
  int64_t drawn = 0;
  int64_t from_residual = 0;
  int64_t bounds = 0;
  int64_t bad = 0;
  int64_t cut_drafts = 0;  // drafts with a kNoToken
};

}  // namespace specd
