#include "speculative/grammar/base/char_set.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace specd::grammar {
namespace {

// One bit for each code point: the same set, without any idea of ranges.
class Model {
 public:
  void Add(uint32_t first, uint32_t last) {
    for (uint32_t c = first; c <= last; ++c) bits_[c] = bits_[c] || IsScalar(c);
  }
  bool Has(uint32_t c) const { return bits_[c]; }

  template <class Function>
  static Model Of(const Function& has) {
    Model model;
    for (uint32_t c = 0; c <= kCharMax; ++c) model.bits_[c] = IsScalar(c) && has(c);
    return model;
  }
  List<CharRange> Ranges() const {
    List<CharRange> ranges;
    for (uint32_t c = 0; c <= kCharMax; ++c) {
      if (!bits_[c]) continue;
      if (c > 0 && bits_[c - 1]) {
        ranges.back().last = c;
      } else {
        ranges.push_back({c, c});
      }
    }
    return ranges;
  }

 private:
  static bool IsScalar(uint32_t c) { return c < 0xD800 || c > 0xDFFF; }

  std::vector<bool> bits_ = std::vector<bool>(kCharMax + 1, false);
};

struct Pair {
  CharSet set;
  Model model;
};

// Ranges near each other, near the ends, and near the surrogates, so that many of them touch.
Pair RandomPair(std::mt19937* random) {
  static constexpr uint32_t kCentres[] = {0, 40, 0xD7F8, 0xDFF8, kCharMax - 12};
  const auto draw = [&](uint32_t below) { return static_cast<uint32_t>((*random)() % below); };
  Pair pair;
  for (uint32_t i = draw(10); i > 0; --i) {
    const uint32_t centre = kCentres[draw(5)];
    const uint32_t first = centre + draw(12);
    const uint32_t reach = draw(20) == 0 ? kCharMax : first + draw(9);
    const uint32_t last = std::min(reach, kCharMax);
    pair.set.Add(first, last);
    pair.model.Add(first, last);
  }
  return pair;
}

TEST_SUITE("grammar") {
  TEST_CASE("a character set and its operations are those of one bit for each code point") {
    std::mt19937 random(20);
    for (int round = 0; round < 12; ++round) {
      CAPTURE(round);
      const Pair a = RandomPair(&random);
      const Pair b = RandomPair(&random);
      const auto in_a = [&](uint32_t c) { return a.model.Has(c); };
      const auto in_b = [&](uint32_t c) { return b.model.Has(c); };
      CHECK(a.set.ranges() == a.model.Ranges());
      CHECK(a.set.Negated().ranges() == Model::Of(std::not_fn(in_a)).Ranges());
      CHECK(a.set.And(b.set).ranges() ==
            Model::Of([&](uint32_t c) { return in_a(c) && in_b(c); }).Ranges());
      CHECK(a.set.Without(b.set).ranges() ==
            Model::Of([&](uint32_t c) { return in_a(c) && !in_b(c); }).Ranges());
      CharSet both = a.set;
      both.Add(b.set);
      CHECK(both.ranges() == Model::Of([&](uint32_t c) { return in_a(c) || in_b(c); }).Ranges());
      CHECK(a.set.IsEmpty() == a.model.Ranges().empty());
      for (uint32_t c = 0; c <= kCharMax; c = c % 0x1000 == 80 ? c + 0xF80 : c + 1) {
        if (a.set.Has(c) != a.model.Has(c)) FAIL_CHECK("Has differs at ", c);
      }
    }
  }

  TEST_CASE("surrogates are in no set") {
    CHECK(CharSet::Range(0xD800, 0xDFFF).IsEmpty());
    CHECK(CharSet::One(0xDABC).IsEmpty());
    CHECK(CharSet::All().ranges() == List<CharRange>{{0, 0xD7FF}, {0xE000, kCharMax}});
    CHECK_FALSE(CharSet::All().Has(0xD800));
    CHECK_FALSE(CharSet::One('a').Negated().Has(0xDFFF));
    CHECK(CharSet::All().Negated().IsEmpty());
    CHECK(CharSet().Negated() == CharSet::All());
    CHECK(CharSet::Range(0xD7FF, 0xD900) == CharSet::One(0xD7FF));
    CHECK(CharSet::Range(0xD900, 0xE000) == CharSet::One(0xE000));
  }
}

}  // namespace
}  // namespace specd::grammar
