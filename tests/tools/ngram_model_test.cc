#include "tools/toy_engine/ngram_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tools/toy_engine/bpe_encoder.h"
#include "tools/toy_engine/corpus.h"
#include "tools/toy_engine/draft_sampler.h"

namespace specd::toy {
namespace {

using Ids = std::vector<int32_t>;

std::vector<float> RowOf(const NgramModel& model, const Ids& context, int32_t vocab_size) {
  std::vector<float> row(static_cast<size_t>(vocab_size));
  model.FillRow(context, row.data());
  return row;
}

double MassOf(const std::vector<float>& row) {
  double mass = 0.0;
  for (float l : row) mass += std::exp(static_cast<double>(l));
  return mass;
}

// The corpus of the demo.
struct Project {
  Project() {
    absl::StatusOr<BpeEncoder> loaded =
        BpeEncoder::Load(SPECD_SOURCE_DIR "/tools/toy_engine/tokenizer.json");
    absl::StatusOr<std::vector<std::string>> texts =
        ReadPassages({SPECD_SOURCE_DIR "/tools/toy_engine/corpus.txt"});
    REQUIRE(loaded.ok());
    REQUIRE(texts.ok());
    vocab_size = loaded->vocab_size();
    for (const std::string& text : *texts) passages.push_back(loaded->Encode(text));
  }

  NgramModel Model(int order) const {
    return NgramModel({.order = order, .vocab_size = vocab_size, .end_token = 0}, passages);
  }

  int32_t vocab_size = 0;
  std::vector<Ids> passages;
};

TEST_SUITE("unit") {
  // One passage "1 2 1 3" and the end token 0; V = 4, d = 0.5. Worked out from the formula in
  // ngram_model.h:
  //   base: counts 1:2 2:1 3:1 0:1 of 5, with 0.1 / 4 of the uniform distribution mixed in
  //   after 1: {2:1, 3:1}, count 2, types 2, so half of the mass goes to the base
  TEST_CASE("probabilities follow the published formula") {
    const NgramModel model({.order = 2, .vocab_size = 4, .end_token = 0, .discount = 0.5},
                           {{1, 2, 1, 3}});
    const double base[] = {0.9 * 1 / 5 + 0.025, 0.9 * 2 / 5 + 0.025, 0.9 * 1 / 5 + 0.025,
                           0.9 * 1 / 5 + 0.025};
    const std::vector<float> none = RowOf(model, {}, 4);
    const std::vector<float> after_1 = RowOf(model, {1}, 4);
    for (size_t i = 0; i < 4; ++i) {
      CHECK(std::exp(none[i]) == doctest::Approx(base[i]).epsilon(1e-6));
      const double seen = i == 2 || i == 3 ? (1 - 0.5) / 2 : 0.0;
      CHECK(std::exp(after_1[i]) == doctest::Approx(seen + 0.5 * 2 / 2 * base[i]).epsilon(1e-6));
    }
  }

  // The same passage with trigrams: "1 2" was followed by 1 once, so after it
  //   p(w) = (1 - 0.5) / 1 [w = 1] + 0.5 * p(w | 2), and p(w | 2) = 0.5 [w = 1] + 0.5 * base.
  TEST_CASE("longer contexts build on shorter ones") {
    const NgramModel model({.order = 3, .vocab_size = 4, .end_token = 0, .discount = 0.5},
                           {{1, 2, 1, 3}});
    const std::vector<float> base = RowOf(model, {}, 4);
    const std::vector<float> row = RowOf(model, {1, 2}, 4);
    for (size_t i = 0; i < 4; ++i) {
      const double after_2 = (i == 1 ? 0.5 : 0.0) + 0.5 * std::exp(base[i]);
      const double expected = (i == 1 ? 0.5 : 0.0) + 0.5 * after_2;
      CHECK(std::exp(row[i]) == doctest::Approx(expected).epsilon(1e-6));
    }
    // 3 was never followed by 2, but 2 was seen: the context is cut to what is known.
    CHECK(RowOf(model, {3, 2}, 4) == RowOf(model, {2}, 4));
  }

  TEST_CASE("contexts do not reach across passages") {
    const NgramModel model({.order = 3, .vocab_size = 4, .end_token = 0}, {{1}, {2}});
    // After 1 only the end was seen, so 2 and 3 keep the ratio they have without a context.
    const std::vector<float> none = RowOf(model, {}, 4);
    const std::vector<float> row = RowOf(model, {1}, 4);
    CHECK(row[2] - row[3] == doctest::Approx(none[2] - none[3]).epsilon(1e-6));
    CHECK(row[0] > none[0]);
  }

  TEST_CASE("without any document all ids are alike") {
    const NgramModel model({.order = 5, .vocab_size = 8}, {});
    for (float l : RowOf(model, {1, 2}, 8)) CHECK(l == doctest::Approx(-std::log(8.0)));
  }

  TEST_CASE("on the corpus every row is a distribution over all ids") {
    const Project project;
    for (int order : {1, 3, 5}) {
      const NgramModel model = project.Model(order);
      for (const Ids& passage : project.passages) {
        const Ids context(passage.begin(),
                          passage.begin() + static_cast<std::ptrdiff_t>(passage.size() / 2));
        const std::vector<float> row = RowOf(model, context, project.vocab_size);
        CHECK(MassOf(row) == doctest::Approx(1.0).epsilon(1e-4));
        CHECK(std::all_of(row.begin(), row.end(), [](float l) { return std::isfinite(l); }));
      }
    }
  }

  TEST_CASE("rows depend on the last order - 1 tokens only, bit for bit") {
    const Project project;
    const NgramModel model = project.Model(5);
    const Ids& passage = project.passages.front();
    REQUIRE(passage.size() > 8);
    const Ids context(passage.begin(), passage.begin() + 8);
    Ids other = {7, 7, 7};
    other.insert(other.end(), context.end() - 4, context.end());
    const std::vector<float> row = RowOf(model, context, project.vocab_size);
    CHECK(row == RowOf(model, other, project.vocab_size));
    CHECK(row == RowOf(project.Model(5), context, project.vocab_size));
    other[3] = passage[3] == 7 ? 8 : 7;
    CHECK(row != RowOf(model, other, project.vocab_size));
  }

  TEST_CASE("the drafter guesses the target model often enough to be worth it") {
    const Project project;
    const NgramModel target = project.Model(5);
    const NgramModel drafter = project.Model(3);
    DraftSampler sampler(1);
    Ids context = {project.passages.front().front()};
    int guessed = 0;
    constexpr int kTokens = 2000;
    for (int i = 0; i < kTokens; ++i) {
      const int32_t guess = ArgMax(RowOf(drafter, context, project.vocab_size));
      context.push_back(sampler.Draw(RowOf(target, context, project.vocab_size), 0.8));
      guessed += guess == context.back() ? 1 : 0;
    }
    CHECK(guessed > 0.3 * kTokens);
    CHECK(guessed < kTokens);  // Otherwise the demo would show no rejection.
  }
}

}  // namespace
}  // namespace specd::toy
