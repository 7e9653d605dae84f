// GpuPlatform and GpuContext let processes share the memory and the order of a GPU for an engine
// and the daemon.
//
// An engine describes and exports memory that it owns. The daemon imports the memory and closes it
// again. The daemon orders its work against the engine's through words in shared memory
// (docs/GPU.md, "Memory between processes"). GpuDriver launches the rounds on the same device; both
// work in the device's primary context. The interface lets tests run attach, ordering, crash and
// abort of GPU memory without a GPU.
//
// A GpuContext serves one device. Its calls may come from any thread, and they do not change the
// thread's current context. Implementations: kernels/cuda/driver_platform.h over libcuda.so.1,
// which is loaded at first use; tests/gpu/driver/fake_gpu_context.h over memfds, between real
// processes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/core/gpu_result.h"

namespace specd {

// An address of device memory, or of host memory as the device sees it. Two processes have
// different addresses for the same bytes.
using GpuAddress = uint64_t;

// How memory was allocated, which decides how it is exported. Values as on the wire
// (docs/PROTOCOL.md).
enum class GpuMemoryKind : uint32_t {
  kIpc = 1,   // cudaMalloc: 64 bytes that name the whole allocation
  kVmm = 2,   // cuMemCreate, such as PyTorch's expandable segments: a descriptor for each piece
  kPool = 3,  // cudaMallocAsync: the pool's descriptor, and 64 bytes for the pointer
};

inline constexpr size_t kGpuHandleBytes = 64;
using GpuHandle = std::array<uint8_t, kGpuHandleBytes>;

// The allocation that contains an address. For kVmm, an allocation is one piece of physical memory,
// and a tensor may lie on several neighbouring pieces.
struct GpuAllocation {
  GpuAddress base = 0;
  uint64_t size_bytes = 0;
  size_t device_index = 0;
  uint64_t buffer_id = 0;  // unique in this process; never given to another allocation
  bool is_ipc_exportable = false;
  bool is_vmm_exportable = false;
  bool is_pool_exportable = false;
};

// An export for another process. The caller closes the descriptor; -1 if there is none.
struct GpuExport {
  GpuMemoryKind kind = GpuMemoryKind::kIpc;
  GpuHandle handle = {};
  int fd = -1;
};

// A descriptor. For kVmm, size_bytes are mapped from the beginning of the memory that the
// descriptor names.
struct GpuPiece {
  int fd = -1;
  uint64_t size_bytes = 0;
};

// An export as it arrives in another process. The caller keeps the descriptors.
struct GpuImport {
  GpuMemoryKind kind = GpuMemoryKind::kIpc;
  GpuHandle handle = {};
  std::vector<GpuPiece> pieces = {};  // kVmm: one or more, mapped side by side; kPool: the pool's
};

struct GpuMapping {
  GpuMemoryKind kind = GpuMemoryKind::kIpc;
  GpuAddress address = 0;  // the first byte of the allocation
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

// A function that a CUDA stream calls on a CPU. The function may block, and it calls nothing of the
// driver's.
using GpuHostFunction = void (*)(void* argument);

// The width of a word that CUDA streams wait for.
enum class GpuWord { k32 = 4, k64 = 8 };

class GpuContext {
 public:
  virtual ~GpuContext() = default;

  // ---- memory of this process

  // An error for an address that is not in device memory.
  virtual GpuResult Describe(GpuAddress address, GpuAllocation* allocation) = 0;

  // Exports the whole allocation that contains the address; for kVmm, the piece.
  virtual GpuResult Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) = 0;

  // Lets the device reach host memory that other processes may map too; `device` is its address on
  // the device. The memory is whole pages. Words for CUDA streams lie in such memory, because any
  // CPU thread can release a waiting CUDA stream with a plain store.
  virtual GpuResult RegisterHost(void* host, uint64_t size_bytes, GpuAddress* device) = 0;
  virtual GpuResult UnregisterHost(void* host) = 0;

  // ---- memory of another process

  // If memory of kind kIpc is already open, a second Import returns the same address and counts.
  // Once the exporter frees its memory or dies, the memory must not be touched any more. Memory of
  // kind kVmm is the exception: it lives as long as a process maps it. Pieces are mapped all or
  // none, in their order and without a gap.
  virtual GpuResult Import(const GpuImport& import, GpuMapping* mapping) = 0;
  virtual GpuResult Close(const GpuMapping& mapping) = 0;

  // ---- order

  // If CUDA streams have no operations on memory, WriteValue and WaitValue return kGpuNotSupported.
  // A reader that sees the value sees everything enqueued before.
  virtual GpuResult WriteValue(GpuStream stream, GpuAddress word, GpuWord width,
                               uint64_t value) = 0;
  // Holds the CUDA stream until word - value >= 0, as signed numbers, so that a counter may wrap.
  // The driver never times out, so a thread of the caller has to watch.
  virtual GpuResult WaitValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) = 0;

  // Calls the function on a thread of the driver's, once everything enqueued before is done and
  // visible to all. The CUDA stream continues when the function returns. Functions of CUDA streams
  // without an order between them may wait for each other. The functions of other users in the
  // process count too. A function's wait must therefore not depend on work of this process, unless
  // that work is ordered to run earlier. Once the context broke, the function is never called.
  virtual GpuResult LaunchHostFunction(GpuStream stream, GpuHostFunction function,
                                       void* argument) = 0;

  // Whether any CUDA stream of this process records a graph. Work that is enqueued during a
  // recording happens at every replay, with the value of now.
  virtual GpuResult IsCapturing(GpuStream stream, bool* is_capturing) = 0;

  // An event of this process alone (docs/decisions/027-host-functions-not-events.md).
  virtual GpuResult CreateEvent(GpuEvent* event) = 0;
  virtual GpuResult DestroyEvent(GpuEvent event) = 0;
  virtual GpuResult RecordEvent(GpuEvent event, GpuStream stream) = 0;
  // Waits for the last record that was called before; with none, for nothing. The caller must
  // therefore know by other means that the record was called.
  virtual GpuResult WaitEvent(GpuStream stream, GpuEvent event) = 0;

  // ---- health

  // The error that made this context unusable, if there is one. The process then has to be
  // restarted.
  virtual GpuResult Check() = 0;
};

class GpuPlatform {
 public:
  virtual ~GpuPlatform() = default;

  // Returns kGpuNoDriver and the remedy if there is no driver. Returns no devices if the driver has
  // none.
  virtual GpuResult ListDevices(std::vector<GpuDevice>* devices) = 0;

  // The device of a CUDA stream that another part of this process made, such as an engine.
  // OpenContext gives the device's primary context; a CUDA stream in another context is an error.
  virtual GpuResult FindDevice(GpuStream, size_t*) {
    return GpuResult::Error("this platform knows no CUDA streams of others", kGpuNotSupported);
  }

  // Finds the index of the device in whose memory the address lies. None: the CPU reads the
  // address, as it does managed and pinned memory. The call initialises no driver and takes nothing
  // on a device. An error says nothing about the address.
  virtual GpuResult DeviceOf(GpuAddress, std::optional<size_t>* device_index) {
    device_index->reset();
    return GpuResult::Ok();
  }

  // REQUIRES: ListDevices has that many devices. The platform outlives the context.
  virtual GpuResult OpenContext(size_t device_index, std::unique_ptr<GpuContext>* context) = 0;
};

}  // namespace specd
