// The kernel that measures a device (tools/bench/probes) over nvcc's PTX: their results against the
// host's own sums.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/upload_arena.h"
#include "tests/gpu/ptx/runtime/pretended_device.h"
#include "tools/bench/probes/gpu_probes.h"

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

 private:
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<GpuProbes> probes_;
  std::vector<std::unique_ptr<PinnedMemory>> memory_;
};

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
