// check_drafts: a wrong q is named in the log while the engine runs, and a right one is not.
#include "daemon/recorder/draft_check.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/daemon/recorder/traced_session.h"

namespace specd {
namespace {

using test::DraftOf;
using test::ReadTraceResult;
using test::TracedSession;

constexpr size_t kVocab = TracedSession::kVocab;

std::vector<double> Softmax(const float* row, double temperature) {
  std::vector<double> p(kVocab);
  double sum = 0;
  for (size_t id = 0; id < kVocab; ++id) sum += p[id] = std::exp(double{row[id]} / temperature);
  for (double& x : p) x /= sum;
  return p;
}

// Rounds of an engine that draws from its draft rows at this temperature and declares 1.
void RunEngine(double temperature, int num_rounds, TracedSession* traced) {
  std::mt19937_64 random(11);
  SequenceParams params;
  params.verify = VerifyMethod::kToken;
  params.max_tokens = 100'000;
  params.ignore_eos = true;
  params.has_seed = true;
  params.seed = 5;
  const SequenceHandle sequence = traced->Open("s", params);
  for (int round = 0; round < num_rounds; ++round) {
    traced->FillRows(random(), 1.5f);
    std::vector<TokenId> tokens;
    for (uint32_t place = 0; place < 3; ++place) {
      const std::vector<double> q = Softmax(traced->DraftRow(place), temperature);
      tokens.push_back(
          static_cast<TokenId>(std::discrete_distribution<int>(q.begin(), q.end())(random)));
    }
    traced->Round({TracedSession::Sampled(sequence, tokens)});
  }
}

TEST_SUITE("unit") {
  TEST_CASE("check_drafts warns of drafts that were drawn at another temperature") {
    TracedSession traced({.trace_options = "level=rows,check_drafts=1"});
    RunEngine(.5, 300, &traced);
    traced.Finish();
    CHECK(traced.lines.Contain("the drafts look drawn at a temperature near 0.5, and 1 is"));
    CHECK(traced.lines.size() == 1);
    CHECK(traced.lines.Contain("draft_temperature"));
    bool has_metadata = false;
    for (const McapMetadata& metadata : traced.Read().metadata) {
      has_metadata = has_metadata || metadata.name == "drafts";
    }
    CHECK(has_metadata);
  }

  TEST_CASE("check_drafts warns of nothing if the drafts are those of q, or if it is off") {
    for (const auto& [temperature, options] :
         {std::pair(1.0, "level=rows,check_drafts=1"), std::pair(.5, "level=rows")}) {
      TracedSession traced({.trace_options = options});
      RunEngine(temperature, 300, &traced);
      traced.Finish();
      CHECK(traced.lines.size() == 0);
    }
  }

  // A round of 12 draft tokens whose target rows are the draft rows, so that all stand.
  TEST_CASE("check_drafts looks at 8 draft tokens of a round at most, and by turns at all") {
    TracedSession traced({.trace_options = "level=rows,check_drafts=1"});
    std::vector<SequenceHandle> sequences;
    for (int i = 0; i < 4; ++i) sequences.push_back(traced.Open("s" + std::to_string(i)));
    for (int round = 0; round < 60; ++round) {
      traced.FillRows(static_cast<uint64_t>(round) + 1);
      std::copy_n(traced.DraftRow(0), 3 * kVocab, traced.TargetRow(0));
      std::vector<DraftOf> drafts;
      for (const SequenceHandle sequence : sequences) {
        drafts.push_back(TracedSession::Sampled(sequence));
      }
      traced.Round(drafts);
    }
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.rounds.size() == 60);
    std::vector<int> num_looks(12);
    for (const TraceRound& round : trace.rounds) {
      size_t num_of_round = 0;
      REQUIRE(round.tasks.size() == 4);
      for (size_t s = 0; s < 4; ++s) {
        const auto& decisions = round.tasks[s].decisions;
        for (size_t place = 0; place < std::min<size_t>(decisions.size(), 3); ++place) {
          const int is_looked_at = decisions[place].overlap >= 0 ? 1 : 0;
          num_looks[3 * s + place] += is_looked_at;
          num_of_round += static_cast<size_t>(is_looked_at);
        }
      }
      CHECK(num_of_round == DraftCheck::kDraftsMax);
    }
    // 40 of 60 are expected, with an error of 3.7 if rounds are mixed.
    for (const int count : num_looks) CHECK(count > 20);
  }

  TEST_CASE("check_drafts writes the sum of min(p, q) and p of q's best id into its rounds") {
    TracedSession traced({.trace_options = "level=rows,check_drafts=2"});
    RunEngine(1, 40, &traced);
    // The rows of the last round are still there.
    std::vector<double> overlaps(3);
    std::vector<double> best(3);
    for (uint32_t place = 0; place < 3; ++place) {
      const std::vector<double> p = Softmax(traced.TargetRow(place), 1);
      const std::vector<double> q = Softmax(traced.DraftRow(place), 1);
      for (size_t id = 0; id < kVocab; ++id) overlaps[place] += std::min(p[id], q[id]);
      best[place] = p[static_cast<size_t>(std::max_element(q.begin(), q.end()) - q.begin())];
    }
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.rounds.size() == 40);
    int num_computed = 0;
    for (size_t i = 0; i < trace.rounds.size(); ++i) {
      const std::vector<PlaceDecision>& decisions = trace.rounds[i].tasks[0].decisions;
      for (size_t place = 0; place < decisions.size(); ++place) {
        const PlaceDecision& decision = decisions[place];
        const bool is_looked_at = i % 2 == 1 && decision.judged && place < 3;
        CHECK((decision.overlap >= 0) == is_looked_at);
        CHECK((decision.best_draft_p >= 0) == is_looked_at);
        num_computed += is_looked_at ? 1 : 0;
        if (!is_looked_at || i + 1 != trace.rounds.size()) continue;
        CHECK(decision.overlap == doctest::Approx(overlaps[place]).epsilon(1e-5));
        CHECK(decision.best_draft_p == doctest::Approx(best[place]).epsilon(1e-5));
      }
    }
    CHECK(num_computed > 20);
  }
}

}  // namespace
}  // namespace specd
