// The length of a draft from earlier rounds: the law of the text by enumeration, and the best
// length by brute force.
#include "speculative/drafts/draft_length.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "kernels/core/types.h"
#include "tools/oracle/oracle.h"

namespace specd {
namespace {

using oracle::Probabilities;
using Text = std::vector<int>;

constexpr int kVocab = 3;
constexpr size_t kLength = 4;

// Rows that depend on the token before.
struct Models {
  explicit Models(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto row = [&] {
      Probabilities law;
      double sum = 0;
      for (int v = 0; v < kVocab; ++v) sum += law.emplace_back(0.05 + double(random() % 97) / 97);
      for (double& x : law) x /= sum;
      return law;
    };
    for (int v = 0; v <= kVocab; ++v) {
      p.push_back(row());
      q.push_back(row());
    }
  }
  static size_t At(const Text& text) { return text.empty() ? kVocab : size_t(text.back()); }
  std::vector<Probabilities> p;
  std::vector<Probabilities> q;
};

// The law of the first kLength tokens. Each round has coins of its own (CONTRACT §4), so its
// outcomes are summed over.
class TextLaw {
 public:
  // The length of the next draft, from the rule and from the first draft token; a right engine
  // does not know the token.
  using Length = std::function<int32_t(const DraftLength& rule, int first_token)>;

  TextLaw(const Models& models, VerifyMethod method, Length length)
      : models_(models), method_(method), length_(std::move(length)) {
    Follow({}, DraftLength({.max_length = 3, .memory = 2, .step_cost = 0.35}), 1);
  }

  double DistanceToTarget() const {
    double distance = 0;
    for (const auto& [text, probability] : law_) {
      double wanted = 1;
      for (size_t i = 0; i < text.size(); ++i) {
        const Text before(text.begin(), text.begin() + int64_t(i));
        wanted *= models_.p[Models::At(before)][size_t(text[i])];
      }
      distance += std::abs(probability - wanted) / 2;
    }
    return distance;
  }

  std::set<int32_t> lengths;

 private:
  void Follow(const Text& text, const DraftLength& rule, double probability) {
    if (text.size() >= kLength) {
      law_[Text(text.begin(), text.begin() + kLength)] += probability;
      return;
    }
    for (int first = 0; first < kVocab; ++first) {
      const int32_t length = length_(rule, first);
      lengths.insert(length);
      const double drawn = models_.q[Models::At(text)][size_t(first)];
      if (length == 0) {
        Verify(text, {}, rule, probability * drawn);
      } else {
        Draw(text, {first}, length, rule, probability * drawn);
      }
    }
  }

  void Draw(const Text& text, const Text& draft, int32_t length, const DraftLength& rule,
            double probability) {
    if (std::ssize(draft) == length) return Verify(text, draft, rule, probability);
    for (int x = 0; x < kVocab; ++x) {
      Text longer = draft;
      longer.push_back(x);
      Draw(text, longer, length, rule, probability * models_.q[Models::At(draft)][size_t(x)]);
    }
  }

  void Verify(const Text& text, const Text& draft, const DraftLength& rule, double probability) {
    std::vector<Probabilities> p;
    std::vector<Probabilities> q;
    Text context = text;
    for (size_t i = 0; i <= draft.size(); ++i) {
      p.push_back(models_.p[Models::At(context)]);
      if (i == draft.size()) break;
      q.push_back(models_.q[Models::At(context)]);
      context.push_back(draft[i]);
    }
    const oracle::Block block = oracle::BlockOf(p, q, draft);
    double left = 1;  // block: of the coins for longer drafts; token: of those before
    for (size_t n = 0; n <= draft.size(); ++n) {
      const size_t i = method_ == VerifyMethod::kBlock ? draft.size() - n : n;
      double stands = 1;  // exactly i draft tokens
      if (method_ == VerifyMethod::kBlock) {
        stands = left * block.accept[i];
        left -= stands;
      } else if (i < draft.size()) {
        const double accept = oracle::AcceptProbability(p[i], q[i], draft[i]);
        stands = left * (1 - accept);
        left *= accept;
      } else {
        stands = left;
      }
      if (stands <= 0) continue;
      const double a = method_ == VerifyMethod::kBlock ? block.path[i] : 1;
      const Probabilities last = i == draft.size() ? p[i] : *oracle::Residual(p[i], q[i], a);
      DraftLength after = rule;
      after.Observe(int32_t(draft.size()), int32_t(i));
      for (int y = 0; y < kVocab; ++y) {
        Text next = text;
        next.insert(next.end(), draft.begin(), draft.begin() + int64_t(i));
        next.push_back(y);
        Follow(next, after, probability * stands * last[size_t(y)]);
      }
    }
  }

  const Models& models_;
  const VerifyMethod method_;
  const Length length_;
  std::map<Text, double> law_;
};

int32_t ByRule(const DraftLength& rule, int) { return rule.Next(); }

TEST_SUITE("exact") {
  TEST_CASE(
      "drafts whose length follows from earlier rounds: the law of the text is the target's") {
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        const Models models(seed);
        const TextLaw law(models, method, ByRule);
        CHECK(law.DistanceToTarget() < 1e-12);
        CHECK(law.lengths.size() >= 2);  // the rule does choose
        // A drafter that looks at a token before it says how long the draft is.
        const TextLaw peeks(models, method, [](const DraftLength& rule, int first) {
          return first == 0 ? 0 : rule.Next();
        });
        CHECK(peeks.DistanceToTarget() > 0.005);
      }
    }
  }
}

TEST_SUITE("unit") {
  TEST_CASE("the length is the one with most tokens for its time, by brute force") {
    for (const double cost : {0.0, 0.02, 0.1, 0.5}) {
      for (int accepted = 0; accepted <= 10; ++accepted) {
        CAPTURE(cost);
        CAPTURE(accepted);
        const DraftLength rule({.min_length = 1, .max_length = 12, .step_cost = cost},
                               {.judged = 1e6, .accepted = 1e5 * accepted});
        const double a = 0.1 * accepted;
        const auto rate = [&](int32_t n) {
          double tokens = 0;
          for (int32_t i = 0; i <= n; ++i) tokens += std::pow(a, i);
          return tokens / (1 + n * cost);
        };
        double best = 0;
        for (int32_t n = 1; n <= 12; ++n) best = std::max(best, rate(n));
        CHECK(rate(rule.Next()) == doctest::Approx(best).epsilon(1e-4));
      }
    }
  }

  TEST_CASE("rounds are forgotten, and a token that nobody judged does not count") {
    DraftLength rule({.memory = 4});
    for (int i = 0; i < 400; ++i) rule.Observe(1, 0);  // what was expected at first is forgotten
    const JudgedDrafts before = rule.record();
    CHECK(before.judged == doctest::Approx(4));
    CHECK(before.accepted < 1e-9);
    rule = DraftLength({.memory = 4}, {.judged = 1, .accepted = 1});
    rule.Observe(5, 2);
    CHECK(rule.record().judged == 0.75 + 3);  // two stood, and one fell
    CHECK(rule.record().accepted == 0.75 + 2);
    rule.Observe(3, 3);
    CHECK(rule.record().judged == 3.75 * 0.75 + 3);
    CHECK(rule.record().accepted == 2.75 * 0.75 + 3);
    rule.Observe(0, 0);
    CHECK(rule.record().judged == 3.75 * 0.75 + 3);
    for (int i = 0; i < 40; ++i) rule.Observe(4, 0);
    CHECK(rule.Next() == 1);
    for (int i = 0; i < 40; ++i) rule.Observe(4, 4);
    CHECK(rule.Next() > 4);
  }
}

}  // namespace
}  // namespace specd
