// SimdTeam gives ScalarTeam's bits, for every instruction set that this processor has.
// teams_test.cc, numerics_test.cc and elements_test.cc settle the results of the scalar primitives.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_target.h"
#include "kernels/cpu/scalar_team.h"
#include "tests/kernels/bodies/team_facts.h"
#include "tests/support/grid_size.h"

namespace specd {
namespace {

// Bytes that end at the end of a page. Nothing may touch the next page.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t size) : size_(size), mapped_((size / kPage + 2) * kPage) {
    void* memory =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    memory_ = static_cast<char*>(memory);
    REQUIRE(mprotect(memory_ + mapped_ - kPage, kPage, PROT_NONE) == 0);
  }
  ~GuardedBytes() { munmap(memory_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  char* data() { return memory_ + mapped_ - kPage - size_; }

 private:
  static constexpr size_t kPage = 4096;
  size_t size_;
  size_t mapped_;
  char* memory_ = nullptr;
};

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
};
std::vector<CompiledTeam> SupportedTeams() {
  std::vector<CompiledTeam> teams;
#if defined(SPECD_HAVE_SIMD)
  if (CpuTargetIsSupported(CpuTarget::kAvx2))
    teams.push_back({CpuTarget::kAvx2, FindTeamFactsAvx2, FindFirstPassAvx2});
  if (CpuTargetIsSupported(CpuTarget::kAvx512)) {
    teams.push_back({CpuTarget::kAvx512, FindTeamFactsAvx512, FindFirstPassAvx512});
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
  FindTeamFacts<ScalarTeam<CpuTarget::kBaseline>>(ask, expected.get());
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
      // Tiles of all kinds in any order, and perhaps a part of one.
      std::vector<uint32_t> patterns;
      const int32_t num_tiles = 1 + static_cast<int32_t>(random() % (kRowTilesMax - 1));
      for (int32_t t = 0; t < num_tiles; ++t) {
        const Kind kind = random() % 2 == 0 ? Kind::kLogits : kKinds[random() % std::size(kKinds)];
        const std::vector<uint32_t> tile = Patterns(random, kind, dtype, kTileSize);
        patterns.insert(patterns.end(), tile.begin(), tile.end());
      }
      if (random() % 2 == 0) patterns.resize(patterns.size() + random() % kTileSize);
      const GuardedRow row(dtype, patterns);
      // The second scale takes most weights below 2^-126, and the last one their exponents.
      for (const float scale : {1.25f, 60.0f, 1e-38f}) {
        for (const bool with_sums : {true, false}) {
          CAPTURE(scale);
          CAPTURE(with_sums);
          CheckFirstPass({row.view(), scale, with_sums});
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
      CheckFirstPass({row.view(), 1.0f, true});
      const auto scalar = std::make_unique<TeamFacts>();
      FindFirstPass<ScalarTeam<CpuTarget::kBaseline>>({row.view(), 1.0f, true}, scalar.get());
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
