// FakeGpuContext: memory, its exports and its imports.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/core/check.h"
#include "tests/gpu/driver/fake_gpu_context.h"

namespace specd {

namespace {

FakeBlockKind BlockKindOf(GpuMemoryKind kind) {
  if (kind == GpuMemoryKind::kVmm) return FakeBlockKind::kVmm;
  return kind == GpuMemoryKind::kPool ? FakeBlockKind::kPoolMemory : FakeBlockKind::kIpc;
}

// Reserves addresses that no other mapping gets. Null if there are none.
void* ReserveRange(uint64_t size_bytes) {
  void* const range =
      mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return range == MAP_FAILED ? nullptr : range;
}

}  // namespace

GpuResult FakeGpuContext::AllocateKind(const char* call, FakeBlockKind kind, uint64_t size_bytes,
                                       uint64_t pool_id, GpuAddress* address) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, call);
  if (!begun.ok()) return begun;
  if (size_bytes == 0) return Refuse(call, kGpuInvalidValue, "no bytes");
  if (size_bytes > options_.memory_bytes) return Refuse(call, kGpuOutOfMemory, "too large");
  std::unique_ptr<FakeGpuBlock> block =
      FakeGpuBlock::Make({.kind = kind,
                          .size_bytes = size_bytes,
                          .buffer_id = next_id_++,
                          .pool_id = pool_id,
                          .device_uuid = options_.devices[device_index_].uuid,
                          .place = TakePlace(size_bytes)});
  if (block == nullptr) return Refuse(call, kGpuOutOfMemory, "no memfd");
  *address = reinterpret_cast<uintptr_t>(block->data());
  allocations_[*address] = std::move(block);
  return GpuResult::Ok();
}

GpuResult FakeGpuContext::Allocate(uint64_t size_bytes, GpuAddress* address) {
  return AllocateKind("Allocate", FakeBlockKind::kIpc, size_bytes, 0, address);
}

// An address that was freed is given out again as soon as its size is asked for.
void* FakeGpuContext::TakePlace(uint64_t size_bytes) {
  const auto found = places_.find(size_bytes);
  if (found == places_.end()) return nullptr;
  void* const place = found->second;
  places_.erase(found);
  return place;
}

GpuResult FakeGpuContext::AllocateVmm(const std::vector<uint64_t>& piece_bytes,
                                      GpuAddress* address) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "AllocateVmm");
  if (!begun.ok()) return begun;
  const GpuDevice& device = options_.devices[device_index_];
  for (const uint64_t size_bytes : piece_bytes) {
    if (size_bytes != 0 && size_bytes % device.granularity_bytes == 0) continue;
    return Refuse("AllocateVmm", kGpuInvalidValue, "not a multiple of the granularity");
  }
  const uint64_t size_bytes = std::accumulate(piece_bytes.begin(), piece_bytes.end(), uint64_t{0});
  if (size_bytes > options_.memory_bytes) {
    return Refuse("AllocateVmm", kGpuOutOfMemory, "too large");
  }
  void* range = TakePlace(size_bytes);
  if (range == nullptr) range = ReserveRange(size_bytes);
  if (range == nullptr) return Refuse("AllocateVmm", kGpuOutOfMemory, "no addresses");
  *address = reinterpret_cast<uintptr_t>(range);
  GpuAddress next = *address;
  for (const uint64_t piece : piece_bytes) {
    allocations_[next] = FakeGpuBlock::Make({.kind = FakeBlockKind::kVmm,
                                             .size_bytes = piece,
                                             .buffer_id = next_id_++,
                                             .device_uuid = device.uuid,
                                             .place = reinterpret_cast<void*>(next)});
    SPECD_CHECK(allocations_[next] != nullptr);
    next += piece;
  }
  return begun;
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
  // No other block gets the address until a caller asks for the same size again.
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
  // Memory of another process cannot be exported again.
  if (const auto after = imports_.upper_bound(address); after != imports_.begin()) {
    const auto& [base, imported] = *std::prev(after);
    if (address - base < imported.size_bytes) {
      *allocation = {.base = base,
                     .size_bytes = imported.size_bytes,
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

GpuResult FakeGpuContext::CheckDevice(const FakeGpuBlock& block) {
  if (options_.devices[device_index_].uuid == block.header()->device_uuid) return GpuResult::Ok();
  return Refuse("Import", kGpuPeerAccessUnsupported, "memory of another device");
}

// The exporter's block, checked against the device and the pool.
GpuResult FakeGpuContext::OpenBlock(const GpuImport& import, std::unique_ptr<FakeGpuBlock>* block) {
  int code = kGpuOk;
  uint64_t pool_id = 0;
  if (import.kind == GpuMemoryKind::kPool) {
    const auto pool = FakeGpuBlock::Open(import.pieces[0].fd, FakeBlockKind::kPool, &code);
    if (pool == nullptr) return Refuse("Import", code, "no pool behind the descriptor");
    pool_id = pool->header()->pool_id;
  }
  *block = FakeGpuBlock::Open(import.handle, BlockKindOf(import.kind), &code);
  if (*block == nullptr) return Refuse("Import", code, "handle");
  if ((*block)->header()->pool_id != pool_id) {
    return Refuse("Import", kGpuInvalidValue, "memory of another pool");
  }
  return CheckDevice(**block);
}

// The exporter's blocks, side by side. If one of them fails, the pieces mapped before it are
// unmapped together.
GpuResult FakeGpuContext::OpenPieces(const GpuImport& import, Blocks* blocks,
                                     uint64_t* size_bytes) {
  const uint64_t granularity_bytes = options_.devices[device_index_].granularity_bytes;
  *size_bytes = 0;
  for (const GpuPiece& piece : import.pieces) {
    if (piece.size_bytes == 0 || piece.size_bytes % granularity_bytes != 0) {
      return Refuse("Import", kGpuInvalidValue, "size");
    }
    *size_bytes += piece.size_bytes;
  }
  char* const range = static_cast<char*>(ReserveRange(*size_bytes));
  if (range == nullptr) return Refuse("Import", kGpuOutOfMemory, "no addresses");
  char* next = range;
  GpuResult result = GpuResult::Ok();
  for (const GpuPiece& piece : import.pieces) {
    int code = kGpuOk;
    std::unique_ptr<FakeGpuBlock> block =
        FakeGpuBlock::Open(piece.fd, FakeBlockKind::kVmm, &code, next, piece.size_bytes);
    if (block == nullptr) {
      result = Refuse("Import", code, "no memory behind the descriptor");
      break;
    }
    const bool is_large_enough = piece.size_bytes <= block->size_bytes();
    result = is_large_enough ? CheckDevice(*block) : Refuse("Import", kGpuInvalidValue, "size");
    blocks->push_back(std::move(block));
    if (!result.ok()) break;
    next += piece.size_bytes;
  }
  if (result.ok()) return result;
  for (const std::unique_ptr<FakeGpuBlock>& block : *blocks) block->KeepPlace();
  blocks->clear();
  munmap(range, *size_bytes);
  return result;
}

GpuResult FakeGpuContext::Import(const GpuImport& import, GpuMapping* mapping) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "Import");
  if (!begun.ok()) return begun;
  *mapping = {.kind = import.kind};
  FakeGpuBlock::Name name;
  if (import.kind == GpuMemoryKind::kIpc && FakeGpuBlock::ParseHandle(import.handle, &name)) {
    for (auto& [address, imported] : imports_) {
      if (imported.kind != GpuMemoryKind::kIpc || imported.blocks[0]->name() != name) continue;
      CheckAlive(*imported.blocks[0], "opened again");
      ++imported.count;
      mapping->address = address;
      mapping->size_bytes = imported.size_bytes;
      return begun;
    }
  }
  Blocks blocks;
  GpuResult opened = GpuResult::Ok();
  if (import.kind == GpuMemoryKind::kVmm) {
    opened = OpenPieces(import, &blocks, &mapping->size_bytes);
  } else {
    opened = OpenBlock(import, &blocks.emplace_back());
    if (opened.ok()) mapping->size_bytes = blocks[0]->size_bytes();
  }
  if (!opened.ok()) return opened;
  for (const auto& [address, imported] : imports_) {
    if (imported.kind == GpuMemoryKind::kIpc && import.kind == GpuMemoryKind::kIpc &&
        imported.blocks[0]->SharesAddressWith(*blocks[0])) {
      return Refuse("Import", kGpuAlreadyMapped, "what was at this address is still open");
    }
  }
  mapping->address = reinterpret_cast<uintptr_t>(blocks[0]->data());
  imports_[mapping->address] = {std::move(blocks), mapping->size_bytes, import.kind, next_id_++, 1};
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
  // The same pages once more, elsewhere, so that no test can mistake one address for the other.
  // Memory that is not shared has no second place.
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
  // A CUDA stream that still waits for a word in it would fault.
  if (found->second.is_own_mapping) {
    munmap(reinterpret_cast<void*>(found->second.device), found->second.size_bytes);
  }
  host_ranges_.erase(found);
  return begun;
}

}  // namespace specd
