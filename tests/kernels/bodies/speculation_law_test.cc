// The joint law of the first tokens of a text through everything at once: SampleDraft draws the
// draft with the keys of the contract, and its side channel goes into verification. Rounds follow
// one another. The counts are compared with the target's law (CONTRACT §10, "Statistical").
//
// vLLM's <tests/v1/spec_decode/test_rejection_sampler_utils.py> compares such counts by chi-square,
// one place at a time (test_gumbel_drafted_rejection_sample_is_unbiased: with the drafter's coins).
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/bodies/drafted_texts.h"
#include "tests/support/chi_square.h"
#include "tests/support/rows.h"
#include "tools/oracle/oracle.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 64;
constexpr int32_t kLength = 3;
constexpr double kTemperature = 0.8;
constexpr double kDraftTemperature = 1.1;

// First-order models: the row of a place depends on the token before it; row V is the beginning.
struct Models {
  Models(const oracle::Truncation& target_truncation, const oracle::Truncation& draft_truncation)
      : target({.dtype = DType::kBFloat16, .vocab_size = kVocabSize, .num_rows = kVocabSize + 1}),
        draft(target) {
    std::mt19937_64 random(71);
    for (int32_t row = 0; row <= kVocabSize; ++row) {
      std::vector<double> logits = RandomLogits(random, kVocabSize, 0.7);
      if (row % 3 == 0) logits[random() % kVocabSize] = -INFINITY;
      p.push_back(
          *oracle::Distribution(target.Set(row, logits), {}, kTemperature, target_truncation));
      std::normal_distribution<double> noise(0, 0.7);
      for (double& x : logits) x += noise(random);
      draft.Set(row, logits);
    }
    filters = FiltersOf(target_truncation);
    draft_filters = FiltersOf(draft_truncation);
  }
  RowMatrix target;
  RowMatrix draft;
  Filters filters;
  Filters draft_filters;
  std::vector<oracle::Probabilities> p;
};

struct Case {
  std::string name;
  VerifyMethod method;
  bool one_hot = false;
  bool side_channel = false;
};

DraftedTexts TextsOf(const Models& models, const Case& c) {
  return DraftedTexts(models.target, models.draft,
                      {.method = c.method,
                       .length = kLength,
                       .temperature = kTemperature,
                       .draft_temperature = kDraftTemperature,
                       .target_filters = models.filters,
                       .draft_filters = models.draft_filters,
                       .one_hot = c.one_hot,
                       .side_channel = c.side_channel});
}

void Check(const std::string& what, const std::vector<int64_t>& counts,
           const std::vector<double>& law, double effect) {
  const ChiSquare test = TestCounts(counts, law);
  MESSAGE(what, ": chi-square ", test.statistic, " with ", test.degrees_of_freedom,
          " degrees of freedom (limit ", test.critical, "), visible effect: total variation ",
          test.visible_effect);
  CHECK(test.Fits());
  CHECK(test.visible_effect < effect);
}

// Three tokens in eight classes each, and the first two as they are.
void CheckJointLaw(const Case& c, const Models& models, int num_batches) {
  DraftedTexts texts = TextsOf(models, c);
  constexpr int32_t kClasses = 8;
  std::vector<int64_t> classes(kClasses * kClasses * kClasses);
  std::vector<double> class_law(classes.size());
  std::vector<int64_t> pairs(kVocabSize * kVocabSize);
  std::vector<double> pair_law(pairs.size());
  const auto class_of = [](int32_t a, int32_t b, int32_t third) {
    return (a % kClasses * kClasses + b % kClasses) * kClasses + third % kClasses;
  };
  for (int32_t a = 0; a < kVocabSize; ++a) {
    for (int32_t b = 0; b < kVocabSize; ++b) {
      const double both = models.p[kVocabSize][a] * models.p[a][b];
      pair_law[a * kVocabSize + b] = both;
      for (int32_t third = 0; third < kVocabSize; ++third) {
        class_law[class_of(a, b, third)] += both * models.p[b][third];
      }
    }
  }
  for (int batch = 0; batch < num_batches; ++batch) {
    for (const DraftedTexts::Text& text : texts.NextBatch()) {
      ++classes[class_of(text[0], text[1], text[2])];
      ++pairs[text[0] * kVocabSize + text[1]];
    }
  }
  Check(c.name + ", three tokens in 8 classes", classes, class_law, 0.055);
  Check(c.name + ", two tokens", pairs, pair_law, 0.055);
  MESSAGE(c.name, ": ", texts.accepted_per_round(), " of 3 drafts accepted");
}

TEST_SUITE("statistical") {
  TEST_CASE("the test notices a law that is off by its visible effect") {
    std::mt19937_64 random(34);
    std::vector<int64_t> counts(64);
    std::vector<double> law(64, 1.0 / 64);
    for (int n = 0; n < 40000; ++n) ++counts[random() % 64];
    ChiSquare test = TestCounts(counts, law);
    CHECK(test.Fits());
    for (int i = 0; i < 64; ++i) law[i] *= i % 2 == 0 ? 1 + 2 * test.visible_effect : 1;
    for (int i = 0; i < 64; ++i) law[i] -= i % 2 == 1 ? 2 * test.visible_effect / 64 : 0;
    test = TestCounts(counts, law);
    CHECK_FALSE(test.Fits());
    law[5] = 0;
    CHECK(TestCounts(counts, law).impossible);
  }

  TEST_CASE("SampleDraft and verify, real keys") {
    const Models models({}, {});
    for (const Case& c :
         {Case{"exact_match", VerifyMethod::kExactMatch}, Case{"token", VerifyMethod::kToken},
          Case{"token, one-hot", VerifyMethod::kToken, true}, Case{"block", VerifyMethod::kBlock},
          Case{"block, side channel", VerifyMethod::kBlock, false, true}}) {
      CheckJointLaw(c, models, 400);
    }
  }

  TEST_CASE("with filters on the target and others on the drafter") {
    const Models models({.min_p = 0.02, .top_k = 30, .top_p = 0.9}, {.top_k = 20, .joint = true});
    for (const Case& c : {Case{"token, side channel", VerifyMethod::kToken, false, true},
                          Case{"block", VerifyMethod::kBlock}}) {
      CheckJointLaw(c, models, 240);
    }
  }

  TEST_CASE(
      "the same counts do not fit the drafter's law, nor the target's at another temperature") {
    const Models models({}, {});
    DraftedTexts texts = TextsOf(models, {"block", VerifyMethod::kBlock});
    std::vector<int64_t> counts(kVocabSize);
    for (int batch = 0; batch < 40; ++batch) {
      for (const DraftedTexts::Text& text : texts.NextBatch()) ++counts[text[0]];
    }
    CHECK(TestCounts(counts, models.p[kVocabSize]).Fits());
    const std::vector<double> other = *oracle::Softmax(oracle::LogOf(models.p[kVocabSize]), 1.1);
    CHECK_FALSE(TestCounts(counts, other).Fits());
  }
}

}  // namespace
}  // namespace specd
