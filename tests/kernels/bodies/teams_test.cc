// Every primitive of a team: as team.h defines it, and the same bits in the scalar and the emulated
// team. simd_team_test.cc has the teams over vectors, and conformance_test.cc whole rounds under
// many schedules.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/scalar_team.h"
#include "tests/gpu/emulation/emulated_block.h"
#include "tests/kernels/bodies/team_facts.h"
#include "tests/support/grid_size.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

using Scalar = ScalarTeam<CpuTarget::kBaseline>;
constexpr int32_t kBlockSizes[] = {32, 64, 96};
constexpr int32_t kVocabSizes[] = {1,   7,    8,    9,    31,   33,           255,
                                   256, 1000, 2047, 2048, 3000, 2 * kTileSize};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// The facts of one thread of an emulated warp, which all of the warp's threads have to find.
struct LaneFacts {
  void Add(const char* label, uint64_t bits) {
    facts.push_back({label, bits});
    ++count;
  }
  TeamMemory* memory() { return of_warp; }

  TeamMemory* of_warp = nullptr;
  int32_t count = 0;
  std::vector<TeamFact> facts = {};
};

void CheckSame(const LaneFacts& found, const LaneFacts& expected) {
  REQUIRE(found.facts.size() == expected.facts.size());
  for (size_t i = 0; i < found.facts.size(); ++i) {
    if (found.facts[i].bits == expected.facts[i].bits) continue;
    FAIL("fact " << i << ", " << expected.facts[i].label << ": " << found.facts[i].bits
                 << " and not " << expected.facts[i].bits);
  }
}

struct WeightBelow {
  float max;
  template <typename Value>
  SPECD_INLINE Value operator()(Value x) const {
    return Exp2((x - max) * 1.25f);
  }
};
struct Equals {
  float value;
  SPECD_INLINE bool operator()(float x) const { return x == value; }
};

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

// `needed`: the steps of a tile in which two masks leave an id, which a team has to read. `bits`:
// the steps in which both masks have a bit; a team need read no others. The second mask may be
// null.
struct MaskedSteps {
  uint32_t needed = 0;
  uint32_t bits = 0;

  MaskedSteps(const uint32_t* mask, const uint32_t* other, int32_t first_id, int32_t count) {
    uint32_t with_bits[2] = {};
    for (int32_t e = 0; e < count; ++e) {
      const int32_t id = first_id + e;
      const uint32_t step = 1u << (e / kLanes);
      const uint32_t words[2] = {mask != nullptr ? mask[id / 32] : ~0u,
                                 other != nullptr ? other[id / 32] : ~0u};
      if (((words[0] & words[1]) >> id % 32 & 1) != 0) needed |= step;
      for (int i = 0; i < 2; ++i) with_bits[i] |= words[i] != 0 ? step : 0;
    }
    bits = with_bits[0] & with_bits[1];
  }
};

// Exactly the words of a row, so AddressSanitizer finds a read of more.
std::vector<uint32_t> RandomMask(std::mt19937_64& random, int32_t vocab_size) {
  std::vector<uint32_t> words((vocab_size + 31) / 32);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  // Some steps are allowed as a whole, or not at all.
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t of_step = (i / (kLanes / 32)) * 7 % 5;
    if (of_step < 2) words[i] = of_step == 0 ? 0 : ~0u;
  }
  return words;
}

TEST_SUITE("unit") {
  TEST_CASE("primitives of the scalar and the emulated team agree bit for bit") {
    std::mt19937_64 random(10);
    int64_t num_cases = 0;  // rotates types and block sizes past the contents
    const int step = GridSize({.full = 1, .sanitized = 2});
    for (const int32_t vocab_size : kVocabSizes) {
      for (int content = 0; content < kNumContents; content += step) {
        const DType dtype = kDTypes[num_cases % 3];
        const int32_t num_threads = kBlockSizes[(num_cases / kNumContents + content) % 3];
        ++num_cases;
        CAPTURE(vocab_size);
        CAPTURE(content);
        CAPTURE(num_threads);
        RowMatrix rows({.dtype = dtype, .vocab_size = vocab_size, .num_rows = 2, .padding = 3});
        const auto p = rows.Set(0, RowOf(static_cast<Content>(content), random, vocab_size));
        rows.Set(1, RowOf(static_cast<Content>(content), random, vocab_size));
        const std::vector<uint32_t> mask = RandomMask(random, vocab_size);
        const std::vector<uint32_t> other = RandomMask(random, vocab_size);
        TeamQuestions ask;
        ask.p = rows.row(0);
        ask.q = rows.row(1);
        for (ask.tile_index = 0; ask.tile_index < NumTiles(vocab_size); ++ask.tile_index) {
          const int32_t first = ask.tile_index * kTileSize;
          const int32_t count = std::min(vocab_size - first, kTileSize);
          ask.set_element = static_cast<int32_t>(random() % count);
          ask.keep_last = static_cast<int32_t>(random() % count);
          ask.keep_value = static_cast<float>(p[first + ask.keep_last]);
          ask.threshold = ask.keep_value;
          ask.mask = random() % 4 == 0 ? nullptr : mask.data();
          ask.other_mask = random() % 2 == 0 ? nullptr : other.data();
          ask.steps = random() % 2 == 0 ? kAllSteps : static_cast<uint32_t>(random()) & kAllSteps;
          const MaskedSteps steps(ask.mask, ask.other_mask, first, count);
          const bool is_masked = ask.mask != nullptr || ask.other_mask != nullptr;
          // Steps after the row's end may be left or not, with a mask as without one.
          const uint32_t inside = (1u << (count + kLanes - 1) / kLanes) - 1;
          ask.counted_steps = (steps.needed | (is_masked ? ~steps.bits : 0)) & inside;
          std::vector<TeamMemory> memory(num_threads / 32 + 1);
          LaneFacts expected{&memory.back()};
          Scalar scalar;
          FindTeamFacts(scalar, ask, &expected);
          std::vector<LaneFacts> lanes(num_threads);
          const std::string error = RunEmulatedBlock(
              {.num_threads = num_threads, .schedule_seed = random()}, [&](EmulatedThread thread) {
                EmulatedTeam team(thread);
                LaneFacts& mine = lanes[thread.warp() * 32 + thread.lane()];
                mine.of_warp = &memory[thread.warp()];
                FindTeamFacts(team, ask, &mine);
              });
          REQUIRE(error == "");
          for (const LaneFacts& lane : lanes) CheckSame(lane, expected);
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
