// Every primitive of a team: as team.h defines it, and the same bits in every team. Whole
// verifications under many schedules are in schedules_test.cc.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/bodies/team.h"
#include "kernels/cpu/scalar_team.h"
#include "tests/gpu/emulation/emulated_block.h"
#include "tests/kernels/bodies/element_functions.h"
#include "tests/kernels/cuda/mask_cases.h"
#include "tests/support/grid_size.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

using Scalar = ScalarTeam<CpuTarget::kBaseline>;
constexpr int32_t kBlockSizes[] = {32, 64, 128, 256, 1024};
constexpr int32_t kVocabSizes[] = {1,   7,    8,    9,    31,   33,           255,
                                   256, 1000, 2047, 2048, 3000, 2 * kTileSize};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// A case for one tile of two rows.
struct TileCase {
  RowView p;
  RowView q;
  int32_t tile;
  const uint32_t* mask;
  const uint32_t* other_mask;  // or null
  int32_t set;                 // an element
  int32_t last;                // an element, and
  float kept;                  // its value
  bool finite;                 // no NaN and no +inf: weights mean something
  int32_t num_writes;
  uint32_t steps = kAllSteps;

  int32_t count() const { return std::min(p.vocab_size - tile * kTileSize, kTileSize); }
};

// Every fact that a group finds about a case, as bits, and the values that it wrote for all its
// threads.
struct Facts {
  std::vector<uint64_t> returned;
  std::vector<float> values = std::vector<float>(kTileSize);
  std::vector<TokenId> ids = std::vector<TokenId>(kTileSize);
  std::vector<float> stored = std::vector<float>(kTileSize);
  std::vector<float> peaks = std::vector<float>(kStepsPerTile);  // anything if there is a NaN

  Facts() {
    std::memset(values.data(), kPoison, values.size() * sizeof(float));
    std::memset(ids.data(), kPoison, ids.size() * sizeof(TokenId));
    std::memset(stored.data(), kPoison, stored.size() * sizeof(float));
  }
  bool SameMemory(const Facts& other, bool with_peaks) const {
    if (with_peaks && peaks != other.peaks) return false;
    return std::memcmp(values.data(), other.values.data(), kTileSize * sizeof(float)) == 0 &&
           ids == other.ids &&
           std::memcmp(stored.data(), other.stored.data(), kTileSize * sizeof(float)) == 0;
  }
};

// These questions are allowed of a tile that holds anything, NaN included.
template <Team T>
void AddOrderFacts(T& team, const TileCase& c, const typename T::Tile& tile,
                   std::vector<uint64_t>& facts) {
  facts.push_back(BitsOf(team.Max(Identity{}, tile)));
  facts.push_back(static_cast<uint32_t>(team.FindFirst(Equals{c.kept}, tile)));
  facts.push_back(static_cast<uint32_t>(team.Count(Equals{c.kept}, tile)));
  facts.push_back(static_cast<uint32_t>(team.Count(AtMost{c.kept}, tile)));
  facts.push_back(static_cast<uint32_t>(team.Count(Equals{-kInfinity}, tile)));
}

void AddPlace(const PrefixPlace& place, std::vector<uint64_t>& facts) {
  facts.push_back(static_cast<uint32_t>(place.element));
  facts.push_back(place.before);
  facts.push_back(place.weight);
}

// Sums and prefixes. REQUIRES: the tiles hold neither NaN nor +inf.
template <Team T>
void AddWeightFacts(T& team, const typename T::Tile& p, const typename T::Tile& q,
                    std::vector<uint64_t>& facts) {
  const float max = team.Max(Identity{}, p);
  if (max == -kInfinity) return;
  const WeightBelow weight{max};
  facts.push_back(BitsOf(team.Sum(weight, p)));
  const uint64_t total = team.SumWeights(weight, 0, p);
  facts.push_back(total);
  for (const uint64_t threshold : {uint64_t{0}, total / 3, total - 1, total}) {
    AddPlace(team.FindPrefix(weight, 0, threshold, p), facts);
  }
  const DifferenceOfWeights residual{weight, {team.Max(Identity{}, q)}};
  if (residual.q.max == -kInfinity) return;
  facts.push_back(BitsOf(team.Sum(residual, p, q)));
  const float largest = team.Max(residual, p, q);
  facts.push_back(BitsOf(largest));
  const uint64_t rest = team.SumWeights(residual, ExponentOf(largest), p, q);
  facts.push_back(rest);
  AddPlace(team.FindPrefix(residual, ExponentOf(largest), rest / 2, p, q), facts);
  facts.push_back(std::bit_cast<uint64_t>(team.SumInOrder(residual, p, q)));
}

// `memory` belongs to the group; each thread has `facts` of its own.
template <Team T>
void FindFacts(T& team, const TileCase& c, Facts& memory, std::vector<uint64_t>& facts) {
  typename T::Tile p;
  typename T::Tile q;
  team.Load(c.p, c.tile, c.steps, Identity{}, &p);
  team.Load(c.q, c.tile, kAllSteps, Bent{}, &q);
  facts.push_back(BitsOf(team.MaxBySteps(p, memory.peaks.data())));
  AddOrderFacts(team, c, p, facts);
  AddOrderFacts(team, c, q, facts);
  if (c.finite) AddWeightFacts(team, p, q, facts);
  const typename T::Mask mask = team.MaskOf(c.mask, c.other_mask, c.q.vocab_size, c.tile);
  const MaskedSteps steps(c.mask, c.other_mask, c.tile * kTileSize, c.count());
  const bool is_masked = c.mask != nullptr || c.other_mask != nullptr;
  facts.push_back(team.StepsLeft(mask) & steps.needed);
  facts.push_back(is_masked ? team.StepsLeft(mask) & ~steps.bits : 0);
  team.ApplyMask(mask, &q);
  AddOrderFacts(team, c, q, facts);
  if (c.finite) AddWeightFacts(team, q, p, facts);
  team.Set(c.set, 2.5f, &p);
  AddOrderFacts(team, c, p, facts);
  const auto written = [&](int32_t i) {
    const int32_t element = c.set / 2 + 2 * i * kTileSize / c.num_writes;
    return element < c.count() ? element : kTileSize + i;
  };
  team.SetEach(
      0, c.num_writes, written, [&](int32_t i) { return c.kept + static_cast<float>(i % 3); }, &p);
  AddOrderFacts(team, c, p, facts);
  team.Keep(c.kept, c.last, &p);
  AddOrderFacts(team, c, p, facts);
  if (c.finite) AddWeightFacts(team, p, q, facts);
  facts.push_back(static_cast<uint32_t>(
      team.Pack(AtMost{c.kept}, q, 100, memory.values.data(), memory.ids.data())));
  team.Store(Identity{}, p, c.count() - c.count() / 5, memory.stored.data());
  team.Sync();
}

enum Content { kPlain, kWithNan, kWithInfinities, kTies, kNothing, kNumContents };

std::vector<double> RowOf(Content content, std::mt19937_64& random, int32_t vocab_size) {
  std::vector<double> row = RandomLogits(random, vocab_size);
  const auto place = [&] { return random() % row.size(); };
  const double few[] = {-1.0, -0.0, 0.0, -2.0, -INFINITY};
  switch (content) {
    case kWithNan:
      for (int i = 0; i < 3; ++i) row[place()] = NAN;
      break;
    case kWithInfinities:
      for (int i = 0; i < 3; ++i) row[place()] = INFINITY;
      for (int i = 0; i < 3; ++i) row[place()] = -INFINITY;
      break;
    case kTies:
      for (double& x : row) x = few[random() % 5];
      break;
    case kNothing:
      std::fill(row.begin(), row.end(), -INFINITY);
      break;
    default:
      break;
  }
  return row;
}

TEST_SUITE("unit") {
  TEST_CASE("primitives of the scalar and the emulated team agree bit for bit") {
    std::mt19937_64 random(10);
    int64_t num_cases = 0;  // rotates types and block sizes past the contents
    const int step = GridSize({.full = 1, .sanitized = 2});
    for (const int32_t vocab_size : kVocabSizes) {
      for (int content = 0; content < kNumContents; content += step) {
        const DType dtype = kDTypes[num_cases % 3];
        const int32_t num_threads = kBlockSizes[(num_cases / kNumContents + content) % 5];
        ++num_cases;
        CAPTURE(vocab_size);
        CAPTURE(content);
        CAPTURE(num_threads);
        RowMatrix rows({.dtype = dtype, .vocab_size = vocab_size, .num_rows = 2, .padding = 3});
        const auto p = rows.Set(0, RowOf(static_cast<Content>(content), random, vocab_size));
        rows.Set(1, RowOf(static_cast<Content>(content), random, vocab_size));
        const std::vector<uint32_t> mask = RandomMask(random, vocab_size);
        const std::vector<uint32_t> other = RandomMask(random, vocab_size);
        TileCase c;
        c.p = rows.row(0);
        c.q = rows.row(1);
        c.finite = content != kWithNan && content != kWithInfinities;
        for (c.tile = 0; c.tile < NumTiles(vocab_size); ++c.tile) {
          c.set = static_cast<int32_t>(random() % c.count());
          c.last = static_cast<int32_t>(random() % c.count());
          c.kept = static_cast<float>(p[c.tile * kTileSize + c.last]);
          c.mask = random() % 4 == 0 ? nullptr : mask.data();
          c.other_mask = random() % 2 == 0 ? nullptr : other.data();
          c.num_writes = static_cast<int32_t>(random() % 200);
          c.steps = random() % 2 == 0 ? kAllSteps : static_cast<uint32_t>(random()) & kAllSteps;
          Scalar scalar;
          Facts expected;
          FindFacts(scalar, c, expected, expected.returned);

          std::vector<Facts> warps(num_threads / 32);
          std::vector<std::vector<uint64_t>> facts(num_threads);
          const std::string error = RunEmulatedBlock(
              {.num_threads = num_threads, .schedule_seed = random()}, [&](EmulatedThread thread) {
                EmulatedTeam team(thread);
                FindFacts(team, c, warps[thread.warp()], facts[thread.warp() * 32 + thread.lane()]);
              });
          REQUIRE(error == "");
          for (const auto& of_thread : facts) REQUIRE(of_thread == expected.returned);
          for (const Facts& warp : warps) REQUIRE(warp.SameMemory(expected, content != kWithNan));
        }
      }
    }
  }

  TEST_CASE("load, mask, set, keep, count, pack and store do what team.h says") {
    std::mt19937_64 random(14);
    for (const int32_t vocab_size : kVocabSizes) {
      CAPTURE(vocab_size);
      RowMatrix rows({.vocab_size = vocab_size, .num_rows = 1});
      const std::vector<double> row = rows.Set(0, RowOf(kTies, random, vocab_size));
      const std::vector<uint32_t> mask = RandomMask(random, vocab_size);
      const std::vector<uint32_t> other = RandomMask(random, vocab_size);
      for (int32_t t = 0; t < NumTiles(vocab_size); ++t) {
        const int32_t first = t * kTileSize;
        const int32_t count = std::min(vocab_size - first, kTileSize);
        const auto set = static_cast<int32_t>(random() % count);
        const auto last = static_cast<int32_t>(random() % count);
        const uint32_t steps = static_cast<uint32_t>(random()) | 1u << (set / kLanes);
        // SetEach writes the first of these elements. The others are ids of later tiles, which it
        // skips.
        std::vector<int32_t> written;
        for (int32_t e = 0; e < count; ++e) {
          if (e != set && random() % 20 == 0) written.push_back(e);
        }
        const size_t num_written = written.size();
        for (int32_t i = 0; i < 3; ++i) written.push_back(kTileSize + i * kTileSize);
        std::vector<float> by_writes(count, -1);
        for (size_t i = 0; i < num_written; ++i) by_writes[written[i]] = static_cast<float>(i % 5);
        const bool with_other = random() % 2 == 0;
        std::vector<float> kept_values;
        std::vector<TokenId> kept_ids;
        std::vector<float> whole;
        std::vector<float> peaks(kStepsPerTile, -INFINITY);
        int32_t num_loaded = 0;
        for (int32_t e = 0; e < count; ++e) {
          if ((steps >> (e / kLanes) & 1) == 0) {
            whole.push_back(-INFINITY);
            continue;
          }
          ++num_loaded;
          float x = static_cast<float>(row[first + e]) + 1;
          if ((mask[(first + e) / 32] >> (first + e) % 32 & 1) == 0) x = -INFINITY;
          if (with_other && (other[(first + e) / 32] >> (first + e) % 32 & 1) == 0) x = -INFINITY;
          if (by_writes[e] >= 0) x = by_writes[e];
          if (e == set) x = 7;
          if (x < 0 || (x == 0 && e > last)) x = -INFINITY;
          whole.push_back(x);
          peaks[e / kLanes] = std::max(peaks[e / kLanes], x);
          if (x == -INFINITY) continue;
          kept_values.push_back(x);
          kept_ids.push_back(first + e);
        }
        struct PlusOne {
          SPECD_INLINE float operator()(float x) const { return x + 1; }
        };
        struct AboveNothing {
          SPECD_INLINE bool operator()(float x) const { return x > -kInfinity; }
        };
        Scalar team;
        Scalar::Tile tile;
        team.Load(rows.row(0), t, steps & kAllSteps, PlusOne{}, &tile);
        const uint32_t* const others = with_other ? other.data() : nullptr;
        const Scalar::Mask both = team.MaskOf(mask.data(), others, vocab_size, t);
        const MaskedSteps masked(mask.data(), others, first, count);
        CHECK((team.StepsLeft(both) & masked.needed) == masked.needed);
        CHECK((team.StepsLeft(both) & ~masked.bits) == 0);
        team.ApplyMask(both, &tile);
        team.Set(set, 7, &tile);
        team.SetEach(
            0, static_cast<int32_t>(written.size()), [&](int32_t i) { return written[i]; },
            [&](int32_t i) { return static_cast<float>(i % 5); }, &tile);
        // A step that was not loaded cannot be set.
        for (int32_t s = 0; s < kStepsPerTile; ++s) {
          if ((steps >> s & 1) == 0) team.Set(s * kLanes + 3, 9, &tile);
        }
        team.Keep(0, last, &tile);
        CHECK(team.Count(AboveNothing{}, tile) == static_cast<int32_t>(kept_ids.size()));
        CHECK(team.Count(Equals{-kInfinity}, tile) ==
              num_loaded - static_cast<int32_t>(kept_ids.size()));
        std::vector<float> values(kept_ids.size());
        std::vector<TokenId> ids(kept_ids.size());
        CHECK(team.Pack(AboveNothing{}, tile, first, values.data(), ids.data()) ==
              static_cast<int32_t>(kept_ids.size()));
        CHECK(values == kept_values);
        CHECK(ids == kept_ids);
        std::vector<float> found_peaks(kStepsPerTile);
        const float largest = *std::max_element(peaks.begin(), peaks.end());
        CHECK(team.MaxBySteps(tile, found_peaks.data()) == largest);
        CHECK(found_peaks == peaks);
        std::vector<float> stored(count);
        team.Store(Identity{}, tile, count, stored.data());
        CHECK(stored == whole);
      }
    }
  }

  // A tile that is the row itself must not be written through.
  TEST_CASE("changing a tile leaves the row alone") {
    RowMatrix rows({.vocab_size = kTileSize, .num_rows = 1});
    rows.Set(0, std::vector<double>(kTileSize, 1.0));
    const std::vector<uint32_t> mask(kTileSize / 32, 0);
    Scalar team;
    Scalar::Tile tile;
    for (int change = 0; change < 3; ++change) {
      team.Load(rows.row(0), 0, kAllSteps, Identity{}, &tile);
      if (change == 0) {
        team.ApplyMask(team.MaskOf(mask.data(), nullptr, kTileSize, 0), &tile);
      }
      if (change == 1) team.Set(5, 9, &tile);
      if (change == 2) team.Keep(2, 0, &tile);
      team.Load(rows.row(0), 0, kAllSteps, Identity{}, &tile);
      CHECK(team.Count(Equals{1}, tile) == kTileSize);
    }
  }

  // The sum as CONTRACT §9 spells it, which neither team spells that way.
  TEST_CASE("the sum of a tile follows the canonical order") {
    std::mt19937_64 random(11);
    for (const int32_t vocab_size : {1, 300, 2000, 2048}) {
      RowMatrix rows({.vocab_size = vocab_size, .num_rows = 1});
      const std::vector<double> logits = rows.Set(0, RandomLogits(random, vocab_size, 4.0));
      float lanes[256] = {};
      for (int32_t v = 0; v < 256; ++v) {
        for (int32_t e = v; e < kTileSize; e += 256) {
          lanes[v] += e < vocab_size ? Exp2((float(logits[e]) - 9.0f) * 1.25f) : 0.0f;
        }
      }
      for (int k = 0; k < 8; ++k) {
        float next[256];
        for (int v = 0; v < 256; ++v) next[v] = lanes[v] + lanes[v ^ (1 << k)];
        std::memcpy(lanes, next, sizeof(lanes));
      }
      Scalar team;
      Scalar::Tile tile;
      team.Load(rows.row(0), 0, kAllSteps, Identity{}, &tile);
      CHECK(BitsOf(team.Sum(WeightBelow{9.0f}, tile)) == BitsOf(lanes[0]));
      CHECK(BitsOf(team.Sum(WeightBelow{9.0f}, tile)) == BitsOf(lanes[255]));
      double in_order = 0;
      for (const double l : logits) in_order += Exp2((float(l) - 9.0f) * 1.25f);
      CHECK(team.SumInOrder(WeightBelow{9.0f}, tile) == in_order);
    }
  }
}

}  // namespace
}  // namespace specd
