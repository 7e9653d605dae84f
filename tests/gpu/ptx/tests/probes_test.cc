// The kernels that measure a device (tools/bench/probes) over nvcc's PTX: their results against the
// host's own sums.
#include <doctest/doctest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/bodies/read_ahead.h"
#include "kernels/core/numerics.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/upload_arena.h"
#include "tests/gpu/ptx/runtime/pretended_device.h"
#include "tests/support/rows.h"
#include "tools/bench/probes/cuda_probes.h"

namespace specd::bench {
namespace {

void Require(const GpuResult& result) { REQUIRE_MESSAGE(result.ok(), result.text()); }

// The probes, and memory that they and the test use at the same addresses.
class Probes {
 public:
  Probes() : driver_(MakeCudaDriver()), probes_(MakeCudaProbes(driver_.get())) {
    Require(driver_->UseDevice(0));
    Require(probes_->Load());
  }

  template <typename T>
  T* Take(size_t count) {
    memory_.push_back(std::make_unique<PinnedMemory>());
    Require(memory_.back()->Allocate(driver_.get(), count * sizeof(T)));
    return reinterpret_cast<T*>(memory_.back()->get());
  }
  void Read(const ReadPlan& plan) {
    Require(probes_->LaunchRead(plan));
    Require(driver_->Synchronize());
  }
  void Weigh(const WeighPlan& plan) {
    Require(probes_->LaunchWeights(plan));
    Require(driver_->Synchronize());
  }

 private:
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<GpuProbes> probes_;
  std::vector<std::unique_ptr<PinnedMemory>> memory_;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kVocabSize = 2 * kTileSize + 300;  // the last tile ends within a step
constexpr int32_t kNumTiles = NumTiles(kVocabSize);
constexpr int32_t kNumRows = 33;  // on one multiprocessor, warps take several tiles at a time
constexpr float kScale = 1.44269504f / 0.8f;

// The device's exp2 as the machine has it: correctly rounded, and 0 in place of denormals.
float RoundedExp2(float x) {
  const auto weight = static_cast<float>(std::exp2(double{x}));
  return weight < FLT_MIN ? 0.0f : weight;
}
using Exponential = float (*)(float);

// The numbers of a tile, by docs/ALGORITHMS.md, "Numbers".
struct TileNumbers {
  float max = -kInfinity;
  float sum = 0;
  std::vector<float> peaks = {};
};

float LargerOrNan(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::max(a, b);
}

// Each lane adds its terms in order; then the lanes are added as a tree.
float SumOfTile(const std::vector<float>& tile, float max, Exponential exponential) {
  std::vector<float> sums(kLanes, 0.0f);
  for (size_t i = 0; i < tile.size(); ++i) {
    const float distance = tile[i] - max;
    sums[i % kLanes] += exponential(distance * kScale);
  }
  for (size_t level = 1; level < kLanes; level *= 2) {
    std::vector<float> next(kLanes);
    for (size_t lane = 0; lane < kLanes; ++lane) next[lane] = sums[lane] + sums[lane ^ level];
    sums = next;
  }
  return sums[0];
}

TileNumbers NumbersOf(const std::vector<float>& tile, Exponential exponential) {
  TileNumbers numbers;
  for (int32_t step = 0; step < kStepsPerTile; ++step) {
    float peak = -kInfinity;
    for (size_t i = 0; i < tile.size(); ++i) {
      if (static_cast<int32_t>(i) / kLanes == step) peak = LargerOrNan(peak, tile[i]);
    }
    numbers.peaks.push_back(peak);
    numbers.max = LargerOrNan(numbers.max, peak);
  }
  if (!std::isfinite(numbers.max)) return numbers;
  numbers.sum = SumOfTile(tile, numbers.max, exponential);
  // Whichever exp2 it is, the sum is close to the true one.
  double sum = 0;
  for (const float x : tile) sum += std::exp2((double{x} - double{numbers.max}) * double{kScale});
  CHECK(std::abs(double{numbers.sum} / sum - 1) < 4e-6);
  return numbers;
}

bool IsSame(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void CheckTile(const TileNumbers& expected, const RowStats& stats, int32_t index) {
  CHECK(IsSame(stats.maxima[index], expected.max));
  CHECK(stats.sums[index] == expected.sum);
  for (int32_t step = 0; step < kStepsPerTile; ++step) {
    CAPTURE(step);
    CHECK(IsSame(stats.peaks[index * kStepsPerTile + step],
                 expected.peaks[static_cast<size_t>(step)]));
  }
}

// Two elements of a tile for which the two exp2 give different sums, in all element types: 0 and
// this.
float TellingElement() {
  for (int32_t i = 1; i < 128; ++i) {
    const float x = static_cast<float>(i) * -0x1p-7f;
    if (SumOfTile({0.0f, x}, 0.0f, &Exp2) != SumOfTile({0.0f, x}, 0.0f, &RoundedExp2)) return x;
  }
  FAIL("the two exp2 agree");
  return 0;
}

std::vector<double> MakeRow(int32_t row, std::mt19937_64& random) {
  std::vector<double> elements = RandomLogits(random, kVocabSize);
  const auto second = elements.begin() + kTileSize;
  const auto third = second + kTileSize;
  if (row % 4 == 1) {
    std::fill(second, third, -kInfinity);
    third[299] = kNan;
  } else if (row % 4 == 2) {
    elements[7] = kInfinity;
    std::fill(second, third, -kInfinity);
    second[0] = 0;
    second[kTileSize - 1] = double{TellingElement()};
    std::fill(third, elements.end(), -3.5);  // 300 weights of 1
  }
  return elements;
}

// Runs the sums of weights over rows of the type, and compares all that they leave in memory.
void CheckWeights(DType dtype, bool approximate) {
  Probes probes;
  RowMatrix matrix({.dtype = dtype,
                    .vocab_size = kVocabSize,
                    .num_rows = kNumRows,
                    .padding = 5,  // of every alignment to an element
                    .offset = 3});
  std::mt19937_64 random(1);
  std::vector<std::vector<double>> elements;
  for (int32_t row = 0; row < kNumRows; ++row) {
    elements.push_back(matrix.Set(row, MakeRow(row, random)));
  }
  const TensorView view = matrix.view();
  const auto row_bytes = static_cast<size_t>(view.row_stride * SizeBytes(dtype));
  const auto offset = static_cast<size_t>(3 * SizeBytes(dtype));
  char* const copy = probes.Take<char>(offset + kNumRows * row_bytes) + offset;
  std::memcpy(copy, view.data, kNumRows * row_bytes);
  auto** const rows = probes.Take<const void*>(kNumRows);
  for (size_t row = 0; row < kNumRows; ++row) rows[row] = copy + row * row_bytes;

  constexpr char kUntouched = 0x7A;
  const auto workspace_bytes = static_cast<size_t>(AheadRowBytes(kVocabSize));
  char* const workspaces = probes.Take<char>((kNumRows + 1) * workspace_bytes);
  std::memset(workspaces, kUntouched, (kNumRows + 1) * workspace_bytes);
  probes.Weigh({.rows = rows,
                .num_rows = kNumRows,
                .dtype = dtype,
                .vocab_size = kVocabSize,
                .scale = kScale,
                .workspaces = workspaces,
                .approximate = approximate});
  for (int32_t row = 0; row < kNumRows; ++row) {
    CAPTURE(row);
    const std::vector<double>& all = elements[static_cast<size_t>(row)];
    const RowStats stats = AheadAt(workspaces, row, kVocabSize).stats;
    for (int32_t tile = 0; tile < kNumTiles; ++tile) {
      CAPTURE(tile);
      const auto begin = all.begin() + tile * kTileSize;
      const auto end = tile + 1 < kNumTiles ? begin + kTileSize : all.end();
      CheckTile(NumbersOf({begin, end}, approximate ? &RoundedExp2 : &Exp2), stats, tile);
    }
    std::memset(stats.maxima, kUntouched, sizeof(float) * kNumTiles * (2 + kStepsPerTile));
  }
  // Beside the numbers of tiles, no byte has changed.
  CHECK(std::string(workspaces, (kNumRows + 1) * workspace_bytes).find_first_not_of(kUntouched) ==
        std::string::npos);
}

// The kernel stores a thread's sum of words if it is this number.
constexpr uint32_t kStored = 0x5EEDBEEF;
constexpr uint32_t kNothing = 77;

// Rows of words, and the sum of each thread that reads them.
class ReadCase {
 public:
  static constexpr int64_t kNumRows = 3;
  static constexpr int64_t kUnitBytes = int64_t{kReadUnit};
  static constexpr int64_t kRowBytes = 5200 * kUnitBytes + 12;
  // A block takes pieces of rows in turn: 8 units for each thread, a block's threads apart.
  static constexpr int64_t kPieceUnits = int64_t{kThreadsPerBlock} * 8;
  static constexpr int64_t kPiecesPerRow = 3;  // the last one is a part
  static constexpr int64_t kMemoryBytes = kNumRows * kRowBytes + 96;
  static_assert(kRowBytes / kUnitBytes > (kPiecesPerRow - 1) * kPieceUnits);
  static_assert(kRowBytes / kUnitBytes < kPiecesPerRow * kPieceUnits);

  // The second row begins with a whole unit; the others begin within one.
  ReadCase()
      : memory_(probes_.Take<char>(kMemoryBytes)),
        rows_(probes_.Take<const void*>(kNumRows)),
        sink_(probes_.Take<uint32_t>(1)) {
    for (int64_t row = 0; row < kNumRows; ++row) rows_[row] = memory_ + BeginOf(row);
  }

  // Four blocks for each multiprocessor, unless there are fewer pieces.
  static int64_t NumBlocks() {
    const int64_t num_processors = ptx::PretendedDevice::Get().num_processors();
    return std::min(4 * num_processors, kNumRows * kPiecesPerRow);
  }
  static constexpr int64_t BeginOf(int64_t row) {
    constexpr int64_t kBegins[] = {4, kRowBytes + 4, 2 * kRowBytes + 18};
    return kBegins[row];
  }
  // The row's first whole unit, and the one after the last.
  static constexpr int64_t FirstUnit(int64_t row) {
    return (BeginOf(row) + kUnitBytes - 1) / kUnitBytes;
  }
  static constexpr int64_t EndUnit(int64_t row) { return (BeginOf(row) + kRowBytes) / kUnitBytes; }

  uint32_t* Unit(int64_t unit) { return reinterpret_cast<uint32_t*>(memory_ + unit * kUnitBytes); }
  void FillRandomly() {
    std::mt19937 random(2);
    for (int64_t i = 0; i < kMemoryBytes / 4; ++i) Unit(0)[i] = static_cast<uint32_t>(random());
  }
  void FillWithZeros() { std::memset(memory_, 0, kMemoryBytes); }

  // The units that a thread adds.
  static std::vector<int64_t> UnitsOf(int64_t block, int64_t thread) {
    std::vector<int64_t> units;
    for (int64_t piece = block; piece < kNumRows * kPiecesPerRow; piece += NumBlocks()) {
      const int64_t row = piece / kPiecesPerRow;
      const int64_t begin = FirstUnit(row) + piece % kPiecesPerRow * kPieceUnits;
      const int64_t end = std::min(begin + kPieceUnits, EndUnit(row));
      for (int64_t unit = begin + thread; unit < end; unit += kThreadsPerBlock) {
        units.push_back(unit);
      }
    }
    return units;
  }
  uint32_t ValueOf(int64_t unit) {
    const uint32_t* const words = Unit(unit);
    return words[0] ^ words[1] ^ words[2] ^ words[3];
  }

  uint32_t SinkAfter(int64_t row_bytes = kRowBytes) {
    *sink_ = kNothing;
    probes_.Read({.rows = rows_, .num_rows = kNumRows, .row_bytes = row_bytes, .sink = sink_});
    return *sink_;
  }

 private:
  Probes probes_;
  char* const memory_;
  const void** const rows_;
  uint32_t* const sink_;
};
static_assert(ReadCase::BeginOf(1) % ReadCase::kUnitBytes == 0);

TEST_SUITE("ptx") {
  TEST_CASE("PTX probes: SumWeights leaves the maxima, the peaks and the sums of every tile") {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const bool approximate : {false, true}) {
        CAPTURE(dtype);
        CAPTURE(approximate);
        CheckWeights(dtype, approximate);
      }
    }
  }

  TEST_CASE("PTX probes: a thread of ReadRows adds each of its units once") {
    ReadCase read;
    REQUIRE(ReadCase::NumBlocks() < ReadCase::kNumRows * ReadCase::kPiecesPerRow);
    for (int64_t block = 0; block < ReadCase::NumBlocks(); ++block) {
      for (const int64_t thread : {0, 31, 79, 80, 255}) {
        CAPTURE(block);
        CAPTURE(thread);
        read.FillRandomly();
        const std::vector<int64_t> units = ReadCase::UnitsOf(block, thread);
        uint32_t sum = 0;
        for (const int64_t unit : units) sum += read.ValueOf(unit);
        const int64_t changed = units[static_cast<size_t>(thread) % units.size()];
        const uint32_t value = read.ValueOf(changed);
        uint32_t* const word = read.Unit(changed) + thread % 4;
        *word ^= value ^ (value + kStored - sum);
        CHECK(read.SinkAfter() == kStored);
        *word ^= 1;
        CHECK(read.SinkAfter() == kNothing);
      }
    }
  }

  TEST_CASE("PTX probes: ReadRows adds nothing beside the whole units of the rows") {
    ReadCase read;
    int64_t next = 0;  // the first unit after those of the rows so far
    for (int64_t row = 0; row <= ReadCase::kNumRows; ++row) {
      const bool is_end = row == ReadCase::kNumRows;
      const int64_t end =
          is_end ? ReadCase::kMemoryBytes / ReadCase::kUnitBytes : ReadCase::FirstUnit(row);
      for (int64_t unit = next; unit < end; ++unit) {
        CAPTURE(unit);
        read.FillWithZeros();
        *read.Unit(unit) = kStored;
        CHECK(read.SinkAfter() == kNothing);
      }
      if (!is_end) next = ReadCase::EndUnit(row);
    }
    read.FillWithZeros();
    *read.Unit(ReadCase::FirstUnit(1)) = kStored;
    CHECK(read.SinkAfter() == kStored);
    CHECK(read.SinkAfter(ReadCase::kUnitBytes - 1) == kNothing);
  }
}

}  // namespace
}  // namespace specd::bench
