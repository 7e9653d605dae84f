// GpuPlatform and GpuContext: what processes need of a driver to share a GPU, as an interface, so
// that attach, ordering, crash and abort of GPU memory can be tested where there is none.
//
// An engine describes and exports memory that it owns; the daemon imports it, orders its own work
// against the engine's through words in shared memory or through events, and closes it again
// (docs/GPU.md, "Memory between processes"). Rounds themselves are launched through
// GpuDriver, on the same device: both work in its primary context. A GpuContext serves one device.
// Its calls may come from any thread, and leave the context that is current there as it was.
//
// Implementations: kernels/cuda/driver_platform.h over libcuda.so.1, loaded when it is first asked
// for; tests/support/fake_gpu_context.h over memfds, between real processes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/core/gpu_result.h"

namespace specd {

// Device memory, or host memory as the device sees it. Two processes have different addresses for
// the same bytes.
using GpuAddress = uint64_t;

// How memory was allocated decides how it travels. Values as on the wire (docs/PROTOCOL.md).
enum class GpuMemoryKind : uint32_t {
  kIpc = 1,   // cudaMalloc: 64 bytes that stand for the whole allocation
  kVmm = 2,   // cuMemCreate, such as PyTorch's expandable segments: a descriptor for each piece
  kPool = 3,  // cudaMallocAsync: the pool's descriptor, and 64 bytes for the pointer
};

inline constexpr size_t kGpuHandleBytes = 64;
using GpuHandle = std::array<uint8_t, kGpuHandleBytes>;

// The allocation that an address lies in. Of kind kVmm: one piece of physical memory. A tensor may
// lie on several, one behind the other.
struct GpuAllocation {
  GpuAddress base = 0;
  uint64_t size_bytes = 0;
  size_t device_index = 0;
  uint64_t buffer_id = 0;  // of this process; no other allocation ever gets it again
  bool is_ipc_exportable = false;
  bool is_vmm_exportable = false;
  bool is_pool_exportable = false;
};

// What goes to another process. The descriptor is the caller's to close; -1 where there is none.
struct GpuExport {
  GpuMemoryKind kind = GpuMemoryKind::kIpc;
  GpuHandle handle = {};
  int fd = -1;
};

// A descriptor, and for kVmm the bytes that are to be mapped from the beginning of what it stands
// for.
struct GpuPiece {
  int fd = -1;
  uint64_t size_bytes = 0;
};

// Exports as they arrive. The descriptors stay the caller's.
struct GpuImport {
  GpuMemoryKind kind = GpuMemoryKind::kIpc;
  GpuHandle handle = {};
  std::vector<GpuPiece> pieces = {};  // kVmm: one or more, to lie side by side; kPool: the pool's
};

struct GpuMapping {
  GpuMemoryKind kind = GpuMemoryKind::kIpc;
  GpuAddress address = 0;  // of the first byte of the allocation
  uint64_t size_bytes = 0;
  void* pool = nullptr;
  std::vector<uint64_t> piece_bytes = {};  // kVmm
};

struct GpuStream {
  void* handle = nullptr;
};

struct GpuEvent {
  void* handle = nullptr;
};

// What a stream has a CPU do. It may block, and calls nothing of the driver's.
using GpuHostFunction = void (*)(void* argument);

// Of a word that streams wait for.
enum class GpuWord { k32 = 4, k64 = 8 };

class GpuContext {
 public:
  virtual ~GpuContext() = default;

  // ---- memory of this process

  // Memory of kind kIpc, aligned to 256 bytes. Free of what another process still maps is
  // undefined: it closes first.
  virtual GpuResult Allocate(uint64_t size_bytes, GpuAddress* address) = 0;
  virtual GpuResult Free(GpuAddress address) = 0;

  // An error for an address that is not in device memory.
  virtual GpuResult Describe(GpuAddress address, GpuAllocation* allocation) = 0;

  // Exports the allocation that the address lies in, never a part of it; of kind kVmm the piece.
  virtual GpuResult Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) = 0;

  // Lets the device reach host memory that other processes may map too; `device` is its address
  // there. Whole pages. Words for streams live in such memory, because any CPU thread can release a
  // waiting stream with a plain store.
  virtual GpuResult RegisterHost(void* host, uint64_t size_bytes, GpuAddress* device) = 0;
  virtual GpuResult UnregisterHost(void* host) = 0;

  // ---- memory of another process

  // Kind kIpc: opening what is open already gives the same address again, and counts. What the
  // exporter frees or takes along when it dies must not be touched any more, except kVmm, which
  // lives as long as somebody maps it. Pieces are mapped all or none, in their order and without a
  // gap.
  virtual GpuResult Import(const GpuImport& import, GpuMapping* mapping) = 0;
  virtual GpuResult Close(const GpuMapping& mapping) = 0;

  // ---- order

  virtual GpuResult CreateStream(GpuStream* stream) = 0;
  virtual GpuResult DestroyStream(GpuStream stream) = 0;
  // Waits for everything enqueued.
  virtual GpuResult Synchronize(GpuStream stream) = 0;
  // kGpuNotReady while something enqueued is not done.
  virtual GpuResult Query(GpuStream stream) = 0;

  // kGpuNotSupported where streams have no operations on memory; so does WaitValue.
  // Everything enqueued before is visible to whoever sees the value.
  virtual GpuResult WriteValue(GpuStream stream, GpuAddress word, GpuWord width,
                               uint64_t value) = 0;
  // Holds the stream until word - value >= 0, as signed numbers, so that a counter may wrap.
  // Nothing in the driver ever times out; somebody has to watch.
  virtual GpuResult WaitValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) = 0;

  // Calls the function on a thread of the driver's once what was enqueued before is done and
  // visible to everybody; the stream goes on when it returns. Functions of streams that nothing
  // orders may wait for each other, also for those of others in the process: what one waits for
  // must not need work of this process that nothing mandates to run earlier. Never called once the
  // context broke.
  virtual GpuResult LaunchHostFunction(GpuStream stream, GpuHostFunction function,
                                       void* argument) = 0;

  // Of a stream of this process, whoever made it: is it recording a graph? What is enqueued then
  // happens at every replay, with the value of now.
  virtual GpuResult IsCapturing(GpuStream stream, bool* is_capturing) = 0;

  // Between device memory and host memory in any direction. The host's must stay as it is until the
  // stream is through.
  virtual GpuResult Copy(GpuStream stream, void* target, const void* source,
                         uint64_t size_bytes) = 0;

  // An event of this process alone.
  virtual GpuResult CreateEvent(GpuEvent* event) = 0;
  // An event that other processes can open. Whoever created it must outlive its use.
  virtual GpuResult CreateSharedEvent(GpuEvent* event) = 0;
  virtual GpuResult ExportEvent(GpuEvent event, GpuHandle* handle) = 0;
  virtual GpuResult OpenEvent(const GpuHandle& handle, GpuEvent* event) = 0;
  virtual GpuResult DestroyEvent(GpuEvent event) = 0;
  virtual GpuResult RecordEvent(GpuEvent event, GpuStream stream) = 0;
  // Waits for the last record that was called before; with none, for nothing. So whoever waits must
  // know by other means that the record was called.
  virtual GpuResult WaitEvent(GpuStream stream, GpuEvent event) = 0;

  // ---- health

  // The error that made this context unusable, if any did: then the process has to be restarted.
  virtual GpuResult Check() = 0;
};

class GpuPlatform {
 public:
  virtual ~GpuPlatform() = default;

  // kGpuNoDriver where there is no driver, with the remedy; no devices where there is a driver and
  // nothing for it.
  virtual GpuResult ListDevices(std::vector<GpuDevice>* devices) = 0;

  // The device of a stream that somebody else in this process made, such as an engine. An error
  // where it is in another context than the device's primary one, which OpenContext gives.
  virtual GpuResult FindDevice(GpuStream, size_t*) {
    return GpuResult::Error("this platform knows no streams of others", kGpuNotSupported);
  }

  // REQUIRES: ListDevices has that many devices. The platform outlives the context.
  virtual GpuResult OpenContext(size_t device_index, std::unique_ptr<GpuContext>* context) = 0;
};

}  // namespace specd
