// CUDA streams of the stand-in for the CUDA runtime: work that is behind its caller, as on a
// device.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/ptx/runtime/pretended_device.h"
#include "tests/gpu/ptx/runtime/stream_worker.h"

namespace specd::ptx {
namespace {

// Step appends a digit to a number, so that the number tells the order; Fault writes nowhere.
constexpr char kKernels[] = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry Step(.param .u64 number, .param .u64 digit)
{
  .reg .b64 %p, %v, %d;
  ld.param.u64 %p, [number];
  ld.param.u64 %d, [digit];
  ld.global.u64 %v, [%p];
  mul.lo.s64 %v, %v, 10;
  add.s64 %v, %v, %d;
  st.global.u64 [%p], %v;
  ret;
}
.visible .entry Fault()
{
  .reg .b64 %p;
  mov.u64 %p, 64;
  st.global.u64 [%p], %p;
  ret;
}
)";
constexpr char kStep = 0;  // its address names the kernel
constexpr char kFault = 0;

// A folder with their PTX, for the life of the program.
class PtxFolder {
 public:
  PtxFolder() : path_(std::filesystem::temp_directory_path() / "specd-streams-XXXXXX") {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
    std::ofstream(path_ + "/streams.ptx") << kKernels;
    setenv("SPECD_PTX_FOLDER", path_.c_str(), 1);
  }
  PtxFolder(const PtxFolder&) = delete;
  PtxFolder& operator=(const PtxFolder&) = delete;
  ~PtxFolder() { std::filesystem::remove_all(path_); }

 private:
  std::string path_;
};

PretendedDevice& Device() {
  static const PtxFolder folder;
  PretendedDevice& device = PretendedDevice::Get();
  device.RegisterKernel(&kStep, "Step");
  device.RegisterKernel(&kFault, "Fault");
  return device;
}

// A piece of work that ends when the test says so. Until then a StreamWorker does nothing else, so
// that the order of what is enqueued meanwhile follows from the seed alone.
class HeldWorker {
 public:
  // enqueue(work) enqueues it. Returns once the work has begun.
  template <typename Enqueue>
  explicit HeldWorker(const Enqueue& enqueue) {
    enqueue(Work([state = state_] {
      state->has_begun.set_value();
      state->may_end.get_future().wait();
      return absl::OkStatus();
    }));
    state_->has_begun.get_future().wait();
  }
  HeldWorker(const HeldWorker&) = delete;
  HeldWorker& operator=(const HeldWorker&) = delete;
  ~HeldWorker() { Release(); }

  void Release() {
    if (!is_released_) state_->may_end.set_value();
    is_released_ = true;
  }

 private:
  struct State {
    std::promise<void> has_begun;
    std::promise<void> may_end;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  bool is_released_ = false;
};

#define REQUIRE_CUDA(call) REQUIRE((call) == cudaSuccess)

class Stream {
 public:
  Stream() { REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Holds the device until Release.
class Held {
 public:
  void Release() { worker_.Release(); }

 private:
  Stream stream_;
  HeldWorker worker_{[&](Work work) { REQUIRE_CUDA(Device().Enqueue(stream_, std::move(work))); }};
};

// A number that host and device see, 0 at first.
class Number {
 public:
  Number() {
    REQUIRE_CUDA(cudaHostAlloc(&memory_, sizeof(uint64_t), cudaHostAllocMapped));
    *get() = 0;
  }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  ~Number() { cudaFreeHost(memory_); }
  uint64_t* get() const { return static_cast<uint64_t*>(memory_); }
  uint64_t operator*() const { return *get(); }

 private:
  void* memory_ = nullptr;
};

cudaError_t Launch(const char* kernel, cudaStream_t stream, void** arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = config.blockDim = dim3(1, 1, 1);
  config.stream = stream;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

cudaError_t AppendDigit(uint64_t* number, uint64_t digit, cudaStream_t stream) {
  void* arguments[] = {&number, &digit};
  return Launch(&kStep, stream, arguments);
}

cudaError_t CopyNumber(uint64_t* to, const uint64_t* from, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, sizeof(*to), cudaMemcpyDefault, stream);
}

// What one CUDA stream reads of a number that another has written, repeatedly.
std::vector<uint64_t> ReadsOfOther(bool waits) {
  Device();
  Stream writer;
  Stream reader;
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  std::vector<uint64_t> reads;
  for (int i = 0; i < 16; ++i) {
    Number number;
    Number read;
    Held held;
    REQUIRE_CUDA(AppendDigit(number.get(), 1, writer));
    REQUIRE_CUDA(AppendDigit(number.get(), 2, writer));
    REQUIRE_CUDA(cudaEventRecord(event, writer));
    REQUIRE_CUDA(AppendDigit(number.get(), 3, writer));
    if (waits) REQUIRE_CUDA(cudaStreamWaitEvent(reader, event, 0));
    // Neither concerns the wait before it.
    REQUIRE_CUDA(cudaEventRecord(event, writer));
    REQUIRE_CUDA(CopyNumber(read.get(), number.get(), reader));
    held.Release();
    REQUIRE_CUDA(cudaStreamSynchronize(reader));
    reads.push_back(*read);
    REQUIRE_CUDA(cudaStreamSynchronize(writer));
    REQUIRE(*number == 123);
  }
  REQUIRE_CUDA(cudaEventDestroy(event));
  return reads;
}

// The order of three pieces of each of two CUDA streams: "a0", "b0" and so on.
std::string OrderOf(uint64_t seed) {
  StreamWorker worker(seed);
  std::string order;
  const auto other = std::make_shared<StreamQueue>();
  const std::shared_ptr<StreamQueue> queues[] = {std::make_shared<StreamQueue>(),
                                                 std::make_shared<StreamQueue>()};
  HeldWorker held([&](Work work) { worker.Push(other, {.run = std::move(work)}); });
  for (const char piece : {'0', '1', '2'}) {
    for (int i = 0; i < 2; ++i) {
      worker.Push(queues[i], {.run = [&order, i, piece] {
                    order += {"ab"[i], piece};
                    return absl::OkStatus();
                  }});
    }
  }
  held.Release();
  worker.AwaitAll();
  return order;
}

TEST_SUITE("ptx") {
  TEST_CASE("PTX streams: the seed decides the order between CUDA streams, and none within one") {
    std::string first_order;
    bool differs = false;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(seed);
      const std::string order = OrderOf(seed);
      REQUIRE(order.size() == 12);
      for (const std::string stream : {"a", "b"}) {
        CHECK(order.find(stream + "0") < order.find(stream + "1"));
        CHECK(order.find(stream + "1") < order.find(stream + "2"));
      }
      CHECK(OrderOf(seed) == order);
      if (seed == 1) first_order = order;
      differs = differs || order != first_order;
    }
    CHECK(differs);
  }

  TEST_CASE("PTX streams: work is behind its caller, and in order") {
    Device();
    Stream stream;
    Number number;
    Held held;
    for (uint64_t digit = 1; digit <= 5; ++digit) {
      REQUIRE_CUDA(AppendDigit(number.get(), digit, stream));
    }
    CHECK(*number == 0);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);
    held.Release();
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(*number == 12345);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
  }

  TEST_CASE("PTX streams: a missing wait for an event shows in the answers") {
    bool was_early = false;
    for (const uint64_t read : ReadsOfOther(false)) was_early |= read < 12;
    CHECK(was_early);
    bool was_late = false;
    for (const uint64_t read : ReadsOfOther(true)) {
      CHECK(read >= 12);
      was_late |= read == 123;
    }
    CHECK(was_late);  // the second record is not waited for, and may have come
  }

  TEST_CASE("PTX streams: memory is freed after the work that is enqueued") {
    Device();
    Stream stream;
    Number copy;
    void* memory = nullptr;
    REQUIRE_CUDA(cudaMalloc(&memory, sizeof(uint64_t)));
    auto* const number = static_cast<uint64_t*>(memory);
    REQUIRE_CUDA(cudaMemsetAsync(number, 0, sizeof(*number), stream));
    for (int i = 0; i < 100; ++i) REQUIRE_CUDA(AppendDigit(number, 0, stream));
    REQUIRE_CUDA(AppendDigit(number, 7, stream));
    REQUIRE_CUDA(CopyNumber(copy.get(), number, stream));
    CHECK(cudaFreeHost(memory) == cudaErrorInvalidValue);
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(*copy == 7);
    CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  }

  TEST_CASE("PTX streams: a CUDA stream that is destroyed still does its work") {
    Device();
    Number number;
    Held held;
    cudaStream_t handle = nullptr;
    {
      Stream stream;
      handle = stream;
      REQUIRE_CUDA(AppendDigit(number.get(), 8, stream));
    }
    CHECK(AppendDigit(number.get(), 9, handle) == cudaErrorInvalidResourceHandle);
    held.Release();
    Device().SetProfiler(nullptr);  // waits for all work
    CHECK(*number == 8);
  }

  TEST_CASE("PTX streams: only pinned memory is copied behind the caller") {
    Device();
    Stream stream;
    Number pinned;
    Number of_pageable;
    Number of_pinned;
    {
      Held held;
      uint64_t pageable = 1;
      *pinned.get() = 1;
      REQUIRE_CUDA(CopyNumber(of_pageable.get(), &pageable, stream));
      REQUIRE_CUDA(CopyNumber(of_pinned.get(), pinned.get(), stream));
      pageable = 2;
      *pinned.get() = 2;
      CHECK(*of_pageable == 0);
    }
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(*of_pageable == 1);
    CHECK(*of_pinned == 2);
    for (int i = 0; i < 100; ++i) REQUIRE_CUDA(AppendDigit(pinned.get(), 0, stream));
    REQUIRE_CUDA(AppendDigit(pinned.get(), 3, stream));
    uint64_t pageable = 0;
    REQUIRE_CUDA(CopyNumber(&pageable, pinned.get(), stream));
    CHECK(pageable == 3);
  }

  TEST_CASE("PTX streams: launches of a graph are in order, on any CUDA stream") {
    Device();
    for (int i = 0; i < 8; ++i) {
      Stream streams[2];
      Number number;
      REQUIRE_CUDA(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
      for (const uint64_t digit : {1, 2, 3}) {
        REQUIRE_CUDA(AppendDigit(number.get(), digit, streams[0]));
      }
      CHECK(cudaStreamSynchronize(streams[0]) == cudaErrorStreamCaptureUnsupported);
      uint64_t pageable = 0;
      CHECK(CopyNumber(&pageable, number.get(), streams[0]) == cudaErrorStreamCaptureUnsupported);
      CHECK(CopyNumber(number.get(), &pageable, streams[0]) == cudaErrorStreamCaptureUnsupported);
      cudaGraph_t graph = nullptr;
      REQUIRE_CUDA(cudaStreamEndCapture(streams[0], &graph));
      cudaGraphExec_t made = nullptr;
      REQUIRE_CUDA(cudaGraphInstantiate(&made, graph, 0));
      REQUIRE_CUDA(cudaGraphDestroy(graph));
      CHECK(*number == 0);
      Held held;
      for (const Stream& stream : streams) REQUIRE_CUDA(cudaGraphLaunch(made, stream));
      REQUIRE_CUDA(cudaGraphExecDestroy(made));
      held.Release();
      REQUIRE_CUDA(cudaStreamSynchronize(streams[1]));
      CHECK(*number == 123123);
    }
  }

  // The last case: the device is broken from then on.
  TEST_CASE("PTX streams: the fault of a launch appears at a later call") {
    Device();
    Stream stream;
    Number number;
    Held held;
    REQUIRE_CUDA(Launch(&kFault, stream, nullptr));
    REQUIRE_CUDA(AppendDigit(number.get(), 1, stream));
    held.Release();
    CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
    CHECK(Device().failure().find("kernel Fault") != std::string::npos);
    CHECK(*number == 0);
    CHECK(AppendDigit(number.get(), 1, stream) == cudaErrorLaunchFailure);
    CHECK(cudaStreamQuery(stream) == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  }
}

}  // namespace
}  // namespace specd::ptx
