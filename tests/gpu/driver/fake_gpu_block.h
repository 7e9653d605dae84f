// FakeGpuBlock is a piece of fake GPU state that real processes of tests share. It holds device
// memory or a memory pool, as a memfd with a header.
//
// The process that makes a block is its exporter. Another process opens the block from 64 bytes,
// through the exporter's descriptor in /proc. That works while the exporter lives and has not freed
// the block. Locks on the memfd show which processes use the block. The kernel drops the locks of a
// dead process, so no cleanup is needed. A block belongs to one thread at a time; its header and
// its data are shared memory.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "ipc/base/unique_fd.h"
#include "kernels/core/gpu_context.h"

namespace specd {

enum class FakeBlockKind : uint32_t { kIpc = 1, kVmm = 2, kPoolMemory = 3, kPool = 4 };

// Page 0 of the memfd; the data follow.
struct FakeBlockHeader {
  uint64_t magic;
  FakeBlockKind kind;
  std::atomic<uint32_t> is_freed;
  uint64_t size_bytes;
  uint64_t buffer_id;  // the exporter's id
  uint64_t pool_id;    // 0: in no shared pool
  uint64_t base;       // the exporter's address of the data
  char device_uuid[48];
};

class FakeGpuBlock {
 public:
  struct Spec {
    FakeBlockKind kind = FakeBlockKind::kIpc;
    uint64_t size_bytes = 0;
    uint64_t buffer_id = 0;
    uint64_t pool_id = 0;
    std::string device_uuid = {};
    void* place = nullptr;  // the address for the data; null: any address
  };

  // Makes the exporter's block. Null if there is no memory.
  static std::unique_ptr<FakeGpuBlock> Make(const Spec& spec);

  // Opens an importer's block from the exporter's bytes. On failure, null, and a GpuCode in *code.
  static std::unique_ptr<FakeGpuBlock> Open(const GpuHandle& handle, FakeBlockKind kind, int* code);
  // The same from a descriptor, which the caller keeps. Works in the exporter's own process too. If
  // `place` is not null, the first `size_bytes` are mapped there.
  static std::unique_ptr<FakeGpuBlock> Open(int fd, FakeBlockKind kind, int* code,
                                            void* place = nullptr, uint64_t size_bytes = 0);

  FakeGpuBlock(const FakeGpuBlock&) = delete;
  FakeGpuBlock& operator=(const FakeGpuBlock&) = delete;
  // Unmaps the block. In the exporter it also frees the block: the memory that others still map is
  // filled with poison.
  ~FakeGpuBlock();

  // Keeps the data's address reserved after the destructor, without access. The caller may give the
  // address to another block, or unmap it.
  void KeepPlace() { keeps_place_ = true; }

  // The handle for another process.
  GpuHandle handle() const;
  int fd() const { return fd_.get(); }

  FakeBlockHeader* header() const { return header_; }
  char* data() const { return data_; }
  uint64_t size_bytes() const { return header_->size_bytes; }
  bool is_exporter() const { return is_exporter_; }

  // For an exporter: whether another process has the block open.
  bool IsImported() const;
  // For an importer: whether the exporter's block is gone.
  bool IsExporterGone() const;
  // Whether the same exporter made both blocks at the same address.
  bool SharesAddressWith(const FakeGpuBlock& other) const;

  // The exporter, as the bytes of a handle name it.
  struct Name {
    pid_t pid = 0;
    uint64_t start_time = 0;
    uint64_t base = 0;
    uint64_t buffer_id = 0;
    bool operator==(const Name&) const = default;
  };
  const Name& name() const { return name_; }
  // False if the bytes are no handle.
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
