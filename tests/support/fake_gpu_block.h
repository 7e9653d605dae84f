// A piece of pretended GPU state that real processes share: device memory, a memory pool or an
// event, as a memfd with a header.
//
// The process that makes a block is its exporter; another one opens it from 64 bytes, through the
// exporter's descriptor in /proc, as long as the exporter lives and has not freed it. Nothing has
// to be cleaned up: locks on the memfd say who is there, and the kernel drops them when a process
// dies. A block belongs to one thread at a time; its header and its data are shared memory.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "ipc/base/unique_fd.h"
#include "kernels/core/gpu_context.h"

namespace specd {

enum class FakeBlockKind : uint32_t { kIpc = 1, kVmm = 2, kPoolMemory = 3, kPool = 4, kEvent = 5 };

// Page 0 of the memfd; the data follow.
struct FakeBlockHeader {
  uint64_t magic;
  FakeBlockKind kind;
  std::atomic<uint32_t> is_freed;
  uint64_t size_bytes;
  uint64_t buffer_id;  // of the exporter
  uint64_t pool_id;    // 0: in no pool that can be shared
  uint64_t base;       // the exporter's address of the data
  char device_uuid[48];
  // Of an event: how many records were called, and the last one that is done.
  std::atomic<uint64_t> recorded;
  std::atomic<uint64_t> completed;
};

class FakeGpuBlock {
 public:
  struct Spec {
    FakeBlockKind kind = FakeBlockKind::kIpc;
    uint64_t size_bytes = 0;
    uint64_t buffer_id = 0;
    uint64_t pool_id = 0;
    std::string device_uuid = {};
    void* place = nullptr;  // where the data go; null: anywhere
  };

  // The exporter's. Null if the memory cannot be had.
  static std::unique_ptr<FakeGpuBlock> Make(const Spec& spec);

  // An importer's, from the exporter's bytes: null, and a GpuCode in *code.
  static std::unique_ptr<FakeGpuBlock> Open(const GpuHandle& handle, FakeBlockKind kind, int* code);
  // The same from a descriptor, which stays the caller's. Also in the exporter's own process.
  // The first `size_bytes` go to `place`, where that is not null.
  static std::unique_ptr<FakeGpuBlock> Open(int fd, FakeBlockKind kind, int* code,
                                            void* place = nullptr, uint64_t size_bytes = 0);

  FakeGpuBlock(const FakeGpuBlock&) = delete;
  FakeGpuBlock& operator=(const FakeGpuBlock&) = delete;
  // Unmaps. Of an exporter it frees: what others still map is filled with poison.
  ~FakeGpuBlock();

  // The data's address stays taken when the block goes: nobody can read there, and the caller may
  // give it to another block, or unmap it.
  void KeepPlace() { keeps_place_ = true; }

  // For another process.
  GpuHandle handle() const;
  int fd() const { return fd_.get(); }

  FakeBlockHeader* header() const { return header_; }
  char* data() const { return data_; }
  uint64_t size_bytes() const { return header_->size_bytes; }
  bool is_exporter() const { return is_exporter_; }

  // Of an exporter: does another process have it open?
  bool IsImported() const;
  // Of an importer: is the exporter's block still there?
  bool IsExporterGone() const;
  // Was this made by the same exporter at the same address?
  bool SharesAddressWith(const FakeGpuBlock& other) const;

  // Of another process, from the bytes alone.
  struct Name {
    pid_t pid = 0;
    uint64_t start_time = 0;
    uint64_t base = 0;
    uint64_t buffer_id = 0;
    bool operator==(const Name&) const = default;
  };
  const Name& name() const { return name_; }
  // False for bytes that are no handle.
  static bool ParseHandle(const GpuHandle& handle, Name* name);

  static constexpr unsigned char kPoison = 0xdb;
  static constexpr uint64_t kPageBytes = 4096;

 private:
  FakeGpuBlock() = default;
  bool Map(void* place, uint64_t size_bytes);

  UniqueFd fd_;
  FakeBlockHeader* header_ = nullptr;
  char* data_ = nullptr;
  uint64_t data_bytes_ = 0;  // whole pages
  bool is_exporter_ = false;
  bool keeps_place_ = false;
  Name name_;
};

}  // namespace specd
