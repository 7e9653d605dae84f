// FakeGpuContext: memory, its exports and its imports.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

#include "tests/support/fake_gpu_context.h"

namespace specd {

namespace {

FakeBlockKind BlockKindOf(GpuMemoryKind kind) {
  if (kind == GpuMemoryKind::kVmm) return FakeBlockKind::kVmm;
  return kind == GpuMemoryKind::kPool ? FakeBlockKind::kPoolMemory : FakeBlockKind::kIpc;
}

}  // namespace

GpuResult FakeGpuContext::AllocateKind(const char* call, FakeBlockKind kind, uint64_t size_bytes,
                                       uint64_t pool_id, GpuAddress* address) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, call);
  if (!begun.ok()) return begun;
  if (size_bytes == 0) return Refuse(call, kGpuInvalidValue, "no bytes");
  if (kind == FakeBlockKind::kVmm && size_bytes % kGranularityBytes != 0) {
    return Refuse(call, kGpuInvalidValue, "not a multiple of the granularity");
  }
  if (size_bytes > options_.memory_bytes) return Refuse(call, kGpuOutOfMemory, "too large");
  // An address that was freed is given out again as soon as its size is asked for.
  const auto place = places_.find(size_bytes);
  std::unique_ptr<FakeGpuBlock> block =
      FakeGpuBlock::Make({.kind = kind,
                          .size_bytes = size_bytes,
                          .buffer_id = next_id_++,
                          .pool_id = pool_id,
                          .device_uuid = options_.devices[device_index_].uuid,
                          .place = place == places_.end() ? nullptr : place->second});
  if (block == nullptr) return Refuse(call, kGpuOutOfMemory, "no memfd");
  if (place != places_.end()) places_.erase(place);
  *address = reinterpret_cast<uintptr_t>(block->data());
  allocations_[*address] = std::move(block);
  return GpuResult::Ok();
}

GpuResult FakeGpuContext::Allocate(uint64_t size_bytes, GpuAddress* address) {
  return AllocateKind("Allocate", FakeBlockKind::kIpc, size_bytes, 0, address);
}

GpuResult FakeGpuContext::AllocateVmm(uint64_t size_bytes, GpuAddress* address) {
  return AllocateKind("AllocateVmm", FakeBlockKind::kVmm, size_bytes, 0, address);
}

GpuResult FakeGpuContext::AllocateFromPool(uint64_t size_bytes, GpuAddress* address) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (pool_ == nullptr) {
      // Another process's pool has another number.
      const uint64_t pool_id = static_cast<uint64_t>(pid_) << 32 | next_id_++;
      pool_ = FakeGpuBlock::Make({.kind = FakeBlockKind::kPool, .pool_id = pool_id});
    }
  }
  return AllocateKind("AllocateFromPool", FakeBlockKind::kPoolMemory, size_bytes,
                      pool_->header()->pool_id, address);
}

GpuResult FakeGpuContext::AllocateUnshareable(uint64_t size_bytes, GpuAddress* address) {
  return AllocateKind("AllocateUnshareable", FakeBlockKind::kPoolMemory, size_bytes, 0, address);
}

GpuResult FakeGpuContext::Free(GpuAddress address) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Free");
  if (!begun.ok()) return begun;
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return Refuse("Free", kGpuInvalidValue, "no allocation");
  FakeGpuBlock& block = *found->second;
  if (block.header()->kind != FakeBlockKind::kVmm && block.IsImported()) {
    Violation(fmt::format("buffer {} was freed while another process had it open",
                          block.header()->buffer_id));
  }
  const uint64_t size_bytes = block.size_bytes();
  void* const place = block.data();
  // Nobody else gets the address until the same size is asked for again.
  block.KeepPlace();
  allocations_.erase(found);
  places_.emplace(size_bytes, place);
  return begun;
}

GpuResult FakeGpuContext::Describe(GpuAddress address, GpuAllocation* allocation) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Describe");
  if (!begun.ok()) return begun;
  if (const auto after = allocations_.upper_bound(address); after != allocations_.begin()) {
    const auto& [base, block] = *std::prev(after);
    if (address - base < block->size_bytes()) {
      const FakeBlockHeader& header = *block->header();
      *allocation = {base,
                     block->size_bytes(),
                     device_index_,
                     header.buffer_id,
                     header.kind == FakeBlockKind::kIpc,
                     header.kind == FakeBlockKind::kVmm,
                     header.kind == FakeBlockKind::kPoolMemory && header.pool_id != 0};
      return begun;
    }
  }
  // What came from another process cannot be passed on.
  if (const auto after = imports_.upper_bound(address); after != imports_.begin()) {
    const auto& [base, imported] = *std::prev(after);
    if (address - base < imported.block->size_bytes()) {
      *allocation = {.base = base,
                     .size_bytes = imported.block->size_bytes(),
                     .device_index = device_index_,
                     .buffer_id = imported.buffer_id};
      return begun;
    }
  }
  return Refuse("Describe", kGpuInvalidValue, "not device memory");
}

GpuResult FakeGpuContext::Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Export");
  if (!begun.ok()) return begun;
  *exported = {.kind = kind};
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return Refuse("Export", kGpuInvalidValue, "no allocation");
  const FakeGpuBlock& block = *std::prev(after)->second;
  const FakeBlockHeader& header = *block.header();
  const bool is_there = address - header.base < block.size_bytes();
  if (!is_there || header.kind != BlockKindOf(kind) ||
      (kind == GpuMemoryKind::kPool && header.pool_id == 0)) {
    return Refuse("Export", kGpuInvalidValue, "not an allocation of this kind");
  }
  if (kind != GpuMemoryKind::kVmm) exported->handle = block.handle();
  if (kind != GpuMemoryKind::kIpc) {
    const int fd = kind == GpuMemoryKind::kVmm ? block.fd() : pool_->fd();
    exported->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  }
  return begun;
}

// The exporter's block, checked against the device and the pool.
GpuResult FakeGpuContext::OpenBlock(const GpuImport& import, std::unique_ptr<FakeGpuBlock>* block) {
  const GpuExport& source = import.source;
  int code = kGpuOk;
  if (source.kind == GpuMemoryKind::kVmm) {
    *block = FakeGpuBlock::Open(source.fd, FakeBlockKind::kVmm, &code);
    if (*block == nullptr) return Refuse("Import", code, "no memory behind the descriptor");
    if (import.size_bytes == 0 || import.size_bytes % kGranularityBytes != 0 ||
        import.size_bytes > (*block)->size_bytes()) {
      return Refuse("Import", kGpuInvalidValue, "size");
    }
  } else {
    uint64_t pool_id = 0;
    if (source.kind == GpuMemoryKind::kPool) {
      const auto pool = FakeGpuBlock::Open(source.fd, FakeBlockKind::kPool, &code);
      if (pool == nullptr) return Refuse("Import", code, "no pool behind the descriptor");
      pool_id = pool->header()->pool_id;
    }
    *block = FakeGpuBlock::Open(source.handle, BlockKindOf(source.kind), &code);
    if (*block == nullptr) return Refuse("Import", code, "handle");
    if ((*block)->header()->pool_id != pool_id) {
      return Refuse("Import", kGpuInvalidValue, "memory of another pool");
    }
  }
  if (options_.devices[device_index_].uuid != (*block)->header()->device_uuid) {
    return Refuse("Import", kGpuPeerAccessUnsupported, "memory of another device");
  }
  return GpuResult::Ok();
}

GpuResult FakeGpuContext::Import(const GpuImport& import, GpuMapping* mapping) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Import");
  if (!begun.ok()) return begun;
  *mapping = {.kind = import.source.kind};
  FakeGpuBlock::Name name;
  if (import.source.kind == GpuMemoryKind::kIpc &&
      FakeGpuBlock::ParseHandle(import.source.handle, &name)) {
    for (auto& [address, imported] : imports_) {
      if (imported.kind != GpuMemoryKind::kIpc || imported.block->name() != name) continue;
      CheckAlive(*imported.block, "opened again");
      ++imported.count;
      *mapping = {GpuMemoryKind::kIpc, address, imported.block->size_bytes(), nullptr};
      return begun;
    }
  }
  std::unique_ptr<FakeGpuBlock> block;
  const GpuResult opened = OpenBlock(import, &block);
  if (!opened.ok()) return opened;
  for (const auto& [address, imported] : imports_) {
    if (imported.kind == GpuMemoryKind::kIpc && import.source.kind == GpuMemoryKind::kIpc &&
        imported.block->SharesAddressWith(*block)) {
      return Refuse("Import", kGpuAlreadyMapped, "what was at this address is still open");
    }
  }
  mapping->address = reinterpret_cast<uintptr_t>(block->data());
  mapping->size_bytes =
      import.source.kind == GpuMemoryKind::kVmm ? import.size_bytes : block->size_bytes();
  imports_[mapping->address] = {std::move(block), import.source.kind, next_id_++, 1};
  return begun;
}

GpuResult FakeGpuContext::Close(const GpuMapping& mapping) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Close");
  if (!begun.ok()) return begun;
  const auto found = imports_.find(mapping.address);
  if (found == imports_.end() || found->second.kind != mapping.kind) {
    return Refuse("Close", kGpuInvalidValue, "not open");
  }
  if (--found->second.count == 0) imports_.erase(found);
  return begun;
}

size_t FakeGpuContext::num_imports() {
  std::lock_guard<std::mutex> lock(mutex_);
  return imports_.size();
}

GpuResult FakeGpuContext::RegisterHost(void* host, uint64_t size_bytes, GpuAddress* device) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "RegisterHost");
  if (!begun.ok()) return begun;
  constexpr uint64_t kPage = FakeGpuBlock::kPageBytes;
  if (reinterpret_cast<uintptr_t>(host) % kPage != 0 || size_bytes == 0 ||
      size_bytes % kPage != 0) {
    return Refuse("RegisterHost", kGpuInvalidValue, "not whole pages");
  }
  const char* const begin = static_cast<char*>(host);
  for (const auto& [other, range] : host_ranges_) {
    if (begin < static_cast<char*>(other) + range.size_bytes &&
        static_cast<char*>(other) < begin + size_bytes) {
      return Refuse("RegisterHost", kGpuHostMemoryAlreadyRegistered, "registered already");
    }
  }
  // The same pages once more, elsewhere, so that nobody can take one address for the other. Memory
  // that is not shared has no second place.
  void* const again = mremap(host, 0, size_bytes, MREMAP_MAYMOVE);
  const bool is_own_mapping = again != MAP_FAILED;
  *device = reinterpret_cast<uintptr_t>(is_own_mapping ? again : host);
  host_ranges_[host] = {*device, size_bytes, is_own_mapping};
  return begun;
}

GpuResult FakeGpuContext::FindHost(void* host, GpuAddress* device) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "FindHost");
  if (!begun.ok()) return begun;
  const auto found = host_ranges_.find(host);
  if (found == host_ranges_.end()) {
    return Refuse("FindHost", kGpuHostMemoryNotRegistered, "never registered");
  }
  *device = found->second.device;
  return begun;
}

GpuResult FakeGpuContext::UnregisterHost(void* host) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "UnregisterHost");
  if (!begun.ok()) return begun;
  const auto found = host_ranges_.find(host);
  if (found == host_ranges_.end()) {
    return Refuse("UnregisterHost", kGpuHostMemoryNotRegistered, "never registered");
  }
  // A stream that still waits for a word in it would fault.
  if (found->second.is_own_mapping) {
    munmap(reinterpret_cast<void*>(found->second.device), found->second.size_bytes);
  }
  host_ranges_.erase(found);
  return begun;
}

}  // namespace specd
