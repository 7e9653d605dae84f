// The numbers of recorded trees against the recorded walks, and the rules of their records.
#include "tools/replay/tree_view.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tools/replay/named_backend.h"
#include "tools/replay/place_view.h"
#include "tools/replay/scalar_check.h"
#include "tools/replay/task_rules.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {
namespace {

constexpr int32_t kVocab = 64;
constexpr char kTrace[] = SPECD_SOURCE_DIR "/tests/data/traces/trees.mcap";

// Calls use(round, task index, rebuilder, index in the batch) for each task of the trace.
template <class Use>
void ForEachTask(ReplayBackend* backend, Use use) {
  TraceReader reader({kTrace});
  TraceItem item;
  RoundRebuilder rebuilder(kVocab);
  for (;;) {
    const auto more = reader.Next(&item);
    REQUIRE(more.ok());
    if (!*more) return;
    const auto* const round = std::get_if<TraceRound>(&item.record);
    if (round == nullptr) continue;
    rebuilder.Rebuild(*round, *reader.Rows());
    REQUIRE(rebuilder.tasks().size() == round->tasks.size());
    REQUIRE(backend->Run(&rebuilder).ok());
    for (size_t i = 0; i < round->tasks.size(); ++i) use(*round, round->tasks[i], rebuilder, i);
  }
}

// A tree of two branches, of which the second child of the second one was accepted.
TraceTask TwoBranches() {
  TraceTask task;
  task.method = VerifyMethod::kTree;
  task.tokens = {1, 2, 3, 4, 5};
  task.parents = {-1, -1, 0, 1, 1};
  task.kinds = std::vector<DraftKind>(5, DraftKind::kSampledRest);
  task.draft_rows = {0, 0, 1, 2, 2};
  task.outcome = {.num_accepted = 2, .num_tokens = 3, .num_drafts = 5};
  task.path = {1, 4};
  task.confirmed = {2, 5, 7};
  return task;
}

std::string Refusal(const TraceTask& task) {
  TraceRound round;
  round.answers.resize(1);
  return std::string(CheckTask(round, task, kVocab).message());
}

TEST_SUITE("replay") {
  // The walk is the kernels', and the shares are those of the definition.
  TEST_CASE("trees: a node stands where its coin is below the share of its definition") {
    ReplayBackend backend(*MakeNamedBackend("scalar"), 1);
    PlaceRows rows(&backend);
    std::set<VerifyMethod> seen;
    int num_accepted = 0;
    int num_rejected = 0;
    ForEachTask(&backend, [&](const TraceRound& round, const TraceTask& task,
                              const RoundRebuilder& rebuilder, size_t i) {
      CAPTURE(round.number);
      CAPTURE(i);
      const auto nodes = ViewTree(task, kVocab, &rows, &rebuilder, i);
      REQUIRE(nodes.ok());
      REQUIRE(nodes->size() == task.tokens.size());
      if (task.method == VerifyMethod::kTargetOnly) return;
      for (const NodeView& view : *nodes) {
        CAPTURE(view.node);
        if (!view.bound || !view.coin) continue;
        const bool stands = view.fate == NodeFate::kAccepted;
        CHECK((*view.coin < *view.bound) == stands);
        seen.insert(task.method);
        ++(stands ? num_accepted : num_rejected);
      }
    });
    CHECK(seen == std::set{VerifyMethod::kTree, VerifyMethod::kTraversal});
    CHECK(num_accepted > 10);
    CHECK(num_rejected > 30);
  }

  // A place was recorded without its coin, and with 1 for what its children left of p.
  TEST_CASE("trees: target_only records the coin, the sum of p and what the children left") {
    ReplayBackend backend(*MakeNamedBackend("scalar"), 1);
    PlaceRows rows(&backend);
    TraceInfo info;
    info.vocab_size = kVocab;
    int num_stood = 0;
    int num_fell = 0;
    ForEachTask(&backend, [&](const TraceRound& round, const TraceTask& task,
                              const RoundRebuilder& rebuilder, size_t i) {
      if (task.method != VerifyMethod::kTargetOnly) return;
      CAPTURE(round.number);
      const auto nodes = ViewTree(task, kVocab, &rows, &rebuilder, i);
      REQUIRE(nodes.ok());
      for (size_t place = 0; place < task.decisions.size(); ++place) {
        CAPTURE(place);
        const PlaceDecision& d = task.decisions[place];
        if (!d.judged) continue;
        double sum = 0;  // of p over the children up to the one that was judged last, by definition
        for (const NodeView& view : *nodes) {
          const bool is_child = PlaceAfter(view.parent) == static_cast<int32_t>(place);
          if (!is_child || !view.bound) continue;
          CHECK(CoinToDouble(d.accept_coin) == *view.coin);
          if (!d.stands || view.fate == NodeFate::kAccepted) sum = std::max(sum, *view.bound);
        }
        if (d.accept_coin == kNoCoin) continue;
        CHECK(d.bound == doctest::Approx(sum).epsilon(1e-5));
        CHECK(ViewPlace(info, task, static_cast<int32_t>(place)).p.has_value());
        ++(d.stands ? num_stood : num_fell);
        if (!d.stands) CHECK(d.residual_mass == doctest::Approx(1 - sum).epsilon(1e-5));
      }
    });
    CHECK(num_stood > 2);
    CHECK(num_fell > 5);
  }

  TEST_CASE("trees: fates follow from the path and the order of the method") {
    TraceTask task = TwoBranches();
    using enum NodeFate;
    CHECK(DraftTree(task, kVocab).Fates() ==
          std::vector{kRejected, kAccepted, kNotJudged, kRejected, kAccepted});
    task.method = VerifyMethod::kTraversal;
    CHECK(DraftTree(task, kVocab).Fates() ==
          std::vector{kRejected, kAccepted, kRejected, kRejected, kAccepted});
    task.path = {0};
    task.outcome = {.num_accepted = 1, .num_tokens = 2, .num_drafts = 5};
    CHECK(DraftTree(task, kVocab).Fates() ==
          std::vector{kAccepted, kNotJudged, kRejected, kNotJudged, kNotJudged});
    task.tokens[2] = kVocab;
    CHECK(DraftTree(task, kVocab).Fates()[2] == kOutside);
    CHECK(DraftTree(task, kVocab).NumInside() == 4);
    CHECK(DraftTree(task, kVocab).Depth() == 2);
    // The one-hot sibling comes after the drawn one, whatever its index.
    task.kinds[0] = DraftKind::kOneHot;
    CHECK(DraftTree(task, kVocab).ChildrenOf(0) == std::vector{1, 0});
  }

  TEST_CASE("trees: records that no recorder writes are refused by name") {
    const auto refusal = [](auto change) {
      TraceTask task = TwoBranches();
      change(&task);
      return Refusal(task);
    };
    using T = TraceTask*;
    CHECK(refusal([](T) {}).empty());
    const auto names = [&](std::string_view member, auto change) {
      return refusal(change).find(member) != std::string::npos;
    };
    CHECK(names("parents", [](T t) { t->parents[2] = 2; }));
    CHECK(names("parents", [](T t) { t->parents[2] = -2; }));
    CHECK(names("parents", [](T t) { t->method = VerifyMethod::kBlock; }));
    CHECK(names("path", [](T t) { t->path = {1}; }));
    CHECK(names("path", [](T t) { t->path = {4, 1}; }));
    CHECK(names("path", [](T t) { t->path = {1, 99}; }));
    CHECK(names("path", [](T t) { t->tokens[4] = kVocab; }));
    CHECK(names("num_tokens", [](T t) {
      t->outcome.num_tokens = 4;
      t->confirmed.push_back(0);
    }));
    CHECK(names("kinds", [](T t) { t->kinds[1] = DraftKind::kSampled; }));
    CHECK(names("draft_rows", [](T t) { t->draft_rows[1] = 3; }));
    CHECK(names("draft_weights", [](T t) {
      t->draft_weights.resize(5);
      t->draft_masses.resize(4);
    }));
  }

  TEST_CASE("trees: a changed number of a record is found without rows") {
    ReplayBackend backend(*MakeNamedBackend("scalar"), 1);
    int num_changed = 0;
    ForEachTask(&backend,
                [&](const TraceRound&, const TraceTask& task, const RoundRebuilder&, size_t) {
                  CHECK(CheckScalars(task, kVocab).differences.empty());
                  const auto finds = [&](auto change) {
                    TraceTask changed = task;
                    change(&changed);
                    CHECK_FALSE(CheckScalars(changed, kVocab).differences.empty());
                    ++num_changed;
                  };
                  finds([](TraceTask* t) { t->confirmed.back() += 1; });
                  for (size_t i = 0; i < task.decisions.size(); ++i) {
                    if (task.decisions[i].accept_coin != kNoCoin) {
                      finds([i](TraceTask* t) { t->decisions[i].accept_coin ^= 1; });
                    }
                    if (task.decisions[i].draw_coin != kNoCoin) {
                      finds([i](TraceTask* t) { t->decisions[i].draw_coin ^= 1; });
                    }
                    finds([i](TraceTask* t) { t->decisions[i].judged = !t->decisions[i].judged; });
                  }
                });
    CHECK(num_changed > 500);
  }
}

}  // namespace
}  // namespace specd::replay
