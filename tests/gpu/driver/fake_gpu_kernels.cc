// The functions of FakeGpuContext that FakePeerGpu needs for kernels, and the kernels.
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/gpu/driver/fake_peer_gpu.h"
#include "tests/support/host_words.h"

namespace specd {

namespace {

// A block of one lane, which lets others run whenever it looks at a word.
struct HostDevice : HostWords {
  uint64_t Acquire(const uint64_t* word) const {
    std::this_thread::yield();
    return HostWords::Acquire(word);
  }
  uint64_t lane() const { return 0; }
  uint64_t num_lanes() const { return 1; }
  uint64_t Read(const uint64_t* word) const { return __atomic_load_n(word, __ATOMIC_RELAXED); }
  uint64_t NowNs() const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
  }
  uint64_t SumOfAll(uint64_t own) const { return own; }
  uint64_t OfFirst(uint64_t own) const { return own; }
};

}  // namespace

GpuResult FakeGpuContext::LaunchKernel(GpuStream stream, const std::vector<Piece>& touched,
                                       std::function<void()> kernel) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "LaunchKernel");
  if (!begun.ok()) return begun;
  Stream* const found = Find(stream);
  if (found == nullptr) return Refuse("LaunchKernel", kGpuInvalidHandle, "no stream");
  for (const Piece& piece : touched) {
    if (IsDeviceMemory(piece.address, piece.size_bytes)) continue;
    return Refuse("LaunchKernel", kGpuInvalidValue, "past the end of device memory");
  }
  found->last_ticket = found->queue->Push([this, touched, kernel = std::move(kernel)] {
    kernel();
    std::lock_guard<std::mutex> relock(mutex_);
    for (const Piece& piece : touched) {
      if (!IsDeviceMemory(piece.address, piece.size_bytes)) {
        Violation("memory of a kernel was taken away before it ended");
      }
    }
  });
  return begun;
}

GpuResult FakeGpuContext::Drain() {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Drain");
  if (!begun.ok()) return begun;
  std::vector<Stream> streams;
  for (const auto& [handle, stream] : streams_) streams.push_back(stream);
  lock.unlock();
  for (const Stream& stream : streams) stream.queue->Await(stream.last_ticket);
  return begun;
}

FakePeerGpu::FakePeerGpu(const FakeGpuOptions& options, size_t device_index)
    : gpu_(options, device_index) {
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  if (loading != nullptr && loading == std::string_view("EAGER")) {
    loaded_ = {PeerKernel::kRead, PeerKernel::kEcho};
  }
}

GpuResult FakePeerGpu::Free(GpuAddress address) {
  const auto pieces = piece_bytes_.find(address);
  if (pieces == piece_bytes_.end()) return gpu_.Free(address);
  GpuResult result = GpuResult::Ok();
  for (const uint64_t size_bytes : pieces->second) {
    const GpuResult freed = gpu_.Free(address);
    if (result.ok()) result = freed;
    address += size_bytes;
  }
  piece_bytes_.erase(pieces);
  return result;
}

GpuResult FakePeerGpu::LoadKernel(PeerKernel kernel) {
  return loaded_.insert(kernel).second ? gpu_.Drain() : GpuResult::Ok();
}

GpuResult FakePeerGpu::Launch(GpuStream stream, const PeerLaunch& launch) {
  const GpuResult loaded = LoadKernel(launch.kernel);
  if (!loaded.ok()) return loaded;
  std::vector<FakeGpuContext::Piece> touched = {{launch.words, kNumPeerWords * sizeof(uint64_t)}};
  if (launch.size_bytes != 0) touched.push_back({launch.memory, launch.size_bytes});
  return gpu_.LaunchKernel(stream, touched, [launch] {
    if (launch.kernel == PeerKernel::kRead) {
      RunPeerRead(HostDevice(), launch);
    } else {
      RunPeerEcho(HostDevice(), launch);
    }
  });
}

}  // namespace specd
