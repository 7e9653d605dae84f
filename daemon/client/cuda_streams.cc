#include "daemon/client/cuda_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/awake_time.h"
#include "daemon/client/engine_device.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/round_words.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

// The default CUDA stream of each thread; 0 and 1 are default CUDA streams too.
constexpr uintptr_t kPerThreadStream = 2;

// Of a closing engine, which looks every 50 microseconds.
constexpr int64_t kCloseStepNs = 1'000'000;

constexpr char kRemedy[] = "synchronize the CUDA stream and use specd_submit or specd_submit_batch";
constexpr char kNoFunction[] =
    "the CUDA stream does not take a function of the host, which was to act in its place";

// Lets tests take the path of a device without memory operations, on a device that has them.
absl::StatusOr<bool> AreHostWaitsForced() {
  const char* const value = std::getenv("SPECD_STREAM_WAITS");
  const std::string_view waits = value == nullptr ? "" : value;
  if (waits == "host") return true;
  if (waits.empty() || waits == "device") return false;
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "SPECD_STREAM_WAITS",
                   fmt::format("SPECD_STREAM_WAITS = \"{}\" in the environment is neither "
                               "\"device\" nor \"host\"; unset it",
                               waits));
}

absl::Status Refused(const GpuResult& result, std::string_view what, std::string_view remedy) {
  const bool is_unsupported = result.code() == kGpuNoDriver || result.code() == kGpuNotSupported;
  return MakeError(is_unsupported ? SPECD_ERROR_UNSUPPORTED : SPECD_ERROR_INVALID_ARGUMENT,
                   "cuda_stream",
                   fmt::format("cuda_stream: {}: {}; {}", what, result.text(), remedy));
}

absl::Status CheckNotCapturing(GpuContext* context, GpuStream stream) {
  bool is_capturing = false;
  const GpuResult result = context->IsCapturing(stream, &is_capturing);
  if (!result.ok()) return Refused(result, "the stream cannot be used", kRemedy);
  if (!is_capturing) return absl::OkStatus();
  return MakeError(SPECD_ERROR_STATE, "cuda_stream",
                   "the stream records a graph, in which a round would have the same number at "
                   "every replay; submit before or behind the launch of the graph");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStreams>> CudaStreams::Open(
    const CudaStreamWatch::Options& options, GpuStream stream) {
  const absl::StatusOr<bool> forces_host_waits = AreHostWaitsForced();
  if (!forces_host_waits.ok()) return forces_host_waits.status();
  std::unique_ptr<GpuPlatform> platform = MakeEnginePlatform();
  std::vector<GpuDevice> devices;
  size_t device_index = 0;
  std::unique_ptr<GpuContext> context;
  GpuResult result = platform->ListDevices(&devices);
  if (result.ok()) result = platform->FindDevice(stream, &device_index);
  if (!result.ok()) return Refused(result, "the stream's device is not known", kRemedy);
  if (device_index >= devices.size()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "cuda_stream",
                     fmt::format("the stream is of device {}, and {} are there; {}", device_index,
                                 devices.size(), kRemedy));
  }
  result = platform->OpenContext(device_index, &context);
  if (!result.ok()) return Refused(result, "the stream's device cannot be used", kRemedy);
  if (absl::Status status = CheckNotCapturing(context.get(), stream); !status.ok()) return status;
  const SegmentLayout& layout = options.segment->layout();
  GpuAddress words = 0;
  result = context->RegisterHost(options.segment->at(layout.round_words_offset),
                                 layout.round_words_bytes, &words);
  if (!result.ok()) {
    return Refused(result, "the words of the session cannot be registered with the device",
                   "raise RLIMIT_MEMLOCK, or synchronize the stream and use specd_submit or "
                   "specd_submit_batch");
  }
  const GpuWord width = devices[device_index].has_64_bit_words ? GpuWord::k64 : GpuWord::k32;
  auto streams = std::unique_ptr<CudaStreams>(new CudaStreams(
      options, std::move(platform), std::move(context), device_index, width, words));
  streams->forces_host_waits_ = *forces_host_waits;
  absl::Status started = streams->watch_.Start();
  if (started.ok()) return streams;
  (void)streams->Close(0);
  return started;
}

CudaStreams::CudaStreams(const CudaStreamWatch::Options& options,
                         std::unique_ptr<GpuPlatform> platform, std::unique_ptr<GpuContext> context,
                         size_t device_index, GpuWord width, GpuAddress words)
    : options_(options),
      platform_(std::move(platform)),
      context_(std::move(context)),
      device_index_(device_index),
      width_(width),
      words_(words),
      watch_(options) {}

CudaStreams::~CudaStreams() { SPECD_CHECK(context_ == nullptr); }

absl::Status CudaStreams::CheckStream(GpuStream stream) const {
  if (broken_) {
    return MakeError(SPECD_ERROR_STATE, "cuda_stream",
                     "an earlier round could be enqueued on its stream in part only; use "
                     "specd_submit, or close and attach again");
  }
  if (absl::Status status = CheckDevice(stream); !status.ok()) return status;
  return CheckNotCapturing(context_.get(), stream);
}

absl::Status CudaStreams::Check(GpuStream stream, uint64_t number, bool* is_free) {
  if (absl::Status status = CheckStream(stream); !status.ok()) return status;
  *is_free = watch_.IsFree(number, stream.handle);
  return absl::OkStatus();
}

// Asked for every round: the handle of a destroyed CUDA stream may be given to one of another
// device.
absl::Status CudaStreams::CheckDevice(GpuStream stream) const {
  const auto handle = reinterpret_cast<uintptr_t>(stream.handle);
  if (handle == kPerThreadStream) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "cuda_stream",
        "cuda_stream = 2 is another stream in every thread; give a stream of your own");
  }
  size_t device_index = 0;
  const GpuResult result = platform_->FindDevice(stream, &device_index);
  if (!result.ok()) return Refused(result, "the stream's device is not known", kRemedy);
  if (device_index == device_index_) return absl::OkStatus();
  // A default CUDA stream is one of the current context.
  if (handle < kPerThreadStream) {
    return MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "cuda_stream",
        fmt::format("the default stream is that of device {}, which is current, and the rounds of "
                    "this engine are on streams of device {}; make that one current",
                    device_index, device_index_));
  }
  return MakeError(
      SPECD_ERROR_INVALID_ARGUMENT, "cuda_stream",
      fmt::format("cuda_stream is of device {}, and the rounds of this engine are on streams of "
                  "device {}, that of the first one; submit on a stream of device {}, or {}",
                  device_index, device_index_, device_index_, kRemedy));
}

GpuAddress CudaStreams::AddressOf(uint64_t number, uint64_t offset_bytes) const {
  const Segment& segment = *options_.segment;
  const auto* first = reinterpret_cast<const char*>(segment.round_words(1));
  const auto* slot = reinterpret_cast<const char*>(segment.round_words(number));
  return words_ + static_cast<uint64_t>(slot - first) + offset_bytes;
}

GpuAddress CudaStreams::StatusAddress(uint64_t number) const {
  return AddressOf(number, offsetof(RoundWords, status));
}

absl::Status CudaStreams::WriteWord(GpuStream stream, uint64_t number, uint64_t offset_bytes,
                                    bool* by_host) {
  *by_host = false;
  if (host_waits_ == nullptr && !forces_host_waits_) {
    const GpuResult result =
        context_->WriteValue(stream, AddressOf(number, offset_bytes), width_, number);
    if (result.ok()) return absl::OkStatus();
    // No attribute says whether a device has memory operations; the first write finds out.
    if (result.code() != kGpuNotSupported) {
      return Refused(result, "the stream does not take the write of a word", kRemedy);
    }
  }
  *by_host = true;
  if (host_waits_ != nullptr) return absl::OkStatus();
  const GpuResult result = HostWaits::Open(context_.get(), options_.segment, &host_waits_);
  return result.ok() ? absl::OkStatus() : Refused(result, kNoFunction, kRemedy);
}

absl::Status CudaStreams::Begin(GpuStream stream, uint64_t number) {
  bool by_host = false;
  absl::Status status = WriteWord(stream, number, offsetof(RoundWords, ready), &by_host);
  if (!status.ok() || !by_host) return status;
  const GpuResult result = host_waits_->Begin(stream, number);
  return result.ok() ? absl::OkStatus() : Refused(result, kNoFunction, kRemedy);
}

absl::StatusOr<bool> CudaStreams::MarkDrafts(GpuStream stream, uint64_t number) {
  if (absl::Status status = CheckStream(stream); !status.ok()) return status;
  RoundWords* const words = options_.segment->round_words(number);
  uint64_t& last = marks_[(number - 1) & (options_.segment->limits().ring_depth - 1)];
  if (last != 0 && !AreDraftsMarked(*words, last)) return last == number;
  if (last == number) TakeBackMark(words, number);
  bool by_host = false;
  absl::Status status = WriteWord(stream, number, offsetof(RoundWords, drafts), &by_host);
  if (status.ok() && by_host) {
    const GpuResult result = host_waits_->Mark(stream, number);
    if (!result.ok()) status = Refused(result, kNoFunction, kRemedy);
  }
  // A mark that was taken back, and could not be enqueued again, will not come.
  last = status.ok() ? number : 0;
  if (!status.ok()) return status;
  is_unused_ = false;
  return true;
}

bool CudaStreams::HaveAllMarksCome() const {
  return std::all_of(marks_.begin(), marks_.end(), [this](uint64_t number) {
    return number == 0 || AreDraftsMarked(*options_.segment->round_words(number), number);
  });
}

GpuResult CudaStreams::Finish(GpuStream stream, uint64_t number) {
  if (host_waits_ != nullptr) return host_waits_->Finish(stream);
  const GpuResult result =
      context_->WaitValue(stream, AddressOf(number, offsetof(RoundWords, done)), width_, number);
  if (!result.ok()) return result;
  return context_->WriteValue(stream, AddressOf(number, offsetof(RoundWords, passed)), width_,
                              number);
}

absl::Status CudaStreams::Enqueue(GpuStream stream, uint64_t number) {
  RoundWords* const words = options_.segment->round_words(number);
  const uint64_t passed = words->passed.load(std::memory_order_relaxed);
  if (absl::Status status = Begin(stream, number); !status.ok()) return status;
  is_unused_ = false;
  // Begin has succeeded, so the word is now this round's. If Begin fails, the word must stay with
  // the entry's last round, which would otherwise never seem to have passed.
  TakeBackPassed(words, passed, number);
  // The watch must know the round before Finish, which may wait for room on the CUDA stream.
  watch_.Add(number, stream.handle);
  const GpuResult result = Finish(stream, number);
  if (result.ok()) return absl::OkStatus();
  // Enqueued operations cannot be taken back. The CUDA stream continues, and the number is free for
  // a round that is not on a CUDA stream.
  Release(words, number);
  broken_ = true;
  return Refused(result, "the stream takes a part of the round only", kRemedy);
}

bool CudaStreams::Close(int64_t timeout_ns) {
  watch_.Stop();
  watch_.ReleaseAll(/*also_claimed=*/false);
  // The device writes its words without a bell, and a CUDA stream needs some microseconds to see
  // its word. A CUDA stream that could not take a whole round never says that it has passed.
  const int64_t time_ns = broken_ ? 0 : timeout_ns;
  AwakeTime awake(std::max(time_ns / 4, kCloseStepNs));
  while (!watch_.HaveAllPassed() || !HaveAllMarksCome()) {
    const int64_t waited_ns = awake.Step(options_.clock->NowNs());
    // The daemon has half of the time. The CUDA streams of rounds that it did not release have the
    // other half.
    if (waited_ns >= time_ns / 2) watch_.ReleaseAll(/*also_claimed=*/true);
    if (waited_ns >= time_ns) {
      if (host_waits_ != nullptr) KeepForever(std::move(host_waits_));
      KeepForever(std::move(context_));
      return false;
    }
    absl::SleepFor(absl::Microseconds(50));
  }
  host_waits_.reset();
  // A broken context may not give the words back.
  const bool is_given_back =
      context_->UnregisterHost(options_.segment->at(options_.segment->layout().round_words_offset))
          .ok();
  context_.reset();
  return is_given_back;
}

}  // namespace specd
