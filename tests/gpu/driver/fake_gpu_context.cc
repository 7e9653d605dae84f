#include "tests/gpu/driver/fake_gpu_context.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/core/check.h"

namespace specd {

namespace {

// word - value >= 0 as a signed number of the word's width.
bool HasReached(const void* word, GpuWord width, uint64_t value) {
  if (width == GpuWord::k64) {
    const uint64_t seen = __atomic_load_n(static_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE);
    return static_cast<int64_t>(seen - value) >= 0;
  }
  const uint32_t seen = __atomic_load_n(static_cast<const uint32_t*>(word), __ATOMIC_ACQUIRE);
  return static_cast<int32_t>(seen - static_cast<uint32_t>(value)) >= 0;
}

void Store(void* word, GpuWord width, uint64_t value) {
  if (width == GpuWord::k64) {
    __atomic_store_n(static_cast<uint64_t*>(word), value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(static_cast<uint32_t*>(word), static_cast<uint32_t>(value), __ATOMIC_RELEASE);
  }
}

constexpr size_t kNumQueues = 32;  // CUDA_DEVICE_MAX_CONNECTIONS
thread_local bool is_in_host_function = false;

}  // namespace

FakeGpuContext::FakeGpuContext(const FakeGpuOptions& options, size_t device_index)
    : options_(options),
      device_index_(device_index),
      pid_(getpid()),
      // No two objects of a process have the same number, even on two devices. The lowest handles
      // of streams mean default streams.
      next_id_((uint64_t{device_index} << 32) + 16),
      queues_(kNumQueues) {}

FakeGpuContext::~FakeGpuContext() {
  queues_.clear();
  for (const auto& [host, range] : host_ranges_) {
    if (range.is_own_mapping) munmap(reinterpret_cast<void*>(range.device), range.size_bytes);
  }
  for (const auto& [size_bytes, place] : places_) munmap(place, size_bytes);
}

GpuResult FakeGpuContext::Refuse(const char* call, int code, const char* why) {
  return GpuResult::Error(fmt::format("fake {}: error {} ({})", call, code, why), code);
}

GpuResult FakeGpuContext::Begin(std::unique_lock<std::mutex>* lock, const char* call) {
  *lock = std::unique_lock<std::mutex>(mutex_);
  // A driver does not survive fork.
  if (getpid() != pid_) return Refuse(call, kGpuNotInitialized, "used after fork");
  if (is_in_host_function) {
    Violation(fmt::format("{} was called by a function of the host", call));
    return Refuse(call, kGpuNotPermitted, "in a host function");
  }
  if (broken_ != kGpuOk) return Refuse(call, broken_, "the context is broken");
  if (fault_.call != call || fault_.after-- > 0) return GpuResult::Ok();
  fault_.call.clear();
  if (fault_.is_sticky) broken_ = fault_.code;
  return Refuse(call, fault_.code, "injected");
}

void FakeGpuContext::Inject(const FakeGpuFault& fault) {
  std::lock_guard<std::mutex> lock(mutex_);
  fault_ = fault;
}

void FakeGpuContext::SetCapturing(bool is_capturing) {
  std::lock_guard<std::mutex> lock(mutex_);
  is_capturing_ = is_capturing;
}

bool FakeGpuContext::is_capturing() {
  std::lock_guard<std::mutex> lock(mutex_);
  return is_capturing_;
}

std::vector<std::string> FakeGpuContext::violations() {
  std::lock_guard<std::mutex> lock(mutex_);
  return violations_;
}

void FakeGpuContext::Violation(std::string text) { violations_.push_back(std::move(text)); }

void FakeGpuContext::CheckAlive(const FakeGpuBlock& block, const char* use) {
  if (block.is_exporter() || block.header()->kind == FakeBlockKind::kVmm) return;
  if (!block.IsExporterGone()) return;
  Violation(fmt::format("buffer {} of another process was {} after its owner had freed it or died",
                        block.header()->buffer_id, use));
}

// ---- streams

GpuResult FakeGpuContext::CreateStream(GpuStream* stream) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "CreateStream");
  if (!begun.ok()) return begun;
  const uint64_t id = next_id_++;
  std::unique_ptr<FakeGpuQueue>& queue = queues_[streams_.size() % queues_.size()];
  if (queue == nullptr) queue = std::make_unique<FakeGpuQueue>(options_.seed + id);
  stream->handle = reinterpret_cast<void*>(id);
  streams_[stream->handle] = {queue.get(), 0};
  return begun;
}

FakeGpuContext::Stream* FakeGpuContext::Find(GpuStream stream) {
  const auto found = streams_.find(stream.handle);
  return found == streams_.end() ? nullptr : &found->second;
}

GpuResult FakeGpuContext::DestroyStream(GpuStream stream) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "DestroyStream");
  if (!begun.ok()) return begun;
  // The CUDA stream still does its enqueued work.
  if (streams_.erase(stream.handle) == 0) {
    return Refuse("DestroyStream", kGpuInvalidHandle, "no stream");
  }
  return begun;
}

GpuResult FakeGpuContext::Synchronize(GpuStream stream) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Synchronize");
  if (!begun.ok()) return begun;
  const Stream* const found = Find(stream);
  if (found == nullptr) return Refuse("Synchronize", kGpuInvalidHandle, "no stream");
  const Stream waited = *found;
  lock.unlock();
  waited.queue->Await(waited.last_ticket);
  return begun;
}

GpuResult FakeGpuContext::Query(GpuStream stream) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Query");
  if (!begun.ok()) return begun;
  const Stream* const found = Find(stream);
  if (found == nullptr) return Refuse("Query", kGpuInvalidHandle, "no stream");
  if (found->queue->IsDone(found->last_ticket)) return begun;
  return Refuse("Query", kGpuNotReady, "not ready");
}

// The host's place of a word, which must lie in memory that the device can reach.
GpuResult FakeGpuContext::WordAt(GpuAddress word, GpuWord width, void** host) {
  const auto width_bytes = static_cast<uint64_t>(width);
  if (width == GpuWord::k64 && !options_.devices[device_index_].has_64_bit_words) {
    return Refuse("word", kGpuNotSupported, "64-bit words");
  }
  if (word % width_bytes != 0 || !IsDeviceMemory(word, width_bytes)) {
    return Refuse("word", kGpuInvalidValue, "no word the device can reach");
  }
  *host = reinterpret_cast<void*>(word);
  return GpuResult::Ok();
}

bool FakeGpuContext::IsDeviceMemory(uint64_t address, uint64_t size_bytes) {
  const auto holds = [&](uint64_t base, uint64_t bytes) {
    return address >= base && address - base < bytes && size_bytes <= bytes - (address - base);
  };
  for (const auto& [host, range] : host_ranges_) {
    if (holds(range.device, range.size_bytes)) return true;
  }
  for (const auto& [base, imported] : imports_) {
    if (!holds(base, imported.size_bytes)) continue;
    CheckAlive(*imported.blocks.front(), "used");
    return true;
  }
  // Pieces of physical memory that lie side by side are as one.
  for (const auto& [base, block] : allocations_) {
    if (address < base || address - base >= block->size_bytes()) continue;
    const uint64_t room_bytes = block->size_bytes() - (address - base);
    if (size_bytes <= room_bytes) return true;
    if (block->header()->kind != FakeBlockKind::kVmm) return false;
    address += room_bytes;
    size_bytes -= room_bytes;
  }
  return false;
}

GpuResult FakeGpuContext::WriteValue(GpuStream stream, GpuAddress word, GpuWord width,
                                     uint64_t value) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "WriteValue");
  if (!begun.ok()) return begun;
  if (!options_.has_stream_words) return Refuse("WriteValue", kGpuNotSupported, "no words");
  Stream* const found = Find(stream);
  if (found == nullptr) return Refuse("WriteValue", kGpuInvalidHandle, "no stream");
  void* host = nullptr;
  const GpuResult place = WordAt(word, width, &host);
  if (!place.ok()) return place;
  found->last_ticket = found->queue->Push([=] { Store(host, width, value); });
  return begun;
}

GpuResult FakeGpuContext::WaitValue(GpuStream stream, GpuAddress word, GpuWord width,
                                    uint64_t value) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "WaitValue");
  if (!begun.ok()) return begun;
  if (!options_.has_stream_words) return Refuse("WaitValue", kGpuNotSupported, "no words");
  Stream* const found = Find(stream);
  if (found == nullptr) return Refuse("WaitValue", kGpuInvalidHandle, "no stream");
  void* host = nullptr;
  const GpuResult place = WordAt(word, width, &host);
  if (!place.ok()) return place;
  found->last_ticket = found->queue->PushWait([=] { return HasReached(host, width, value); });
  return begun;
}

// All functions run on one thread, as CUDA allows, in the order in which their streams come to
// them.
GpuResult FakeGpuContext::LaunchHostFunction(GpuStream stream, GpuHostFunction function,
                                             void* argument) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "LaunchHostFunction");
  if (!begun.ok()) return begun;
  Stream* const found = Find(stream);
  if (found == nullptr) return Refuse("LaunchHostFunction", kGpuInvalidHandle, "no stream");
  if (host_functions_ == nullptr) host_functions_ = std::make_unique<FakeGpuQueue>(options_.seed);
  FakeGpuQueue* const thread = host_functions_.get();
  const auto run = [function, argument] {
    is_in_host_function = true;
    function(argument);
    is_in_host_function = false;
  };
  uint64_t ticket = 0;  // of the function, once the stream has come to it
  found->last_ticket = found->queue->PushWait([=]() mutable {
    if (ticket == 0) ticket = thread->Push(run);
    return thread->IsDone(ticket);
  });
  return begun;
}

bool FakeGpuContext::IsHeld(GpuStream stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Stream* const found = Find(stream);
  return found != nullptr && found->queue->IsHeld();
}

GpuResult FakeGpuContext::IsCapturing(GpuStream stream, bool* is_capturing) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "IsCapturing");
  if (!begun.ok()) return begun;
  if (Find(stream) == nullptr) return Refuse("IsCapturing", kGpuInvalidHandle, "no stream");
  *is_capturing = is_capturing_;
  return begun;
}

GpuResult FakeGpuContext::Copy(GpuStream stream, void* target, const void* source,
                               uint64_t size_bytes) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Copy");
  if (!begun.ok()) return begun;
  Stream* const found = Find(stream);
  if (found == nullptr) return Refuse("Copy", kGpuInvalidHandle, "no stream");
  // One side at least is the device's, in the range that is copied.
  const bool is_known = IsDeviceMemory(reinterpret_cast<uintptr_t>(target), size_bytes) ||
                        IsDeviceMemory(reinterpret_cast<uintptr_t>(source), size_bytes);
  if (!is_known) return Refuse("Copy", kGpuInvalidValue, "past the end of device memory");
  found->last_ticket = found->queue->Push([=] { std::memcpy(target, source, size_bytes); });
  return begun;
}

GpuResult FakeGpuContext::Check() {
  std::unique_lock<std::mutex> lock;
  return Begin(&lock, "Check");
}

// ---- the platform

GpuResult FakeGpuPlatform::ListDevices(std::vector<GpuDevice>* devices) {
  devices->clear();
  if (!options_.has_driver) {
    return GpuResult::Error("libcuda.so.1 cannot be loaded (fake); install the NVIDIA driver",
                            kGpuNoDriver);
  }
  *devices = options_.devices;
  return GpuResult::Ok();
}

GpuResult FakeGpuPlatform::OpenContext(size_t device_index, std::unique_ptr<GpuContext>* context) {
  SPECD_CHECK(device_index < options_.devices.size());
  *context = std::make_unique<FakeGpuContext>(options_, device_index);
  return GpuResult::Ok();
}

}  // namespace specd
