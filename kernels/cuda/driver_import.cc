// The part of CudaContext that maps and closes memory of other processes.
#include <fmt/format.h>

#include "kernels/cuda/cuda_context.h"

namespace specd {

namespace {

// The driver takes a descriptor as a pointer whose value is its number.
void* ShareableOf(int fd) { return reinterpret_cast<void*>(static_cast<intptr_t>(fd)); }

}  // namespace

GpuResult CudaContext::Import(const GpuImport& import, GpuMapping* mapping) {
  *mapping = {.kind = import.kind};
  if (import.kind == GpuMemoryKind::kVmm) return MapVmm(import, mapping);
  if (import.kind == GpuMemoryKind::kPool) return MapPool(import, mapping);
  const GpuResult result = Call("cuIpcOpenMemHandle", [&] {
    return api_.cuIpcOpenMemHandle_v2(&mapping->address, HandleOf(import.handle),
                                      cuda::kIpcLazyPeerAccess);
  });
  if (!result.ok()) return result;
  cuda::Address base = 0;
  size_t size_bytes = 0;
  const GpuResult measured = Call("cuMemGetAddressRange", [&] {
    return api_.cuMemGetAddressRange_v2(&base, &size_bytes, mapping->address);
  });
  if (!measured.ok()) {
    (void)Close(*mapping);
    return measured;
  }
  mapping->size_bytes = base + size_bytes - mapping->address;
  return result;
}

GpuResult CudaContext::MapVmm(const GpuImport& import, GpuMapping* mapping) {
  uint64_t size_bytes = 0;
  for (const GpuPiece& piece : import.pieces) size_bytes += piece.size_bytes;
  mapping->piece_bytes.reserve(import.pieces.size());  // after a mapping no call may throw
  GpuResult result = Call("cuMemAddressReserve", [&] {
    return api_.cuMemAddressReserve(&mapping->address, size_bytes, 0, 0, 0);
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
    const cuda::Access access = {cuda::kLocationDevice, device_, cuda::kAccessReadWrite};
    result = Call("cuMemSetAccess",
                  [&] { return api_.cuMemSetAccess(mapping->address, size_bytes, &access, 1); });
  }
  if (result.ok()) return result;
  (void)CloseVmm(*mapping);
  const size_t num_mapped = mapping->piece_bytes.size();
  if (num_mapped == import.pieces.size()) return result;
  return GpuResult::Error(
      fmt::format("piece {} of {}: {}", num_mapped + 1, import.pieces.size(), result.text()),
      result.code());
}

GpuResult CudaContext::MapPiece(GpuAddress address, const GpuPiece& piece) {
  cuda::AllocationHandle allocation = 0;
  GpuResult result = Call("cuMemImportFromShareableHandle", [&] {
    return api_.cuMemImportFromShareableHandle(&allocation, ShareableOf(piece.fd),
                                               cuda::kHandleTypePosixFd);
  });
  if (!result.ok()) return result;
  result =
      Call("cuMemMap", [&] { return api_.cuMemMap(address, piece.size_bytes, 0, allocation, 0); });
  // A mapping keeps the allocation, so the handle is not needed any more.
  const GpuResult released = Call("cuMemRelease", [&] { return api_.cuMemRelease(allocation); });
  if (!result.ok() || released.ok()) return result;
  (void)Call("cuMemUnmap", [&] { return api_.cuMemUnmap(address, piece.size_bytes); });
  return released;
}

// Unmaps piece by piece, as the pieces were mapped. An address with a mapping cannot be freed.
GpuResult CudaContext::CloseVmm(const GpuMapping& mapping) {
  GpuResult result = GpuResult::Ok();
  GpuAddress next = mapping.address;
  for (const uint64_t piece_bytes : mapping.piece_bytes) {
    const GpuResult unmapped =
        Call("cuMemUnmap", [&] { return api_.cuMemUnmap(next, piece_bytes); });
    if (result.ok()) result = unmapped;
    next += piece_bytes;
  }
  if (!result.ok()) return result;
  return Call("cuMemAddressFree",
              [&] { return api_.cuMemAddressFree(mapping.address, mapping.size_bytes); });
}

GpuResult CudaContext::MapPool(const GpuImport& import, GpuMapping* mapping) {
  GpuResult result = Call("cuMemPoolImportFromShareableHandle", [&] {
    return api_.cuMemPoolImportFromShareableHandle(&mapping->pool, ShareableOf(import.pieces[0].fd),
                                                   cuda::kHandleTypePosixFd, 0);
  });
  if (!result.ok()) return result;
  cuda::Handle handle = HandleOf(import.handle);
  result = Call("cuMemPoolImportPointer", [&] {
    return api_.cuMemPoolImportPointer(&mapping->address, mapping->pool, &handle);
  });
  size_t size_bytes = 0;
  if (result.ok()) {
    cuda::Address base = 0;
    result = Call("cuMemGetAddressRange", [&] {
      return api_.cuMemGetAddressRange_v2(&base, &size_bytes, mapping->address);
    });
    mapping->size_bytes = base + size_bytes - mapping->address;
  }
  if (!result.ok()) (void)Close(*mapping);
  return result;
}

GpuResult CudaContext::Close(const GpuMapping& mapping) {
  if (mapping.kind == GpuMemoryKind::kIpc) {
    return Call("cuIpcCloseMemHandle", [&] { return api_.cuIpcCloseMemHandle(mapping.address); });
  }
  if (mapping.kind == GpuMemoryKind::kVmm) return CloseVmm(mapping);
  GpuResult result = GpuResult::Ok();
  if (mapping.address != 0) {
    // An importer's free must be done before the exporter's; this call waits.
    result = Call("cuMemFree", [&] { return api_.cuMemFree_v2(mapping.address); });
  }
  const GpuResult destroyed =
      Call("cuMemPoolDestroy", [&] { return api_.cuMemPoolDestroy(mapping.pool); });
  return result.ok() ? destroyed : result;
}

}  // namespace specd
