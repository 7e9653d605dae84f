// SimdTeam gives ScalarTeam's bits, for every instruction set that this processor has.
// teams_test.cc, numerics_test.cc and elements_test.cc settle the results of the scalar primitives.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_target.h"
#include "kernels/cpu/scalar_team.h"
#include "tests/kernels/bodies/team_facts.h"
#include "tests/support/grid_size.h"
#include "tests/support/guarded_bytes.h"

namespace specd {
namespace {

// One row of raw elements. Rows end at a guarded page, so their beginning is as misaligned as their
// length makes it.
class GuardedRow {
 public:
  GuardedRow(DType dtype, const std::vector<uint32_t>& patterns)
      : bytes_(patterns.size() * SizeBytes(dtype)) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      std::memcpy(bytes_.data() + i * SizeBytes(dtype), &patterns[i], SizeBytes(dtype));
    }
    view_.data = bytes_.data();
    view_.dtype = dtype;
    view_.vocab_size = static_cast<int32_t>(patterns.size());
  }
  const RowView& view() const { return view_; }

 private:
  GuardedBytes bytes_;
  RowView view_;
};

// The pattern of a value in a format, rounded towards zero.
uint32_t PatternOf(DType dtype, float value) {
  const uint32_t bits = BitsOf(value);
  if (dtype == DType::kFloat32) return bits;
  if (dtype == DType::kBFloat16) return bits >> 16;
  const uint32_t sign = bits >> 16 & 0x8000u;
  const float magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | 0x7C00u;
  if (magnitude < 0x1p-14f) return sign | static_cast<uint32_t>(magnitude * 0x1p24f);
  return sign | ((BitsOf(magnitude) - 0x38000000u) >> 13);
}

enum class Kind { kLogits, kWide, kZeros, kMinusInfinities, kWithNan, kWithInfinity, kAnyBits };
constexpr Kind kKinds[] = {Kind::kLogits,          Kind::kWide,    Kind::kZeros,
                           Kind::kMinusInfinities, Kind::kWithNan, Kind::kWithInfinity,
                           Kind::kAnyBits};

std::vector<uint32_t> Patterns(std::mt19937_64& random, Kind kind, DType dtype, int32_t size) {
  std::normal_distribution<float> normal(0.0f, kind == Kind::kWide ? 40.0f : 2.0f);
  std::vector<uint32_t> patterns(size);
  for (uint32_t& pattern : patterns) pattern = PatternOf(dtype, normal(random));
  const auto put = [&](float value) { patterns[random() % size] = PatternOf(dtype, value); };
  switch (kind) {
    case Kind::kLogits:
    case Kind::kWide:
      put(0.625f);
      put(0.0f);
      // The last float of one half of Log2's range, the first of the other.
      put(FloatOf(0x3F3504F2u));
      put(FloatOf(0x3F3504F3u));
      for (int i = 0; i < size / 5; ++i) put(-kInfinity);
      break;
    case Kind::kZeros:  // of both signs, and denormals
      for (uint32_t& pattern : patterns) {
        pattern = PatternOf(dtype, random() % 2 == 0 ? 0.0f : -0.0f);
        if (random() % 3 == 0) pattern |= 1 + random() % 5;
      }
      for (int i = 0; i < size / 2; ++i) put(-0.0f);
      if (random() % 2 == 0) {
        for (uint32_t& pattern : patterns) pattern &= PatternOf(dtype, -0.0f);
      }
      break;
    case Kind::kMinusInfinities:
      for (uint32_t& pattern : patterns) pattern = PatternOf(dtype, -kInfinity);
      if (random() % 2 == 0) put(1.5f);
      break;
    case Kind::kWithNan:
      patterns[random() % size] = dtype == DType::kFloat32    ? 0xFF800001u
                                  : dtype == DType::kBFloat16 ? 0x7F81u
                                                              : 0xFC01u;
      break;
    case Kind::kWithInfinity:
      put(kInfinity);
      break;
    case Kind::kAnyBits:
      for (uint32_t& pattern : patterns) pattern = static_cast<uint32_t>(random());
      break;
  }
  return patterns;
}

struct CompiledTeam {
  CpuTarget target;
  void (*find_facts)(const TeamQuestions&, TeamFacts*);
  void (*find_first_pass)(const FirstPassQuestions&, TeamFacts*);
  void (*find_residual_pass)(const ResidualQuestions&, TeamFacts*);
};
std::vector<CompiledTeam> SupportedTeams() {
  std::vector<CompiledTeam> teams;
#if defined(SPECD_HAVE_SIMD)
  if (CpuTargetIsSupported(CpuTarget::kAvx2))
    teams.push_back({CpuTarget::kAvx2, FindTeamFactsAvx2, FindFirstPassAvx2, FindResidualPassAvx2});
  if (CpuTargetIsSupported(CpuTarget::kAvx512)) {
    teams.push_back(
        {CpuTarget::kAvx512, FindTeamFactsAvx512, FindFirstPassAvx512, FindResidualPassAvx512});
  }
#endif
  return teams;
}

void CheckFacts(const TeamFacts& actual, const TeamFacts& expected) {
  REQUIRE(actual.count == expected.count);
  for (int32_t i = 0; i < expected.count; ++i) {
    if (actual.facts[i].bits == expected.facts[i].bits) continue;
    CAPTURE(i);
    CAPTURE(std::string(expected.facts[i].label));
    REQUIRE(actual.facts[i].bits == expected.facts[i].bits);
  }
}

void CheckAgainstScalar(const TeamQuestions& ask) {
  static const auto expected = std::make_unique<TeamFacts>();
  static const auto actual = std::make_unique<TeamFacts>();
  ScalarTeam<CpuTarget::kBaseline> scalar;
  FindTeamFacts(scalar, ask, expected.get());
  for (const CompiledTeam& team : SupportedTeams()) {
    CAPTURE(static_cast<int>(team.target));
    team.find_facts(ask, actual.get());
    CheckFacts(*actual, *expected);
  }
}

void CheckFirstPass(FirstPassQuestions ask) {
  static const auto expected = std::make_unique<TeamFacts>();
  static const auto actual = std::make_unique<TeamFacts>();
  FindFirstPass<ScalarTeam<CpuTarget::kBaseline>>(ask, expected.get());
  for (const CompiledTeam& team : SupportedTeams()) {
    CAPTURE(static_cast<int>(team.target));
    ask.poison -= 1001.0f;
    team.find_first_pass(ask, actual.get());
    CheckFacts(*actual, *expected);
  }
}

// The bits of the facts of one name.
std::vector<uint64_t> FactsNamed(const TeamFacts& facts, std::string_view label) {
  std::vector<uint64_t> bits;
  for (int32_t i = 0; i < facts.count; ++i) {
    if (facts.facts[i].label == label) bits.push_back(facts.facts[i].bits);
  }
  return bits;
}

void CheckResidualPass(const ResidualQuestions& ask) {
  static const auto expected = std::make_unique<TeamFacts>();
  static const auto actual = std::make_unique<TeamFacts>();
  FindResidualPass<ScalarTeam<CpuTarget::kBaseline>>(ask, expected.get());
  for (const CompiledTeam& team : SupportedTeams()) {
    CAPTURE(static_cast<int>(team.target));
    team.find_residual_pass(ask, actual.get());
    CheckFacts(*actual, *expected);
  }
}

Row RowAsItLies(const RowView& view) {
  Row row;
  row.view = view;
  return row;
}

float LargestOf(const RowView& row) {
  float largest = -kInfinity;
  for (TokenId id = 0; id < row.vocab_size; ++id) largest = std::max(largest, LoadElement(row, id));
  return largest;
}

// Tiles of all kinds in any order, and perhaps a part of one.
std::vector<uint32_t> TilePatterns(std::mt19937_64& random, DType dtype) {
  std::vector<uint32_t> patterns;
  const int32_t num_tiles = 1 + static_cast<int32_t>(random() % (kRowTilesMax - 1));
  for (int32_t t = 0; t < num_tiles; ++t) {
    const Kind kind = random() % 2 == 0 ? Kind::kLogits : kKinds[random() % std::size(kKinds)];
    const std::vector<uint32_t> tile = Patterns(random, kind, dtype, kTileSize);
    patterns.insert(patterns.end(), tile.begin(), tile.end());
  }
  if (random() % 2 == 0) patterns.resize(patterns.size() + random() % kTileSize);
  return patterns;
}

// A mask of a row. Whole steps have ways of their own, and so have few ids of a step.
std::vector<uint32_t> RandomMask(std::mt19937_64& random, int32_t vocab_size) {
  std::vector<uint32_t> words(static_cast<size_t>(vocab_size + 31) / 32);
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t first = i - i % (kLanes / 32);
    const uint64_t kind = (first * 0x9E3779B97F4A7C15 + words.size()) >> 62;
    const auto any = static_cast<uint32_t>(random());
    const uint32_t few = random() % 4 == 0 ? any & uint32_t(random()) & uint32_t(random()) : 0;
    words[i] = kind == 0 ? 0u : kind == 1 ? ~0u : kind == 2 ? any : few;
  }
  return words;
}

// Edits of any ids, and of the largest ones of steps.
std::vector<TokenEdit> RandomEdits(std::mt19937_64& random, const RowView& row, size_t count) {
  std::vector<TokenEdit> edits;
  while (edits.size() < count) {
    TokenId id = static_cast<TokenId>(random() % row.vocab_size);
    if (random() % 3 == 0) {
      const TokenId end = std::min(id + kLanes - id % kLanes, row.vocab_size);
      for (TokenId other = id - id % kLanes; other < end; ++other) {
        if (LoadElement(row, other) > LoadElement(row, id)) id = other;
      }
    }
    constexpr float kBiases[] = {0, 0, 0, -1.5f, 2.5f, 30, -kInfinity};
    constexpr uint32_t kFlags[] = {0, kEditSeen, kEditSeen, kEditDisallowed, kEditEnd, kEditBanned};
    edits.push_back({.id = id,
                     .flags = kFlags[random() % std::size(kFlags)],
                     .bias = kBiases[random() % std::size(kBiases)],
                     .count = static_cast<uint32_t>(random() % 3)});
  }
  std::ranges::sort(edits, {}, &TokenEdit::id);
  const auto is_same = [](const TokenEdit& a, const TokenEdit& b) { return a.id == b.id; };
  edits.erase(std::unique(edits.begin(), edits.end(), is_same), edits.end());
  return edits;
}

TEST_SUITE("unit") {
  TEST_CASE("every primitive of every SIMD target gives the bits of the scalar team") {
    std::mt19937_64 random(61);
    for (const int32_t vocab_size : {1, 7, 8, 15, 16, 17, 31, 33, 63, 255, 256, 257, 1000, 2047,
                                     2048, 2049, 2048 + 256, 2048 + 777}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        for (const Kind kind : kKinds) {
          CAPTURE(vocab_size);
          CAPTURE(static_cast<int>(dtype));
          CAPTURE(static_cast<int>(kind));
          const GuardedRow p(dtype, Patterns(random, kind, dtype, vocab_size));
          const GuardedRow q(dtype, Patterns(random, Kind::kLogits, dtype, vocab_size));
          const int32_t num_words = (vocab_size + 31) / 32;
          GuardedBytes mask(num_words * sizeof(uint32_t));
          GuardedBytes other(num_words * sizeof(uint32_t));
          for (size_t i = 0; i < num_words * sizeof(uint32_t); ++i) {
            mask.data()[i] = static_cast<char>(random() | random());
            other.data()[i] = static_cast<char>(random() | random());
          }
          // Whole steps that are allowed or not have ways of their own.
          for (int32_t i = 0; i < num_words * 4; i += kLanes / 8) {
            const size_t rest = std::min<size_t>(kLanes / 8, num_words * 4 - i);
            if (random() % 3 == 0) std::memset(mask.data() + i, random() % 2 == 0 ? 0 : -1, rest);
          }
          TeamQuestions ask;
          ask.p = p.view();
          ask.q = q.view();
          ask.tile_index = NumTiles(vocab_size) - 1;
          if (random() % 2 == 0) ask.steps = static_cast<uint32_t>(random()) & kAllSteps;
          if (random() % 3 != 0) ask.mask = reinterpret_cast<const uint32_t*>(mask.data());
          if (random() % 3 == 0) ask.other_mask = reinterpret_cast<const uint32_t*>(other.data());
          const int32_t in_tile = vocab_size - ask.tile_index * kTileSize;
          ask.set_element = static_cast<int32_t>(random() % in_tile);
          ask.keep_last = static_cast<int32_t>(random() % (in_tile + 1)) - 1;
          const int32_t chosen = static_cast<int32_t>(random() % vocab_size);
          ask.keep_value = LoadElement(ask.p, chosen);
          ask.threshold = random() % 4 == 0 ? -kInfinity : LoadElement(ask.p, vocab_size / 2);
          CheckAgainstScalar(ask);
        }
      }
    }
  }

  TEST_CASE("the first pass of every SIMD target gives the bits of the scalar team") {
    std::mt19937_64 random(62);
    for (int32_t i = 0; i < GridSize({.full = 600, .sanitized = 60}); ++i) {
      CAPTURE(i);
      const DType dtype = std::vector{DType::kFloat32, DType::kBFloat16, DType::kFloat16}[i % 3];
      const GuardedRow row(dtype, TilePatterns(random, dtype));
      // The second scale takes most weights below 2^-126, and the last one their exponents.
      for (const float scale : {1.25f, 60.0f, 1e-38f}) {
        for (const bool with_sums : {true, false}) {
          CAPTURE(scale);
          CAPTURE(with_sums);
          CheckFirstPass({RowAsItLies(row.view()), scale, with_sums});
        }
      }
    }
  }

  TEST_CASE("the first pass makes sums of a second scale as a pass of their own would") {
    std::mt19937_64 random(65);
    const auto beside = std::make_unique<TeamFacts>();
    const auto alone = std::make_unique<TeamFacts>();
    for (int32_t i = 0; i < GridSize({.full = 300, .sanitized = 30}); ++i) {
      CAPTURE(i);
      const DType dtype = std::vector{DType::kFloat32, DType::kBFloat16, DType::kFloat16}[i % 3];
      const GuardedRow row(dtype, TilePatterns(random, dtype));
      for (const float scale : {1.25f, 60.0f, kLog2E}) {
        for (const bool with_sums : {true, false}) {
          CAPTURE(scale);
          CAPTURE(with_sums);
          const FirstPassQuestions ask{RowAsItLies(row.view()), scale, with_sums, kLog2E};
          CheckFirstPass(ask);
          FindFirstPass<ScalarTeam<CpuTarget::kBaseline>>(ask, beside.get());
          FindFirstPass<ScalarTeam<CpuTarget::kBaseline>>({ask.row, kLog2E, true}, alone.get());
          REQUIRE(FactsNamed(*beside, "raw sum of a tile") == FactsNamed(*alone, "sum of a tile"));
        }
      }
    }
  }

  TEST_CASE("the first pass over rows with masks and edits has the bits of the scalar team") {
    std::mt19937_64 random(63);
    for (int32_t i = 0; i < GridSize({.full = 3000, .sanitized = 300}); ++i) {
      CAPTURE(i);
      const DType dtype = std::vector{DType::kFloat32, DType::kBFloat16, DType::kFloat16}[i % 3];
      const GuardedRow of(dtype, TilePatterns(random, dtype));
      Row row = RowAsItLies(of.view());
      const int32_t vocab_size = row.view.vocab_size;
      const std::vector<uint32_t> mask = RandomMask(random, vocab_size);
      const std::vector<uint32_t> allowed = RandomMask(random, vocab_size);
      if (random() % 2 == 0) row.mask = mask.data();
      if (random() % 3 == 0) row.sequence.allowed = allowed.data();
      const std::vector<TokenEdit> edits = RandomEdits(random, row.view, random() % 40);
      std::vector<TokenEdit> overrides = RandomEdits(random, row.view, random() % 6);
      // An override of an id that has an edit too.
      if (!edits.empty() && overrides.empty()) {
        overrides = {edits[random() % edits.size()]};
        overrides[0].bias = 1;
      }
      row.sequence.edits = edits.data();
      row.sequence.num_edits = static_cast<int32_t>(edits.size());
      row.place.overrides = overrides.data();
      row.place.num_overrides = static_cast<int32_t>(overrides.size());
      row.place.below_min_tokens = random() % 2 == 0;
      constexpr Penalties kPenalties[] = {{}, {1.25f, .5f, .25f}, {.5f, 0, 0}, {1, -1, -.5f}};
      row.sequence.penalties = kPenalties[random() % std::size(kPenalties)];
      for (const bool with_sums : {true, false}) {
        CAPTURE(with_sums);
        CheckFirstPass({row, 1.25f, with_sums});
      }
    }
  }

  TEST_CASE("the pass for a residual of every SIMD target has the bits of the scalar team") {
    std::mt19937_64 random(64);
    for (int32_t i = 0; i < GridSize({.full = 600, .sanitized = 60}); ++i) {
      CAPTURE(i);
      const std::vector<DType> dtypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
      const DType p_dtype = dtypes[i % 3];
      const DType q_dtype = random() % 4 == 0 ? dtypes[random() % 3] : p_dtype;
      const auto vocab_size = static_cast<int32_t>(1 + random() % (kRowTilesMax * kTileSize));
      const GuardedRow p(p_dtype, Patterns(random, Kind::kLogits, p_dtype, vocab_size));
      const GuardedRow q(q_dtype, Patterns(random, Kind::kLogits, q_dtype, vocab_size));
      // The second scale takes most weights below 2^-126. The factor 2^-40 makes denormals of
      // others.
      for (const float scale : {1.25f, 60.0f, 10.0f}) {
        for (const double factor : {1.0, 0x1p-40}) {
          CAPTURE(scale);
          CAPTURE(factor);
          CheckResidualPass(
              {p.view(), q.view(), LargestOf(p.view()), LargestOf(q.view()), scale, factor});
        }
      }
    }
  }

  // Each of these weights is half a unit in the last place of the next one. The one below 2^-126
  // would tip the first of them, which would tip the next one, up to the sum.
  TEST_CASE("the first pass takes no weight below 2^-126, where one would decide the sum") {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      CAPTURE(static_cast<int>(dtype));
      std::vector<uint32_t> patterns(kTileSize, PatternOf(dtype, -kInfinity));
      patterns[0] = PatternOf(dtype, 0.0f);
      const float exponents[] = {-126.5f, -120, -96, -72, -48, -24};
      for (size_t i = 0; i < std::size(exponents); ++i) {
        patterns[i * kLanes + 1] = PatternOf(dtype, exponents[i]);
      }
      const GuardedRow row(dtype, patterns);
      const FirstPassQuestions ask{RowAsItLies(row.view()), 1.0f, true};
      CheckFirstPass(ask);
      const auto scalar = std::make_unique<TeamFacts>();
      FindFirstPass<ScalarTeam<CpuTarget::kBaseline>>(ask, scalar.get());
      CHECK(std::string(scalar->facts[2].label) == "sum of a tile");
      CHECK(scalar->facts[2].bits == BitsOf(1.0f));
    }
  }

  TEST_CASE("SIMD conversions give the bits of the scalar ones for every 16-bit pattern") {
    const uint32_t step = kTileSize * GridSize({.full = 1, .sanitized = 8});
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      for (uint32_t first = 0; first < 0x10000u; first += step) {
        std::vector<uint32_t> patterns(kTileSize);
        for (int32_t i = 0; i < kTileSize; ++i) patterns[i] = first + i;
        const GuardedRow row(dtype, patterns);
        TeamQuestions ask;
        ask.p = ask.q = row.view();
        CheckAgainstScalar(ask);
      }
    }
  }

  TEST_CASE("this test runs the vector code where the processor has it") {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    CHECK(CpuTargetIsSupported(CpuTarget::kAvx2) == (__builtin_cpu_supports("avx2") != 0));
    CHECK(CpuTargetIsSupported(CpuTarget::kAvx512) == (__builtin_cpu_supports("avx512bw") != 0));
#endif
  }
}

}  // namespace
}  // namespace specd
