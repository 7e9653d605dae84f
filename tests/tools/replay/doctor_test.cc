// The doctor names each fault of an engine, and no fault of an engine that has none.
#include "tools/replay/doctor/doctor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/daemon/recorder/traced_session.h"
#include "tests/tools/replay/doctor_engine.h"
#include "tools/replay/doctor/findings.h"
#include "tools/replay/named_backend.h"

namespace specd::replay {
namespace {

using test::EngineKind;
using Coins = EngineKind::Coins;

constexpr int32_t kNumJudged = 2000;

class Recording {
 public:
  Recording(const EngineKind& kind, int32_t num_judged) {
    test::RecordEngine(kind, num_judged, folder_.path());
    const std::vector<std::string> traces = test::TracesIn(folder_.path());
    REQUIRE(traces.size() == 1);
    path_ = traces[0];
  }
  const std::string& path() const { return path_; }

  // Without rows the doctor has the numbers of level `rounds`. `change` may change each decision.
  Doctor Examine(
      bool with_rows, const std::function<void(PlaceDecision*)>& change = [](auto*) {}) const {
    static auto* const backend = new ReplayBackend(*MakeNamedBackend("cpu"), 1);
    Doctor doctor(backend, {}, {});
    TraceReader reader({path()});
    TraceItem item;
    while (*reader.Next(&item)) {
      if (auto* const round = std::get_if<TraceRound>(&item.record)) {
        for (TraceTask& task : round->tasks) {
          for (PlaceDecision& decision : task.decisions) change(&decision);
        }
      }
      const RowFileReader* const rows = with_rows ? *reader.Rows() : nullptr;
      REQUIRE(doctor.Take(item, rows).ok());
    }
    return doctor;
  }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

std::vector<Finding> FaultsOf(const Doctor& doctor) {
  std::vector<Finding> faults;
  for (const Finding& finding : FindingsOf(doctor, {})) {
    if (finding.is_fault) faults.push_back(finding);
  }
  return faults;
}

std::string SentencesOf(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.name + ": " + finding.sentence + "\n";
  return text;
}

EngineKind Kind(const std::function<void(EngineKind*)>& change) {
  EngineKind kind;
  kind.params.verify = VerifyMethod::kToken;
  change(&kind);
  return kind;
}

struct Fault {
  std::string name;      // of the finding
  std::string sentence;  // a part of it
  std::function<void(EngineKind*)> change;
};

const std::vector<Fault>& Faults() {
  static const auto* const faults = new std::vector<Fault>{
      {"draft_rows", "temperature near 0.7", [](auto* k) { k->drawn_temperature = .7; }},
      {"draft_rows", "temperature near 1.4", [](auto* k) { k->drawn_temperature = 1.4; }},
      {"draft_rows", "temperature near 1,",
       [](auto* k) { k->params.draft.temperature = .6, k->drawn_temperature = 1; }},
      {"draft_rows", "top_k = 10", [](auto* k) { k->drawn_top_k = 10; }},
      {"draft_rows", "top_p = 0.8", [](auto* k) { k->drawn_top_p = .8; }},
      {"draft_rows", "without the declared draft filters",
       [](auto* k) { k->params.draft.top_k = 8, k->drawn_top_k = 0; }},
      {"draft_rows", "without the declared draft filters",
       [](auto* k) { k->params.draft.top_p = .7, k->drawn_top_p = 1; }},
      {"draft_rows", "the best ids of q", [](auto* k) { k->draws_best = true; }},
      {"draft_rows", "shifted by one", [](auto* k) { k->draft_shift = 1; }},
      {"draft_rows", "shifted by one", [](auto* k) { k->draft_shift = -1; }},
      {"draft_rows", "of the sequence", [](auto* k) { k->draft_rotation = 1; }},
      {"target_rows", "shifted by one", [](auto* k) { k->target_shift = 1; }},
      {"target_rows", "shifted by one", [](auto* k) { k->target_shift = -1; }},
      {"target_rows", "the target rows of the sequence before it",
       [](auto* k) { k->target_rotation = 1; }},
      {"draft_rows", "the drafter never drafts", [](auto* k) { k->draws_few_ids = true; }},
      {"draft_coins", "of the place before", [](auto* k) { k->coins = Coins::kOneForDraft; }},
      {"draft_coins", "of the sequence before", [](auto* k) { k->coins = Coins::kOneForRound; }},
      {"draft_coins", "with which specd accepts", [](auto* k) { k->coins = Coins::kAccept; }}};
  return *faults;
}

std::vector<EngineKind> RightEngines() {
  std::vector<EngineKind> kinds;
  const auto add = [&kinds](const std::function<void(EngineKind*)>& change) {
    kinds.push_back(Kind(change));
    kinds.back().seed = 100 + kinds.size();
  };
  add([](auto*) {});
  add([](auto* k) { k->params.verify = VerifyMethod::kBlock; });
  add([](auto* k) { k->params.verify = VerifyMethod::kExactMatch; });
  add([](auto* k) { k->is_drawn = false; });
  add([](auto* k) { k->is_drawn = false, k->params.verify = VerifyMethod::kBlock; });
  add([](auto* k) { k->is_tree = true, k->params.verify = VerifyMethod::kTree; });
  add([](auto* k) { k->is_tree = true, k->params.verify = VerifyMethod::kTraversal; });
  add([](auto* k) { k->params.temperature = .5, k->params.draft.temperature = .5; });
  add([](auto* k) { k->params.temperature = 1.5, k->params.draft.temperature = .7; });
  add([](auto* k) { k->params.draft.top_k = 10; });
  add([](auto* k) { k->params.draft.top_p = .8, k->params.verify = VerifyMethod::kBlock; });
  add([](auto* k) { k->params.draft.min_p = .1; });
  add([](auto* k) { k->params.top_k = 5, k->params.top_p = .9; });
  add([](auto* k) { k->has_masks = true; });
  add([](auto* k) { k->has_narrow_rows = true; });
  // A drafter that is much too sharp: p / q is rarely seen where it is large.
  add([](auto* k) { k->draft_factor = 2.5, k->noise = 1.5; });
  add([](auto* k) { k->draft_factor = .3; });
  add([](auto* k) { k->noise = 4; });
  add([](auto* k) { k->noise = 0; });
  add([](auto* k) { k->sharpness = 4; });
  add([](auto* k) { k->sharpness = .3, k->vocab_size = 512; });
  add([](auto* k) { k->num_sequences = 1, k->params.verify = VerifyMethod::kBlock; });
  add([](auto* k) {
    k->params.frequency_penalty = .5, k->params.repetition_penalty = 1.3, k->vocab_size = 60;
  });
  return kinds;
}

struct Hard {
  std::string name;
  std::function<void(EngineKind*)> change;
};

// Right engines whose sums are far from normal, or whose sequences differ.
const std::vector<Hard>& HardEngines() {
  static const auto* const engines = new std::vector<Hard>{
      {"half of the places are near-certain",
       [](auto* k) { k->certain_boost = 9, k->sharpness = .5, k->noise = 1; }},
      {"half of the places are near-certain, and the drafter is flatter",
       [](auto* k) { k->certain_boost = 13, k->draft_factor = .8; }},
      {"nearly all is certain", [](auto* k) { k->sharpness = 8, k->noise = .2; }},
      {"forced places", [](auto* k) { k->has_forced_places = true; }},
      {"forced and near-certain places",
       [](auto* k) { k->has_forced_places = true, k->certain_boost = 11; }},
      {"temperatures .3 and 1.5",
       [](auto* k) {
         k->num_sequences = 2, k->noise = 4, k->temperatures = {.3, 1.5};
       }},
      {"temperatures .3 and 1.5, and drafts the other way round",
       [](auto* k) {
         k->num_sequences = 2, k->noise = 4, k->temperatures = {.3, 1.5};
         k->draft_temperatures = {1.5, .3};
       }},
      {"mixed siblings",
       [](auto* k) {
         k->is_tree = k->has_mixed_siblings = true, k->params.verify = VerifyMethod::kTree;
       }},
      {"mixed siblings of near-certain places", [](auto* k) {
         k->is_tree = k->has_mixed_siblings = true, k->params.verify = VerifyMethod::kTree;
         k->certain_boost = 9;
       }}};
  return *engines;
}

TEST_SUITE("replay") {
  TEST_CASE("doctor names the fault of a faulty engine within 2,000 judged drafts") {
    for (size_t i = 0; i < Faults().size(); ++i) {
      const Fault& fault = Faults()[i];
      const EngineKind kind = Kind(fault.change);
      const Recording recording(kind, kNumJudged);
      const std::vector<Finding> found = FaultsOf(recording.Examine(true));
      CAPTURE(i);
      CAPTURE(fault.sentence);
      CAPTURE(SentencesOf(found));
      REQUIRE(found.size() == 1);
      CHECK(found[0].name == fault.name);
      CHECK(found[0].sentence.find(fault.sentence) != std::string::npos);
    }
  }

  TEST_CASE("doctor finds no fault of engines that are right") {
    const std::vector<EngineKind> kinds = RightEngines();
    CHECK(kinds.size() >= 20);
    for (size_t i = 0; i < kinds.size(); ++i) {
      const Recording recording(kinds[i], kNumJudged);
      for (const bool with_rows : {true, false}) {
        CAPTURE(i);
        CAPTURE(with_rows);
        const Doctor doctor = recording.Examine(with_rows);
        CHECK(doctor.all().count > kNumJudged / 2);
        CHECK(std::abs(doctor.all().z()) < kSigmas);
        CHECK(SentencesOf(FaultsOf(doctor)) == "");
      }
    }
  }

  TEST_CASE("doctor finds no fault of right engines whose figures are far from normal") {
    constexpr uint64_t kNumSeeds = 24;
    for (const Hard& hard : HardEngines()) {
      CAPTURE(hard.name);
      int num_false = 0;
      std::string faults;
      for (uint64_t seed = 1; seed <= kNumSeeds; ++seed) {
        EngineKind kind = Kind(hard.change);
        kind.vocab_size = 64;
        kind.seed = 500 + seed;
        // The least sums that are judged, and larger ones.
        const Recording recording(kind, seed % 2 == 0 ? 120 : 500);
        for (const bool with_rows : {true, false}) {
          const std::vector<Finding> found = FaultsOf(recording.Examine(with_rows));
          if (found.empty()) continue;
          ++num_false;
          faults += SentencesOf(found);
        }
      }
      CAPTURE(faults);
      CHECK(num_false == 0);
    }
  }

  TEST_CASE("without rows, doctor finds accept coins of block that are too low") {
    const EngineKind kind = Kind([](auto* k) { k->params.verify = VerifyMethod::kBlock; });
    const Recording recording(kind, kNumJudged);
    uint64_t num_coins = 0;
    uint64_t num_bounds = 0;
    const Doctor doctor = recording.Examine(false, [&](PlaceDecision* decision) {
      num_bounds += decision->bound >= 0 ? 1 : 0;
      if (decision->accept_coin == kNoCoin) return;
      ++num_coins;
      decision->accept_coin -= decision->accept_coin / 4;
    });
    // The coins whose bounds were not recorded say nothing.
    CHECK(doctor.round_tests().passed().count == num_bounds);
    CHECK(num_bounds > num_coins / 4);
    CHECK(num_bounds < num_coins);
    const std::vector<Finding> found = FaultsOf(doctor);
    REQUIRE(found.size() == 1);
    CHECK(found[0].name == "accept_coins");
  }

  TEST_CASE("without rows, doctor finds drafts of another temperature by p/q and residuals") {
    // Drafts that are too sharp are a suspicion alone: -inf in the draft rows looks the same.
    for (const double temperature : {.5, 1.6}) {
      CAPTURE(temperature);
      const EngineKind kind = Kind([&](auto* k) { k->drawn_temperature = temperature; });
      const Recording recording(kind, kNumJudged);
      const std::vector<Finding> found = FindingsOf(recording.Examine(false), {});
      REQUIRE(found.size() == 1);
      CHECK(found[0].name == "draft_ratio");
      CHECK(found[0].is_fault == (temperature > 1));
    }
  }
}

}  // namespace
}  // namespace specd::replay
