#include "kernels/cuda/memory_importer.h"

#include <fmt/format.h>

namespace specd {

namespace {

// The driver takes a descriptor as a pointer whose value is its number.
void* ShareableOf(int fd) { return reinterpret_cast<void*>(static_cast<intptr_t>(fd)); }

}  // namespace

GpuResult MemoryImporter::Import(const GpuImport& import, GpuMapping* mapping) {
  *mapping = {.kind = import.kind};
  if (import.kind == GpuMemoryKind::kVmm) return MapVmm(import, mapping);
  if (import.kind == GpuMemoryKind::kPool) return MapPool(import, mapping);
  const GpuResult result = calls_.Run("cuIpcOpenMemHandle", [&] {
    return calls_.api().cuIpcOpenMemHandle_v2(&mapping->address, HandleOf(import.handle),
                                              cuda::kIpcLazyPeerAccess);
  });
  if (!result.ok()) return result;
  cuda::Address base = 0;
  size_t size_bytes = 0;
  const GpuResult measured = calls_.Run("cuMemGetAddressRange", [&] {
    return calls_.api().cuMemGetAddressRange_v2(&base, &size_bytes, mapping->address);
  });
  if (!measured.ok()) {
    (void)Close(*mapping);
    return measured;
  }
  mapping->size_bytes = base + size_bytes - mapping->address;
  return result;
}

GpuResult MemoryImporter::MapVmm(const GpuImport& import, GpuMapping* mapping) {
  uint64_t size_bytes = 0;
  for (const GpuPiece& piece : import.pieces) size_bytes += piece.size_bytes;
  mapping->piece_bytes.reserve(import.pieces.size());  // after a mapping no call may throw
  GpuResult result = calls_.Run("cuMemAddressReserve", [&] {
    return calls_.api().cuMemAddressReserve(&mapping->address, size_bytes, 0, 0, 0);
  });
  if (!result.ok()) return result;
  mapping->size_bytes = size_bytes;
  GpuAddress next = mapping->address;
  for (const GpuPiece& piece : import.pieces) {
    result = MapPiece(next, piece);
    if (!result.ok()) break;
    mapping->piece_bytes.push_back(piece.size_bytes);
    next += piece.size_bytes;
  }
  if (result.ok()) {
    const cuda::Access access = {.location_type = cuda::kLocationDevice,
                                 .device = calls_.device(),
                                 .flags = cuda::kAccessReadWrite};
    result = calls_.Run("cuMemSetAccess", [&] {
      return calls_.api().cuMemSetAccess(mapping->address, size_bytes, &access, 1);
    });
  }
  if (result.ok()) return result;
  (void)CloseVmm(*mapping);
  const size_t num_mapped = mapping->piece_bytes.size();
  if (num_mapped == import.pieces.size()) return result;
  return GpuResult::Error(
      fmt::format("piece {} of {}: {}", num_mapped + 1, import.pieces.size(), result.text()),
      result.code());
}

GpuResult MemoryImporter::MapPiece(GpuAddress address, const GpuPiece& piece) {
  cuda::AllocationHandle allocation = 0;
  GpuResult result = calls_.Run("cuMemImportFromShareableHandle", [&] {
    return calls_.api().cuMemImportFromShareableHandle(&allocation, ShareableOf(piece.fd),
                                                       cuda::kHandleTypePosixFd);
  });
  if (!result.ok()) return result;
  result = calls_.Run("cuMemMap", [&] {
    return calls_.api().cuMemMap(address, piece.size_bytes, 0, allocation, 0);
  });
  // A mapping keeps the allocation, so the handle is not needed any more.
  const GpuResult released =
      calls_.Run("cuMemRelease", [&] { return calls_.api().cuMemRelease(allocation); });
  if (!result.ok() || released.ok()) return result;
  (void)calls_.Run("cuMemUnmap",
                   [&] { return calls_.api().cuMemUnmap(address, piece.size_bytes); });
  return released;
}

// Unmaps piece by piece, as the pieces were mapped. An address with a mapping cannot be freed.
GpuResult MemoryImporter::CloseVmm(const GpuMapping& mapping) {
  GpuResult result = GpuResult::Ok();
  GpuAddress next = mapping.address;
  for (const uint64_t piece_bytes : mapping.piece_bytes) {
    const GpuResult unmapped =
        calls_.Run("cuMemUnmap", [&] { return calls_.api().cuMemUnmap(next, piece_bytes); });
    if (result.ok()) result = unmapped;
    next += piece_bytes;
  }
  if (!result.ok()) return result;
  return calls_.Run("cuMemAddressFree", [&] {
    return calls_.api().cuMemAddressFree(mapping.address, mapping.size_bytes);
  });
}

GpuResult MemoryImporter::MapPool(const GpuImport& import, GpuMapping* mapping) {
  GpuResult result = calls_.Run("cuMemPoolImportFromShareableHandle", [&] {
    return calls_.api().cuMemPoolImportFromShareableHandle(
        &mapping->pool, ShareableOf(import.pieces[0].fd), cuda::kHandleTypePosixFd, 0);
  });
  if (!result.ok()) return result;
  cuda::Handle handle = HandleOf(import.handle);
  result = calls_.Run("cuMemPoolImportPointer", [&] {
    return calls_.api().cuMemPoolImportPointer(&mapping->address, mapping->pool, &handle);
  });
  size_t size_bytes = 0;
  if (result.ok()) {
    cuda::Address base = 0;
    result = calls_.Run("cuMemGetAddressRange", [&] {
      return calls_.api().cuMemGetAddressRange_v2(&base, &size_bytes, mapping->address);
    });
    mapping->size_bytes = base + size_bytes - mapping->address;
  }
  if (!result.ok()) (void)Close(*mapping);
  return result;
}

GpuResult MemoryImporter::Close(const GpuMapping& mapping) {
  if (mapping.kind == GpuMemoryKind::kIpc) {
    return calls_.Run("cuIpcCloseMemHandle",
                      [&] { return calls_.api().cuIpcCloseMemHandle(mapping.address); });
  }
  if (mapping.kind == GpuMemoryKind::kVmm) return CloseVmm(mapping);
  GpuResult result = GpuResult::Ok();
  if (mapping.address != 0) {
    // An importer's free must be done before the exporter's; this call waits.
    result = calls_.Run("cuMemFree", [&] { return calls_.api().cuMemFree_v2(mapping.address); });
  }
  const GpuResult destroyed =
      calls_.Run("cuMemPoolDestroy", [&] { return calls_.api().cuMemPoolDestroy(mapping.pool); });
  return result.ok() ? destroyed : result;
}

}  // namespace specd
