// A GPU that is not there, shared between real processes: GpuPlatform and GpuContext over memfds.
//
// It keeps the rules of CUDA that attach, ordering, crash and abort depend on: handles stand for
// whole allocations and cannot be opened where they come from; opening twice counts; an address
// that is allocated again is another buffer; streams are in-order queues, and a wait ends by any
// store; events remember records, not intentions; functions of the host run one at a time. What
// CUDA leaves undefined is reported by violations(), and memory that is freed under somebody is
// poisoned. Words for streams are only found where RegisterHost put them, which is another address
// than the host's.
//
// Any thread may call. Two contexts on a device share nothing but what the driver shares: use one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/core/gpu_context.h"
#include "tests/support/fake_gpu_block.h"
#include "tests/support/fake_gpu_queue.h"

namespace specd {

struct FakeGpuOptions {
  std::vector<GpuDevice> devices = {{.name = "Fake GPU 0",
                                     .uuid = "GPU-00000000-0000-0000-0000-000000000000",
                                     .has_ipc_events = true,
                                     .has_64_bit_words = true,
                                     .has_mps = false,
                                     .granularity_bytes = uint64_t{2} << 20},
                                    {.name = "Fake GPU 1",
                                     .uuid = "GPU-11111111-1111-1111-1111-111111111111",
                                     .has_ipc_events = true,
                                     .has_64_bit_words = true,
                                     .has_mps = false,
                                     .granularity_bytes = uint64_t{2} << 20}};
  bool has_driver = true;
  size_t num_queues = 32;  // CUDA_DEVICE_MAX_CONNECTIONS
  uint64_t seed = 1;
  uint64_t memory_bytes = uint64_t{1} << 36;  // one allocation cannot have more
};

// Makes a call fail: the method of that name, after that many successes. A sticky failure breaks
// the context: every later call fails with the same code.
struct FakeGpuFault {
  std::string call = {};
  int after = 0;
  int code = kGpuUnknown;
  bool is_sticky = false;
};

class FakeGpuContext final : public GpuContext {
 public:
  FakeGpuContext(const FakeGpuOptions& options, size_t device_index);
  ~FakeGpuContext() override;

  void Inject(const FakeGpuFault& fault);
  // From now on streams record graphs, or no longer do.
  void SetCapturing(bool is_capturing);
  bool is_capturing();
  // Does the stream stand at a wait, or at a function that has not returned?
  bool IsHeld(GpuStream stream);
  // What this process did that CUDA leaves undefined.
  std::vector<std::string> violations();
  // Mapped memory of other processes, counted once each.
  size_t num_imports();

  // Memory as other allocators of an engine make it. Free gives it back, of pieces that lie side by
  // side each one by itself.
  GpuResult AllocateVmm(const std::vector<uint64_t>& piece_bytes, GpuAddress* address);
  GpuResult AllocateVmm(uint64_t size_bytes, GpuAddress* address) {
    return AllocateVmm(std::vector<uint64_t>{size_bytes}, address);
  }
  GpuResult AllocateFromPool(uint64_t size_bytes, GpuAddress* address);
  GpuResult AllocateUnshareable(uint64_t size_bytes, GpuAddress* address);

  // A kernel that touches these pieces of memory, each in one allocation (or in pieces of physical
  // memory side by side) or registration, from its beginning to its end.
  struct Piece {
    GpuAddress address = 0;
    uint64_t size_bytes = 0;
  };
  GpuResult LaunchKernel(GpuStream stream, const std::vector<Piece>& touched,
                         std::function<void()> kernel);
  // Returns when every stream has done what it was given until now.
  GpuResult Drain();

  GpuResult Allocate(uint64_t size_bytes, GpuAddress* address) override;
  GpuResult Free(GpuAddress address) override;
  GpuResult Describe(GpuAddress address, GpuAllocation* allocation) override;
  GpuResult Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) override;
  GpuResult RegisterHost(void* host, uint64_t size_bytes, GpuAddress* device) override;
  GpuResult UnregisterHost(void* host) override;
  // Where the device sees host memory that was registered.
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
  GpuResult CreateSharedEvent(GpuEvent* event) override;
  GpuResult ExportEvent(GpuEvent event, GpuHandle* handle) override;
  GpuResult OpenEvent(const GpuHandle& handle, GpuEvent* event) override;
  GpuResult DestroyEvent(GpuEvent event) override;
  GpuResult RecordEvent(GpuEvent event, GpuStream stream) override;
  GpuResult WaitEvent(GpuStream stream, GpuEvent event) override;
  GpuResult Check() override;

 private:
  struct Stream {
    FakeGpuQueue* queue = nullptr;
    uint64_t last_ticket = 0;
  };
  using Blocks = std::vector<std::unique_ptr<FakeGpuBlock>>;
  struct Imported {
    Blocks blocks;  // of kind kVmm as many as there are pieces, else one
    uint64_t size_bytes = 0;
    GpuMemoryKind kind = GpuMemoryKind::kIpc;
    uint64_t buffer_id = 0;  // ours
    int count = 0;
  };
  struct HostRange {
    GpuAddress device = 0;
    uint64_t size_bytes = 0;
    bool is_own_mapping = false;
  };

  static GpuResult Refuse(const char* call, int code, const char* why);
  // Locks, and counts the call towards the fault. What is not ok is the call's answer.
  GpuResult Begin(std::unique_lock<std::mutex>* lock, const char* call);
  GpuResult AllocateKind(const char* call, FakeBlockKind kind, uint64_t size_bytes,
                         uint64_t pool_id, GpuAddress* address);
  // Where freed memory of that size was, for the next that asks for it; null: nowhere.
  void* TakePlace(uint64_t size_bytes);
  GpuResult OpenBlock(const GpuImport& import, std::unique_ptr<FakeGpuBlock>* block);
  GpuResult OpenPieces(const GpuImport& import, Blocks* blocks, uint64_t* size_bytes);
  GpuResult CheckDevice(const FakeGpuBlock& block);
  GpuResult WordAt(GpuAddress word, GpuWord width, void** host);
  bool IsDeviceMemory(uint64_t address, uint64_t size_bytes);
  void Violation(std::string text);
  // The answer to a use of somebody else's block: recorded where its owner is gone.
  void CheckAlive(const FakeGpuBlock& block, const char* use);
  GpuResult MakeEvent(const char* call, GpuEvent* event);
  Stream* Find(GpuStream stream);
  std::shared_ptr<FakeGpuBlock> Find(GpuEvent event);
  // `push` returns the ticket of what it puts on the stream's queue.
  GpuResult EnqueueWith(
      const char* call, GpuEvent event, GpuStream stream,
      const std::function<uint64_t(FakeGpuQueue&, const std::shared_ptr<FakeGpuBlock>&)>& push);

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
  std::multimap<uint64_t, void*> places_;  // freed addresses by the size that was there
  std::unique_ptr<FakeGpuBlock> pool_;
  std::map<GpuAddress, Imported> imports_;
  std::map<void*, HostRange> host_ranges_;
  std::map<void*, Stream> streams_;
  std::map<void*, std::shared_ptr<FakeGpuBlock>> events_;
  // Last, so that their threads end before what they touch.
  std::unique_ptr<FakeGpuQueue> host_functions_;  // made for the first one
  std::vector<std::unique_ptr<FakeGpuQueue>> queues_;
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
