// A real device against the CPU, bit for bit (suite "gpu"). The rows lie on the device, at any
// address and stride, and some have the greatest width. Without a device a case passes and says
// that nothing was compared, unless SPECD_REQUIRE_GPU is set. SPECD_GPU_QUICK makes the rounds few
// and small, and leaves out cases that take long or need much memory.
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/upload_arena.h"
#include "tests/kernels/cuda/device_or_reason.h"
#include "tests/kernels/cuda/run_backend.h"
#include "tests/kernels/cuda/run_round.h"
#include "tests/support/imported_memory.h"

namespace specd {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

void Require(const GpuResult& result) { REQUIRE_MESSAGE(result.ok(), result.text()); }

// Memory of the first device, which is also the backend's.
class DeviceRows final : public CopiedMemory {
 public:
  // Copies the ids that the device wrote to the host arrays.
  void CopyIdsBack() {
    for (const IdArray& array : ids_) {
      Require(driver_->ToHost(array.host, array.device, static_cast<size_t>(array.size_bytes)));
    }
    Require(driver_->Synchronize());
  }

 private:
  const void* Copy(const void* host, int64_t size_bytes, int64_t shift_bytes) override {
    constexpr int64_t kBehind = 64;  // belong to no row
    blocks_.push_back(std::make_unique<DeviceMemory>());
    Require(blocks_.back()->Allocate(driver_.get(),
                                     static_cast<size_t>(shift_bytes + size_bytes + kBehind)));
    char* const begin = blocks_.back()->get() + shift_bytes;
    Require(driver_->ToDevice(begin, host, static_cast<size_t>(size_bytes)));
    Require(driver_->Synchronize());
    return begin;
  }

  const std::unique_ptr<GpuDriver> driver_ = DriverOfDevice();
  std::vector<std::unique_ptr<DeviceMemory>> blocks_;
};

// Rows so far apart that the last of them begin 2^32 elements after the first one or further, and
// bytes after that. Nothing but rows is written. An offset that is kept in 32 bits finds another
// row instead of its own, because 2^32 elements are a whole number of rows.
class FarRows {
 public:
  // False, and it is said why, where the device does not have that much memory left.
  bool Take(const TensorView& host) {
    const auto needed_bytes = static_cast<size_t>(
        ((host.num_rows - 1) * Stride(host.num_rows) + host.vocab_size) * SizeBytes(host.dtype));
    const GpuResult result = memory_.Allocate(driver_.get(), needed_bytes);
    if (result.code() == kGpuOutOfMemory) {
      MESSAGE("not compared: the device has no ", needed_bytes, " bytes left for rows of ",
              SizeBytes(host.dtype), "-byte elements: ", result.text());
      return false;
    }
    Require(result);
    return true;
  }

  // REQUIRES: there is room for as many rows. The tensor that was there before is no longer valid.
  TensorView Tensor(const TensorView& host) {
    TensorView moved = host;
    moved.data = memory_.get();
    moved.row_stride = Stride(host.num_rows);
    moved.space = MemorySpace::kDevice;
    const int64_t element_bytes = SizeBytes(host.dtype);
    const auto row_bytes = static_cast<size_t>(host.vocab_size * element_bytes);
    for (int64_t i = 0; i < host.num_rows; ++i) {
      const char* const source = static_cast<const char*>(host.data);
      Require(driver_->ToDevice(memory_.get() + i * moved.row_stride * element_bytes,
                                source + i * host.row_stride * element_bytes, row_bytes));
    }
    Require(driver_->Synchronize());
    return moved;
  }

 private:
  // 2^32 elements over the greatest power of two that leaves a row beyond them.
  static int64_t Stride(int64_t num_rows) {
    int64_t stride = kOffsets;
    while (kOffsets / (stride / 2) < num_rows) stride /= 2;
    return stride;
  }

  static constexpr int64_t kOffsets = int64_t{1} << 32;

  const std::unique_ptr<GpuDriver> driver_ = DriverOfDevice();
  DeviceMemory memory_;
};

// True, and it is said, of a case that is left out where rounds are to be small.
bool IsLeftOut() {
  if (Quick()) MESSAGE("not compared: SPECD_GPU_QUICK leaves this case out");
  return Quick();
}

// A device beside the CPU.
class Pair {
 public:
  explicit Pair(std::unique_ptr<Backend> device)
      : device_(std::move(device)), cpu_(std::move(*MakeBackend("cpu"))) {}

  // `run` gives the answers of the device to this round.
  using RunOnDevice =
      std::function<std::vector<std::string>(Backend& device, RoundCase& round, RoundBatch batch)>;

  void Check(const RoundCase::Options& options, const RunOnDevice& run) {
    const BackendLimits limits{options.vocab_size, options.batch, options.max_draft};
    REQUIRE(cpu_->Prepare(limits).ok());
    REQUIRE(device_->Prepare(limits).ok());
    RoundCase round(options);
    const std::vector<std::string> expected = RunAll(*cpu_, round);
    const std::vector<std::string> answers = run(*device_, round, round.All());
    for (size_t i = 0; i < expected.size(); ++i, ++num_compared_) {
      CAPTURE(i);
      REQUIRE(answers[i] == expected[i]);
    }
  }
  int num_compared() const { return num_compared_; }

 private:
  const std::unique_ptr<Backend> device_;
  const std::unique_ptr<Backend> cpu_;
  int num_compared_ = 0;
};

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds: rows that lie on the device and begin anywhere") {
    std::unique_ptr<Backend> device = DeviceOrReason();
    if (device == nullptr) return;
    Pair pair(std::move(device));
    for (const int32_t vocab_size : {300, Quick() ? 2049 : 2 * kTileSize + 301}) {
      for (const DType dtype : kDTypes) {
        // Which of target, draft and mask lie there, how many elements behind a place that is
        // aligned, and which slot outputs are written there.
        for (int mixture = 1; mixture < (Quick() ? 4 : 16); ++mixture) {
          CAPTURE(vocab_size);
          CAPTURE(static_cast<int>(dtype));
          CAPTURE(mixture);
          const RoundCase::Options options{.vocab_size = vocab_size,
                                           .batch = Quick() ? 8 : 60,
                                           .max_draft = 3,
                                           .dtype = dtype,
                                           .seed = 1100 + static_cast<uint64_t>(mixture),
                                           .plain = mixture == 9};
          pair.Check(options, [&](Backend& backend, RoundCase& round, RoundBatch batch) {
            DeviceRows memory;
            if (mixture & 1) batch.target = memory.Tensor(batch.target, mixture % 9);
            if (mixture & 2) batch.draft = memory.Tensor(batch.draft, mixture % 7);
            if (mixture & 4) batch.mask = memory.Mask(batch.mask, vocab_size);
            std::vector<SlotOutput> arrays(batch.slot_outputs,
                                           batch.slot_outputs + batch.num_slot_outputs);
            for (size_t i = 1; (mixture & 8) != 0 && i < arrays.size(); i += 2) {
              auto* const host = static_cast<TokenId*>(arrays[i].data);
              arrays[i].data = memory.Ids(host, round.slot_memory(static_cast<int32_t>(i)).size());
              arrays[i].space = MemorySpace::kDevice;
            }
            batch.slot_outputs = arrays.data();
            RunAll(backend, round, batch);
            memory.CopyIdsBack();
            return AnswersOf(round, batch.num_tasks);
          });
        }
      }
    }
    MESSAGE("compared ", pair.num_compared(), " answers");
  }

  // Room for one tensor at a time: 12 GiB and a row, and for float32 twice that.
  TEST_CASE("CUDA rounds: rows further than 2^32 elements behind the tensor's begin") {
    std::unique_ptr<Backend> device = DeviceOrReason();
    if (device == nullptr || IsLeftOut()) return;
    Pair pair(std::move(device));
    for (const DType dtype : kDTypes) {
      for (const bool is_draft : {false, true}) {
        CAPTURE(static_cast<int>(dtype));
        CAPTURE(is_draft);
        const RoundCase::Options options{.vocab_size = 2 * kTileSize + 301,
                                         .batch = 60,
                                         .max_draft = 3,
                                         .dtype = dtype,
                                         .seed = 1300 + static_cast<uint64_t>(is_draft)};
        FarRows far;
        RoundCase sizes(options);
        if (!far.Take(is_draft ? sizes.All().draft : sizes.All().target)) continue;
        pair.Check(options, [&](Backend& backend, RoundCase& round, RoundBatch batch) {
          TensorView& rows = is_draft ? batch.draft : batch.target;
          rows = far.Tensor(rows);
          return RunAll(backend, round, batch);
        });
      }
    }
    MESSAGE("compared ", pair.num_compared(), " answers");
  }

  // Sizes of compute-sanitizer's runs are for others.
  TEST_CASE("CUDA rounds: the largest vocabulary") {
    std::unique_ptr<Backend> device = DeviceOrReason();
    if (device == nullptr || IsLeftOut()) return;
    Pair pair(std::move(device));
    for (const DType dtype : kDTypes) {
      for (const bool plain : {false, true}) {
        CAPTURE(static_cast<int>(dtype));
        CAPTURE(plain);
        const RoundCase::Options options{.vocab_size = kVocabSizeMax,
                                         .batch = 12,
                                         .max_draft = 3,
                                         .dtype = dtype,
                                         .seed = 1200 + static_cast<uint64_t>(plain),
                                         .plain = plain};
        pair.Check(options, [](Backend& backend, RoundCase& round, const RoundBatch& batch) {
          return RunAll(backend, round, batch);
        });
        // And where the rows need not travel.
        pair.Check(options, [](Backend& backend, RoundCase& round, RoundBatch batch) {
          DeviceRows memory;
          batch.target = memory.Tensor(batch.target, 1);
          batch.draft = memory.Tensor(batch.draft, 3);
          return RunAll(backend, round, batch);
        });
      }
    }
    MESSAGE("compared ", pair.num_compared(), " answers");
  }
}

}  // namespace
}  // namespace specd
