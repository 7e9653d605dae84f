// The kernels that measure a device (tools/bench/probes), over nvcc's PTX: what they leave in
// memory against sums and words worked out here.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bodies/read_ahead.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/upload_arena.h"
#include "tools/bench/probes/cuda_probes.h"

namespace specd::ptx {
namespace {

void Require(const GpuResult& result) { REQUIRE_MESSAGE(result.ok(), result.text()); }

// The probes, and memory that they and the test use at the same addresses.
class Probes {
 public:
  Probes() : driver_(MakeCudaDriver()), probes_(bench::MakeCudaProbes(driver_.get())) {
    Require(driver_->UseDevice(0));
    Require(probes_->Load());
  }

  template <typename T>
  T* Take(size_t count) {
    memory_.push_back(std::make_unique<PinnedMemory>());
    Require(memory_.back()->Allocate(driver_.get(), count * sizeof(T)));
    return reinterpret_cast<T*>(memory_.back()->get());
  }
  void Read(const bench::ReadPlan& plan) {
    Require(probes_->LaunchRead(plan));
    Require(driver_->Synchronize());
  }
  void Weigh(const bench::WeighPlan& plan) {
    Require(probes_->LaunchWeights(plan));
    Require(driver_->Synchronize());
  }

 private:
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<bench::GpuProbes> probes_;
  std::vector<std::unique_ptr<PinnedMemory>> memory_;
};

constexpr int32_t kVocabSize = 2 * kTileSize + 300;
constexpr int32_t kNumTiles = 3;
constexpr int32_t kNumRows = 3;
constexpr float kScale = 1.44269504f / 0.8f;

// Elements as bf16 holds them. Their weights are alike, so that a sum shows each one that lacks.
std::vector<float> MakeElements() {
  std::vector<float> elements(size_t{kNumRows} * kVocabSize);
  uint32_t random = 1;
  for (float& element : elements) {
    random = random * 1664525u + 1013904223u;
    const float value = static_cast<float>(random >> 8) * 0x1p-24f - 0.5f;
    element = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000u);
  }
  float* const second = &elements[kVocabSize];
  std::fill(second + kTileSize, second + 2 * kTileSize, -kInfinity);
  float* const third = second + kVocabSize;
  third[7] = std::numeric_limits<float>::quiet_NaN();
  third[2 * kTileSize + 299] = kInfinity;
  return elements;
}

// The tile's elements against what the pass left. A tile without a finite maximum has no sum.
void CheckTile(const std::vector<float>& tile, const RowStats& stats, int32_t index) {
  float max = -kInfinity;
  for (const float x : tile) max = std::isnan(x) || std::isnan(max) ? NAN : std::max(max, x);
  if (!std::isfinite(max)) {
    CHECK(std::isnan(stats.maxima[index]) == std::isnan(max));
    CHECK((std::isnan(max) || stats.maxima[index] == max));
    CHECK(stats.sums[index] == 0);
    return;
  }
  CHECK(stats.maxima[index] == max);
  double sum = 0;
  for (const float x : tile) sum += std::exp2((double{x} - double{max}) * double{kScale});
  CHECK(std::abs(stats.sums[index] / sum - 1) < 1e-5);
  for (int32_t step = 0; step < kStepsPerTile; ++step) {
    float peak = -kInfinity;
    for (size_t i = static_cast<size_t>(step * kLanes); i < tile.size(); ++i) {
      if (i < static_cast<size_t>((step + 1) * kLanes)) peak = std::max(peak, tile[i]);
    }
    CHECK(stats.peaks[index * kStepsPerTile + step] == peak);
  }
}

TEST_SUITE("ptx") {
  TEST_CASE("PTX probes: SumWeights leaves the maxima and the sums of every tile") {
    static_assert(NumTiles(kVocabSize) == kNumTiles);
    Probes probes;
    const std::vector<float> elements = MakeElements();
    auto* const wide = probes.Take<float>(elements.size());
    auto* const narrow = probes.Take<uint16_t>(elements.size());
    for (size_t i = 0; i < elements.size(); ++i) {
      wide[i] = elements[i];
      narrow[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(elements[i]) >> 16);
    }
    const size_t workspace_bytes =
        size_t{kNumRows} * static_cast<size_t>(AheadRowBytes(kVocabSize));
    char* const workspaces = probes.Take<char>(workspace_bytes);
    auto** const rows = probes.Take<const void*>(kNumRows);
    std::vector<float> sums;  // by type, then exact or approximate, then tile
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (int32_t row = 0; row < kNumRows; ++row) {
        rows[row] = dtype == DType::kFloat32 ? static_cast<const void*>(wide + row * kVocabSize)
                                             : static_cast<const void*>(narrow + row * kVocabSize);
      }
      for (const bool approximate : {false, true}) {
        CAPTURE(approximate);
        std::memset(workspaces, 0x7A, workspace_bytes);
        probes.Weigh({.rows = rows,
                      .num_rows = kNumRows,
                      .dtype = dtype,
                      .vocab_size = kVocabSize,
                      .scale = kScale,
                      .workspaces = workspaces,
                      .approximate = approximate});
        for (int32_t row = 0; row < kNumRows; ++row) {
          const RowStats stats = AheadAt(workspaces, row, kVocabSize).stats;
          for (int32_t tile = 0; tile < kNumTiles; ++tile) {
            CAPTURE(row);
            CAPTURE(tile);
            const auto begin = elements.begin() + row * kVocabSize + tile * kTileSize;
            const int32_t count = std::min(kTileSize, kVocabSize - tile * kTileSize);
            CheckTile({begin, begin + count}, stats, tile);
            sums.push_back(stats.sums[tile]);
          }
        }
      }
    }
    const auto sums_of = [&](int i) {
      const auto begin = sums.begin() + i * kNumRows * kNumTiles;
      return std::vector<float>(begin, begin + kNumRows * kNumTiles);
    };
    CHECK(sums_of(0) == sums_of(2));  // the type changes no bit
    CHECK(sums_of(1) == sums_of(3));
    CHECK(sums_of(0) != sums_of(1));  // another exp2 did run
  }

  // The kernel stores the sum of a thread's words if it is one particular number.
  TEST_CASE("PTX probes: ReadRows adds each whole unit of the rows once, and nothing beside them") {
    constexpr uint32_t kStored = 0x5EEDBEEF;
    constexpr uint32_t kNothing = 77;
    constexpr size_t kNumUnits = 5200;  // more than a block takes at a time
    constexpr size_t kRowBytes = kNumUnits * bench::kReadUnit + 12;
    Probes probes;
    char* const memory = probes.Take<char>(2 * (kRowBytes + 32));
    auto** const rows = probes.Take<const void*>(2);
    auto* const sink = probes.Take<uint32_t>(1);
    rows[0] = memory + 4;  // 12 bytes come before its first whole unit, and none behind its last
    rows[1] = memory + kRowBytes + 4;  // whole units from here on, then 12 bytes
    REQUIRE(reinterpret_cast<uintptr_t>(rows[1]) % bench::kReadUnit == 0);
    const auto sink_after = [&](size_t offset) {
      std::memset(memory, 0, 2 * (kRowBytes + 32));
      std::memcpy(memory + offset, &kStored, sizeof(kStored));
      *sink = kNothing;
      probes.Read({.rows = rows, .num_rows = 2, .row_bytes = kRowBytes, .sink = sink});
      return *sink;
    };
    for (const size_t first : {size_t{16}, kRowBytes + 4}) {
      for (const size_t unit : {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{1023},
                                size_t{2047}, size_t{2048}, size_t{4100}, kNumUnits - 1}) {
        CAPTURE(first);
        CAPTURE(unit);
        const size_t word = unit % 4 * sizeof(uint32_t);
        CHECK(sink_after(first + unit * bench::kReadUnit + word) == kStored);
      }
    }
    CHECK(sink_after(4) == kNothing);
    CHECK(sink_after(12) == kNothing);
    CHECK(sink_after(2 * kRowBytes - 8) == kNothing);
    CHECK(sink_after(2 * kRowBytes + 4) == kNothing);
  }
}

}  // namespace
}  // namespace specd::ptx
