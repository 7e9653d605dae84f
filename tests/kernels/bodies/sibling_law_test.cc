// The joint law of the first tokens of a text whose drafts are trees: SampleDraft draws the
// siblings in each of its ways with the keys of the contract, and the tree methods verify them. The
// counts are compared with the target's law (CONTRACT §10, "Statistical").
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

constexpr int32_t kVocabSize = 5;
constexpr size_t kLength = 2;

// First-order models: the row of a place depends on the token before it; row V is the beginning.
struct Models {
  explicit Models(bool with_filters)
      : target({.vocab_size = kVocabSize, .num_rows = kVocabSize + 1}), draft(target) {
    const oracle::Truncation truncation{.top_k = with_filters ? 3 : 0};
    std::mt19937_64 random(81);
    std::normal_distribution<double> normal(0, 0.7);
    const auto logits = [&] {
      std::vector<double> row(kVocabSize);
      for (double& x : row) x = normal(random);
      return row;
    };
    for (int32_t row = 0; row <= kVocabSize; ++row) {
      p.push_back(*oracle::Distribution(target.Set(row, logits()), {}, 1, {}));
      draft.Set(row, logits());
    }
    draft_filters = FiltersOf(truncation);
  }
  RowMatrix target;
  RowMatrix draft;
  Filters draft_filters;
  std::vector<oracle::Probabilities> p;
};

// Texts of two tokens; the drafts are trees of two levels, of three siblings each.
DraftedTexts TextsOf(const Models& models, VerifyMethod method, DraftSampling sampling,
                     bool side_channel = false, bool sorts = false) {
  return DraftedTexts(models.target, models.draft,
                      {.method = method,
                       .sampling = sampling,
                       .widths = {3, 3},
                       .length = kLength,
                       .draft_filters = models.draft_filters,
                       .side_channel = side_channel,
                       .sorts = sorts});
}

// How often each pair of first tokens came.
std::vector<int64_t> Count(DraftedTexts& texts, int num_batches) {
  std::vector<int64_t> counts(kVocabSize * kVocabSize);
  for (int batch = 0; batch < num_batches; ++batch) {
    for (const DraftedTexts::Text& text : texts.NextBatch()) {
      ++counts[size_t(text[0] * kVocabSize + text[1])];
    }
  }
  return counts;
}

ChiSquare Compare(const Models& models, DraftedTexts& texts, int num_batches) {
  std::vector<double> law;
  for (int32_t first = 0; first < kVocabSize; ++first) {
    for (int32_t second = 0; second < kVocabSize; ++second) {
      law.push_back(models.p[kVocabSize][size_t(first)] * models.p[size_t(first)][size_t(second)]);
    }
  }
  return TestCounts(Count(texts, num_batches), law);
}

TEST_SUITE("statistical") {
  TEST_CASE("siblings that SampleDraft drew in any way: the joint law is the target's") {
    const std::string names[] = {"with", "without", "top", "mixed"};
    double accepted[4] = {};
    for (const bool with_filters : {false, true}) {
      const Models models(with_filters);
      for (int32_t way = 0; way < 4; ++way) {
        for (const VerifyMethod method : {VerifyMethod::kTree, VerifyMethod::kTraversal}) {
          DraftedTexts texts = TextsOf(models, method, static_cast<DraftSampling>(way));
          const ChiSquare test = Compare(models, texts, 100);
          accepted[way] = texts.accepted_per_round();
          MESSAGE(names[way], ", method ", static_cast<int>(method), ": chi-square ",
                  test.statistic, " with ", test.degrees_of_freedom, " degrees of freedom (limit ",
                  test.critical, "), visible effect ", test.visible_effect, ", accepted ",
                  accepted[way]);
          CHECK(test.Fits());
          CHECK(test.visible_effect < 0.04);
        }
      }
    }
    CHECK(accepted[3] > accepted[0]);  // mixed siblings keep more than independent ones
  }

  TEST_CASE("the side channel of SampleDraft's siblings: the texts are those of the rows") {
    for (const bool with_filters : {false, true}) {
      const Models models(with_filters);
      for (int32_t way = 0; way < 4; ++way) {
        for (const VerifyMethod method : {VerifyMethod::kTree, VerifyMethod::kTraversal}) {
          CAPTURE(way);
          const auto sampling = static_cast<DraftSampling>(way);
          DraftedTexts by_rows = TextsOf(models, method, sampling);
          DraftedTexts by_numbers = TextsOf(models, method, sampling, true);
          CHECK(Count(by_numbers, 20) == Count(by_rows, 20));
          CHECK(by_numbers.accepted_per_round() == by_rows.accepted_per_round());
        }
      }
    }
  }

  TEST_CASE("equal siblings that are moved together make the law wrong") {
    const Models models(false);
    DraftedTexts texts =
        TextsOf(models, VerifyMethod::kTree, DraftSampling::kWithReplacement, false, true);
    CHECK_FALSE(Compare(models, texts, 400).Fits());
  }
}

}  // namespace
}  // namespace specd
