// FakeGpuPlatform and FakeGpuContext share a fake GPU between the real processes of tests, over
// memfds.
//
// They keep the rules of CUDA that attach, ordering, crash and abort depend on:
// - Handles name whole allocations and cannot be opened in their own process. A second open counts.
// - An address that is allocated again is another buffer.
// - CUDA streams are in-order queues, and any store ends a wait.
// - Events remember records that were called, and host functions run one at a time.
//
// violations() lists uses that CUDA leaves undefined. If a process frees memory that another still
// uses, the memory is poisoned. Words for CUDA streams are found only at the address of
// RegisterHost, which differs from the host's. Any thread may call. Two contexts on a device share
// only the state that the driver shares: use one.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/gpu/driver/fake_gpu_block.h"
#include "tests/gpu/driver/fake_gpu_queue.h"
#include "tests/support/engine_gpu.h"

namespace specd {

struct FakeGpuOptions {
  std::vector<GpuDevice> devices = {{.name = "Fake GPU 0",
                                     .uuid = "GPU-00000000-0000-0000-0000-000000000000",
                                     .has_64_bit_words = true,
                                     .has_mps = false,
                                     .granularity_bytes = uint64_t{2} << 20},
                                    {.name = "Fake GPU 1",
                                     .uuid = "GPU-11111111-1111-1111-1111-111111111111",
                                     .has_64_bit_words = true,
                                     .has_mps = false,
                                     .granularity_bytes = uint64_t{2} << 20}};
  bool has_driver = true;
  bool has_stream_words = true;  // WriteValue and WaitValue
  uint64_t seed = 1;
  uint64_t memory_bytes = uint64_t{1} << 36;  // the largest allocation
};

// Makes a call fail: the method `call`, after `after` successes. A sticky failure breaks the
// context: every later call fails with the same code.
struct FakeGpuFault {
  std::string call = {};
  int after = 0;
  int code = kGpuUnknown;
  bool is_sticky = false;
};

class FakeGpuContext final : public EngineGpu {
 public:
  FakeGpuContext(const FakeGpuOptions& options, size_t device_index);
  ~FakeGpuContext() override;

  void Inject(const FakeGpuFault& fault);
  // From now on, whether CUDA streams capture graphs.
  void SetCapturing(bool is_capturing);
  bool is_capturing();
  // Whether the CUDA stream is held by a wait, or by a function that has not returned.
  bool IsHeld(GpuStream stream);
  // The uses by this process that CUDA leaves undefined.
  std::vector<std::string> violations();
  // Mapped memory of other processes; each mapping counts once.
  size_t num_imports();

  // Memory of an engine's other allocators. Free returns it; of neighbouring pieces, each needs its
  // own Free.
  GpuResult AllocateVmm(const std::vector<uint64_t>& piece_bytes, GpuAddress* address);
  GpuResult AllocateVmm(uint64_t size_bytes, GpuAddress* address) {
    return AllocateVmm(std::vector<uint64_t>{size_bytes}, address);
  }
  GpuResult AllocateFromPool(uint64_t size_bytes, GpuAddress* address);
  GpuResult AllocateUnshareable(uint64_t size_bytes, GpuAddress* address);

  // A kernel that touches these pieces of memory from begin to end. Each piece lies in one
  // allocation, in neighbouring physical pieces, or in one registration.
  struct Piece {
    GpuAddress address = 0;
    uint64_t size_bytes = 0;
  };
  GpuResult LaunchKernel(GpuStream stream, const std::vector<Piece>& touched,
                         std::function<void()> kernel);
  // Returns when every CUDA stream has done all work enqueued so far.
  GpuResult Drain();

  GpuResult Allocate(uint64_t size_bytes, GpuAddress* address) override;
  GpuResult Free(GpuAddress address) override;
  GpuResult Describe(GpuAddress address, GpuAllocation* allocation) override;
  GpuResult Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) override;
  GpuResult RegisterHost(void* host, uint64_t size_bytes, GpuAddress* device) override;
  GpuResult UnregisterHost(void* host) override;
  // The device's address of registered host memory.
  GpuResult FindHost(void* host, GpuAddress* device);
  GpuResult Import(const GpuImport& import, GpuMapping* mapping) override;
  GpuResult Close(const GpuMapping& mapping) override;
  GpuResult CreateStream(GpuStream* stream) override;
  GpuResult DestroyStream(GpuStream stream) override;
  GpuResult Synchronize(GpuStream stream) override;
  GpuResult Query(GpuStream stream) override;
  GpuResult WriteValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override;
  GpuResult WaitValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override;
  GpuResult IsCapturing(GpuStream stream, bool* is_capturing) override;
  GpuResult Copy(GpuStream stream, void* target, const void* source, uint64_t size_bytes) override;
  GpuResult LaunchHostFunction(GpuStream stream, GpuHostFunction function, void* argument) override;
  GpuResult CreateEvent(GpuEvent* event) override;
  GpuResult DestroyEvent(GpuEvent event) override;
  GpuResult RecordEvent(GpuEvent event, GpuStream stream) override;
  GpuResult WaitEvent(GpuStream stream, GpuEvent event) override;
  GpuResult Check() override;

 private:
  struct Stream {
    FakeGpuQueue* queue = nullptr;
    uint64_t last_ticket = 0;
  };
  // The number of records that were called, and the last one that is done.
  struct Event {
    std::atomic<uint64_t> recorded = 0;
    std::atomic<uint64_t> completed = 0;
  };
  using Blocks = std::vector<std::unique_ptr<FakeGpuBlock>>;
  struct Imported {
    Blocks blocks;  // one for each piece of kind kVmm, otherwise one
    uint64_t size_bytes = 0;
    GpuMemoryKind kind = GpuMemoryKind::kIpc;
    uint64_t buffer_id = 0;  // this process's id
    int count = 0;
  };
  struct HostRange {
    GpuAddress device = 0;
    uint64_t size_bytes = 0;
    bool is_own_mapping = false;
  };

  static GpuResult Refuse(const char* call, int code, const char* why);
  // Locks, and counts the call towards the fault. If the result is not ok, it is the call's answer.
  GpuResult Begin(std::unique_lock<std::mutex>* lock, const char* call);
  GpuResult AllocateKind(const char* call, FakeBlockKind kind, uint64_t size_bytes,
                         uint64_t pool_id, GpuAddress* address);
  // The address of freed memory of that size, for the next allocation; null: none.
  void* TakePlace(uint64_t size_bytes);
  GpuResult OpenBlock(const GpuImport& import, std::unique_ptr<FakeGpuBlock>* block);
  GpuResult OpenPieces(const GpuImport& import, Blocks* blocks, uint64_t* size_bytes);
  GpuResult CheckDevice(const FakeGpuBlock& block);
  GpuResult WordAt(GpuAddress word, GpuWord width, void** host);
  bool IsDeviceMemory(uint64_t address, uint64_t size_bytes);
  void Violation(std::string text);
  // Checks a use of another process's block, and records a violation if its owner is gone.
  void CheckAlive(const FakeGpuBlock& block, const char* use);
  Stream* Find(GpuStream stream);
  // `push` puts work on the CUDA stream's queue and returns its ticket.
  GpuResult EnqueueWith(
      const char* call, GpuEvent event, GpuStream stream,
      const std::function<uint64_t(FakeGpuQueue&, const std::shared_ptr<Event>&)>& push);

  const FakeGpuOptions options_;
  const size_t device_index_;
  const pid_t pid_;

  std::mutex mutex_;
  FakeGpuFault fault_;
  int broken_ = kGpuOk;
  bool is_capturing_ = false;
  std::vector<std::string> violations_;
  uint64_t next_id_;
  std::map<GpuAddress, std::unique_ptr<FakeGpuBlock>> allocations_;
  std::multimap<uint64_t, void*> places_;  // freed addresses by their size
  std::unique_ptr<FakeGpuBlock> pool_;
  std::map<GpuAddress, Imported> imports_;
  std::map<void*, HostRange> host_ranges_;
  std::map<void*, Stream> streams_;
  std::map<void*, std::shared_ptr<Event>> events_;
  // The last members: their threads end before the memory that they touch.
  std::unique_ptr<FakeGpuQueue> host_functions_;       // made at the first use
  std::vector<std::unique_ptr<FakeGpuQueue>> queues_;  // made when a stream is laid onto one
};

class FakeGpuPlatform final : public GpuPlatform {
 public:
  explicit FakeGpuPlatform(FakeGpuOptions options = {}) : options_(std::move(options)) {}
  GpuResult ListDevices(std::vector<GpuDevice>* devices) override;
  GpuResult OpenContext(size_t device_index, std::unique_ptr<GpuContext>* context) override;

 private:
  const FakeGpuOptions options_;
};

}  // namespace specd
