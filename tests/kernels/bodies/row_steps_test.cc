// Steps 1 to 6 of CONTRACT §3 turn a row into logits; some rows are bad. A name begins with the
// peer that has the case in its tests, as in chain_cases_test.cc.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/bodies/row_law.h"

namespace specd {
namespace {

using Ids = std::vector<int>;
constexpr double kInf = INFINITY;

std::vector<double> Uniform(size_t vocab_size, double value = 0) {
  return std::vector<double>(vocab_size, value);
}

TEST_SUITE("unit") {
  TEST_CASE("vLLM: presence, frequency and repetition move what was seen") {
    const auto best = [](const oracle::Steps& steps, double value) {
      const std::vector<double> law = CheckRowLaw({.row = Uniform(8, value), .steps = steps});
      return int(std::max_element(law.begin(), law.end()) - law.begin());
    };
    const auto worst = [](const oracle::Steps& steps, double value) {
      const std::vector<double> law = CheckRowLaw({.row = Uniform(8, value), .steps = steps});
      return int(std::min_element(law.begin(), law.end()) - law.begin());
    };
    CHECK(worst({.presence = 2, .output = {3}}, 1) == 3);
    CHECK(best({.presence = -2, .output = {3}}, 1) == 3);
    CHECK(worst({.frequency = 2, .output = {3, 5, 5}}, 1) == 5);
    CHECK(best({.frequency = -2, .output = {3, 5, 5}}, 1) == 5);
    CHECK(worst({.repetition = 1.9, .prompt = {4}}, 1) == 4);
    CHECK(best({.repetition = 0.1, .prompt = {4}}, 1) == 4);
    // Only repetition knows the prompt.
    CHECK(best({.frequency = 2, .presence = 2, .prompt = {0}}, 1) == 0);
  }

  TEST_CASE("SGLang: penalties to the number") {
    // Against a row in which one id is at the value that the list expects: then both weigh alike.
    const auto check_equal = [](oracle::Steps steps, double value, double expected) {
      std::vector<double> row = Uniform(32);
      row[5] = value;
      row[6] = expected;
      const std::vector<double> law = CheckRowLaw({.row = row, .steps = steps});
      CHECK(law[5] == doctest::Approx(law[6]).epsilon(1e-5));
    };
    check_equal({.frequency = 2, .output = {5}}, 0, -2);                  // 83
    check_equal({.frequency = 1, .output = {5, 5}}, 0, -2);               // 84
    check_equal({.presence = 1, .output = {5, 5}}, 0, -1);                // 85
    check_equal({.repetition = 2, .output = {5}}, 4, 2);                  // 90
    check_equal({.repetition = 2, .output = {5}}, -4, -8);                // 90
    check_equal({.frequency = 0.5, .output = {5, 5, 5, 5, 5}}, 0, -2.5);  // 91
    // Repetition first, then frequency times the count, then presence.
    check_equal({.repetition = 2, .frequency = 0.5, .presence = 0.25, .output = {5, 5}}, 4, 0.75);
    check_equal({.bias = {{5, -6}}, .repetition = 2, .output = {5}}, 4, -4);  // bias comes before
    // 87: stop ids 5, 10 and EOS 2 have nothing while min_tokens is not reached, and all after.
    oracle::Steps ends{.end_ids = {2, 5, 10}, .below_min_tokens = true};
    CHECK(SupportOf(CheckRowLaw({.row = Uniform(32), .steps = ends})).size() == 29);
    ends.below_min_tokens = false;
    CHECK(SupportOf(CheckRowLaw({.row = Uniform(32), .steps = ends})).size() == 32);
  }

  TEST_CASE("edits reach every id: the first and the last of a tile, of a word, of the row") {
    constexpr int kVocabSize = 2 * kTileSize + 70;
    std::mt19937_64 random(150);
    const std::vector<double> row = RandomLogits(random, kVocabSize, 0.1);
    oracle::Steps steps{.repetition = 1.5, .frequency = 0.5};
    steps.mask.assign(kVocabSize, true);
    for (const int id : {0, 31, 2047, 2048, 4096, kVocabSize - 1}) {
      steps.bias[id] = 6;
      CheckRowLaw({.row = row, .steps = steps});
      steps.output.push_back(id);
      CheckRowLaw({.row = row, .steps = steps});
      oracle::Steps masked = steps;
      masked.mask[size_t(id)] = false;
      CHECK(CheckRowLaw({.row = row, .steps = masked})[size_t(id)] == 0);
      oracle::Steps banned = steps;
      banned.banned = {id};
      CHECK(CheckRowLaw({.row = row, .steps = banned, .truncation = {.top_k = 3000}})[size_t(id)] ==
            0);
      KernelRow one({.row = row, .steps = {.bias = {{id, 60}}}});
      CHECK(one.Greedy() == id);
    }
  }

  // No id has an edit here: edits look at both masks for themselves.
  TEST_CASE("CONTRACT 3.1: an id needs both masks, in any tile") {
    std::mt19937_64 random(31);
    for (const int vocab_size : {5, 300, 2049, 4500}) {
      for (int repeat = 0; repeat < 4; ++repeat) {
        RowCase c{.row = RandomLogits(random, vocab_size)};
        const auto random_mask = [&] {
          std::vector<bool> mask(c.row.size());
          for (size_t id = 0; id < mask.size(); ++id) mask[id] = random() % 3 != 0;
          mask[2] = true;
          return mask;
        };
        c.steps.allowed = random_mask();
        if (repeat % 2 == 1) c.steps.mask = random_mask();
        const std::vector<double> law = CheckRowLaw(c);
        int best = 2;
        for (int id = 0; id < vocab_size; ++id) {
          const auto place = static_cast<size_t>(id);
          const bool stands =
              c.steps.allowed[place] && (c.steps.mask.empty() || c.steps.mask[place]);
          if (!stands) CHECK(law[place] == 0);
          if (stands && c.row[place] > c.row[static_cast<size_t>(best)]) best = id;
        }
        CHECK(KernelRow(c).Greedy() == best);
      }
    }
  }

  TEST_CASE("the first edit that is not below an id is the one that std::lower_bound finds") {
    std::vector<TokenEdit> edits;
    for (int32_t size = 0; size < 20; ++size) {
      for (TokenId id = 0; id < 3 * size + 3; ++id) {
        CAPTURE(size);
        CAPTURE(id);
        const auto at = std::lower_bound(edits.begin(), edits.end(), id,
                                         [](const TokenEdit& e, TokenId i) { return e.id < i; });
        CHECK(LowerBound(edits.data(), size, id) == static_cast<int32_t>(at - edits.begin()));
      }
      edits.push_back({.id = 3 * size + 1});
    }
  }

  TEST_CASE("one element is what the tile holds; removed ids and ids after the cut are -inf") {
    constexpr int32_t kVocabSize = 2 * kTileSize + 70;
    std::mt19937_64 random(151);
    RowMatrix matrix({.vocab_size = kVocabSize, .num_rows = 1});
    std::vector<double> logits = RandomLogits(random, kVocabSize);
    for (const size_t id : {40, 2000, 4000}) logits[id] = 1.0;
    const TokenId removed[] = {2050, 3, kVocabSize - 1};
    for (const TokenId id : removed) logits[size_t(id)] = 9.0;  // the cut would keep them
    logits = matrix.Set(0, logits);
    Row row = PlainRow(matrix.row(0));
    row.removed = removed;
    row.num_removed = 3;
    row.has_cut = true;
    row.cut = {1.0f, 2000};
    ScalarTeam<CpuTarget::kBaseline> team;
    std::vector<float> loaded(NumTiles(kVocabSize) * kTileSize);
    for (int32_t t = 0; t < NumTiles(kVocabSize); ++t) {
      CpuTile tile;
      LoadRow(team, row, t, kAllSteps, &tile);
      team.Store(Identity{}, tile, kTileSize, loaded.data() + t * kTileSize);
    }
    for (TokenId id = 0; id < kVocabSize; ++id) {
      CAPTURE(id);
      const auto l = static_cast<float>(logits[size_t(id)]);
      const bool kept = std::find(removed, removed + 3, id) == removed + 3 &&
                        (l > 1.0f || (l == 1.0f && id <= 2000));
      REQUIRE(ElementOf(row, id) == (kept ? l : -kInfinity));
      REQUIRE(loaded[size_t(id)] == ElementOf(row, id));
    }
  }

  TEST_CASE("CONTRACT 3.3: min_tokens yields where the grammar allows only ends") {
    oracle::Steps steps{.end_ids = {1, 2}, .below_min_tokens = true};
    steps.mask = {false, true, true, false};
    CHECK(SupportOf(CheckRowLaw({.row = {4, 0, 1, 4}, .steps = steps})) == Ids{1, 2});
    CHECK(KernelRow({.row = {4, 0, 1, 4}, .steps = steps}).Greedy() == 2);
    steps.mask = {false, true, true, true};
    CHECK(SupportOf(CheckRowLaw({.row = {4, 0, 1, 4}, .steps = steps})) == Ids{3});
  }

  TEST_CASE(
      "CONTRACT 3.1, 6: masks, allowed and disallowed ids win over NaN and inf beneath them") {
    oracle::Steps steps;
    steps.mask = {true, true, false, true, true};
    steps.allowed = {true, false, true, true, true};
    steps.disallowed = {0};
    steps.bias = {{2, 100}, {1, 100}};
    const std::vector<double> row{NAN, kInf, NAN, 1, 2};
    CHECK(SupportOf(CheckRowLaw({.row = row, .steps = steps})) == Ids{3, 4});
    CHECK(KernelRow({.row = row, .steps = steps}).Greedy() == 4);
    for (const VerifyMethod method : {VerifyMethod::kGreedy, VerifyMethod::kExactMatch,
                                      VerifyMethod::kToken, VerifyMethod::kBlock}) {
      // A bad element that the mask leaves visible makes the row bad.
      CHECK(
          KernelRow({.row = {NAN, kInf, NAN, 1, NAN}, .steps = steps}).Run(method).outcome.status ==
          OutcomeStatus::kBadTargetRow);
      CHECK(
          KernelRow({.row = {1, 1, 1, -kInf, -kInf}, .steps = steps}).Run(method).outcome.status ==
          OutcomeStatus::kBadTargetRow);
    }
  }

  TEST_CASE("CONTRACT 2: scale, then cap * tanh(x / cap), before every step") {
    const std::vector<double> row{-kInf, -90, -4, -0.5, -0.0, 0.25, 1, 3, 8, 41};
    for (const double scale : {1.0, 0.25, 3.0}) {
      for (const double cap : {0.0, 5.0, 30.0}) {
        CAPTURE(scale);
        CAPTURE(cap);
        CheckRowLaw({.row = row, .scale = scale, .cap = cap});
        CheckRowLaw({.row = row,
                     .steps = {.bias = {{8, -3}}, .repetition = 1.5, .prompt = {1, 9}},
                     .temperature = 0.7,
                     .truncation = {.min_p = 0.01, .top_k = 5},
                     .scale = scale,
                     .cap = cap});
      }
    }
    // Infinities stay themselves, NaN stays NaN.
    CHECK(KernelRow({.row = {1, kInf, 2}, .scale = 2, .cap = 5}).Greedy() == 1);
    CHECK(KernelRow({.row = {1, NAN, 2}, .scale = 2, .cap = 5})
              .Run(VerifyMethod::kGreedy)
              .outcome.status == OutcomeStatus::kBadTargetRow);
    // Far up the cap makes ties, and the lowest id wins.
    CHECK(KernelRow({.row = {1, 2000, 3000}, .cap = 5}).Greedy() == 1);
  }

  TEST_CASE("CONTRACT 6: probabilities sum to 1 within 1e-3, or are renormalised") {
    for (const RowKind kind : {RowKind::kProbabilities, RowKind::kFinalProbabilities}) {
      const auto fault = [&](const std::vector<double>& row, bool renormalise) {
        const RowCase c{.row = row, .kind = kind, .renormalise = renormalise};
        const TaskOutcome outcome = KernelRow(c).Run(VerifyMethod::kExactMatch).outcome;
        const bool is_bad = outcome.status == OutcomeStatus::kBadTargetRow;
        CHECK(is_bad == (outcome.fault != RowFault::kNone));
        CHECK(is_bad == (outcome.status != OutcomeStatus::kOk));
        return outcome.fault;
      };
      CHECK(fault({.5, .25, .25}, false) == RowFault::kNone);
      CHECK(fault({.5, .25, .2506}, false) == RowFault::kNone);
      CHECK(fault({.5, .25, .2494}, false) == RowFault::kNone);
      CHECK(fault({.5, .25, .252}, false) == RowFault::kSum);
      CHECK(fault({.5, .25, .248}, false) == RowFault::kSum);
      CHECK(fault({.5, .25, .1}, true) == RowFault::kNone);
      CHECK(fault({3, 2, 1}, true) == RowFault::kNone);
      CHECK(fault({0, 0, 0}, true) == RowFault::kNoMass);
      CHECK(fault({0, 0, 0}, false) == RowFault::kNoMass);
      CHECK(fault({.75, -.25, .5}, false) == RowFault::kNan);
      CHECK(fault({.75, -.25, .5}, true) == RowFault::kNan);
      CHECK(fault({.5, NAN, .5}, true) == RowFault::kNan);
      CHECK(fault({.5, NAN, .5}, false) == RowFault::kNan);
      CHECK(fault({.5, NAN, .25}, false) == RowFault::kNan);
      CheckRowLaw({.row = {3, 0, 2, 1}, .kind = kind, .renormalise = true});
    }
    // Not final, they take every step: p^(1/T), penalties on ln p.
    CheckRowLaw({.row = {.5, 0, .25, .25},
                 .steps = {.bias = {{2, 1}}, .repetition = 2, .prompt = {0}},
                 .temperature = 0.5,
                 .kind = RowKind::kProbabilities});
  }

  TEST_CASE("an empty mask is a status and no token") {
    oracle::Steps steps;
    steps.mask = {false, false, false};
    for (const VerifyMethod method : {VerifyMethod::kGreedy, VerifyMethod::kExactMatch,
                                      VerifyMethod::kToken, VerifyMethod::kBlock}) {
      const ChainResult result = KernelRow({.row = {1, 2, 3}, .steps = steps}).Run(method);
      CHECK(result.outcome.status == OutcomeStatus::kBadTargetRow);
      CHECK(result.tokens.empty());
    }
  }

  TEST_CASE("vLLM, SGLang: bans and a forced token") {
    CHECK(SupportOf(CheckRowLaw({.row = {1, 2, 3, 4}, .steps = {.banned = {2, 3}}})) == Ids{0, 1});
    // A bias cannot bring a banned id back, a forced token overrules every step.
    oracle::Steps steps{.bias = {{3, 100}}, .banned = {3}};
    CHECK(KernelRow({.row = {1, 2, 3, 4}, .steps = steps}).Greedy() == 2);
    steps.forced = 3;
    steps.mask = {true, true, true, false};
    CHECK(KernelRow({.row = {1, 2, 3, 4}, .steps = steps}).Greedy() == 3);
    CHECK(SupportOf(CheckRowLaw(
              {.row = {1, 2, 3, 4}, .steps = steps, .truncation = {.top_k = 1}})) == Ids{3});
  }
}

}  // namespace
}  // namespace specd
