// What diff says of two steps: drafts by slot, and rows that a sequence does not use.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tools/replay/step_comparison.h"
#include "tools/replay/step_digest.h"

namespace specd::replay {
namespace {

// One task with one draft token that fell, and everything that level `rows` keeps of it.
struct Step {
  TraceRound round;
  TraceTask task;
};

Step MakeStep(bool by_slot) {
  Step step;
  step.round.level = TraceLevel::kRows;
  step.round.rows = {{.tensor = TraceTensor::kTarget, .index = 0, .hash = 11},
                     {.tensor = TraceTensor::kTarget, .index = 1, .hash = 12},
                     {.tensor = TraceTensor::kDraft, .index = 0, .hash = 13},
                     {.tensor = TraceTensor::kMask, .index = 0, .hash = 14}};
  TraceTask& task = step.task;
  task.method = VerifyMethod::kToken;
  task.tokens = {7};
  task.target_rows = {0, 1};
  task.drafts_by_slot = by_slot;
  task.edits_hash = 5;
  task.outcome = {.num_accepted = 0, .num_tokens = 1, .num_drafts = 1};
  task.confirmed = {3};
  return step;
}

std::vector<std::string> CausesOf(const Step& a, const Step& b) {
  std::vector<std::string> causes;
  for (const StepDifference& difference : CompareSteps(a.round, a.task, b.round, b.task)) {
    causes.push_back(difference.cause);
  }
  const bool may_equal = DigestOf(a.round, a.task).MayEqual(DigestOf(b.round, b.task));
  CHECK(may_equal == causes.empty());
  return causes;
}

using Causes = std::vector<std::string>;

TEST_SUITE("replay") {
  TEST_CASE("diff names a fault of specd in rounds with draft tokens by slot") {
    // It said "a parameter that was not recorded".
    const Step a = MakeStep(true);
    Step b = a;
    CHECK(CausesOf(a, b).empty());
    b.task.confirmed = {4};
    CHECK(CausesOf(a, b) == Causes{"decision"});
  }

  TEST_CASE("diff names no fault of specd if an input by slot was not recorded") {
    Step a = MakeStep(true);
    Step b = a;
    b.task.confirmed = {4};
    a.task.tokens.clear();
    b.task.tokens.clear();
    CHECK(CausesOf(a, b) == Causes{"draft"});
    a = MakeStep(true);
    a.task.edits_hash = 0;  // an older recorder, below level rows
    a.round.level = TraceLevel::kHashes;
    b = a;
    b.task.confirmed = {4};
    CHECK(CausesOf(a, b) == Causes{"parameters"});
  }

  TEST_CASE("overrides that the host made for one run alone may come of a parameter") {
    const Step a = MakeStep(true);
    Step b = MakeStep(false);
    b.task.confirmed = {4};
    CHECK(CausesOf(a, b) == Causes{"decision"});
    b.task.overrides_hash = 9;  // such as a bad word
    CHECK(CausesOf(a, b) == Causes{"parameters"});
    CHECK(CausesOf(b, a) == Causes{"parameters"});
  }

  TEST_CASE("diff blames no parameter for overrides that the processor makes") {
    // Masks give a task by slot its places, and these have none of the host's overrides.
    Step a = MakeStep(true);
    a.task.places.resize(2);
    for (TracePlace& place : a.task.places) place.mask_row = 0;
    Step b = a;
    b.task.drafts_by_slot = false;
    b.task.overrides_hash = 9;
    b.task.places[1].overrides = {{.id = 7, .count = 1}};
    CHECK(CausesOf(a, b).empty());
    CHECK(CausesOf(b, a).empty());
    // Of two runs with host drafts the difference is one of parameters.
    a.task.drafts_by_slot = false;
    CHECK(CausesOf(a, b) == Causes{"parameters"});
  }

  TEST_CASE("diff compares the rules of a tensor only if the sequence uses it") {
    Step a = MakeStep(false);
    Step b = a;
    b.round.draft.rules.scale = 2;
    CHECK(CausesOf(a, b).empty());
    for (Step* step : {&a, &b}) {
      step->task.kinds = {DraftKind::kSampled};
      step->task.draft_rows = {0};
    }
    CHECK(CausesOf(a, b) == Causes{"parameters"});
    a = MakeStep(false);
    b = a;
    b.round.target.rules.scale = 2;
    CHECK(CausesOf(a, b) == Causes{"parameters"});
    for (Step* step : {&a, &b}) {
      step->task.method = VerifyMethod::kGreedy;
      step->task.target_rows.clear();
      step->task.target_argmax = {3, 4};
    }
    CHECK(CausesOf(a, b).empty());
  }
}

}  // namespace
}  // namespace specd::replay
