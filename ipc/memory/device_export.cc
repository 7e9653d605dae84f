#include "ipc/memory/device_export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/sockets/unix_socket.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

absl::Status NotDeviceMemory(const GpuResult& result) {
  return MakeError(SPECD_ERROR_REGION, "address",
                   fmt::format("{}; pass the address of a tensor on the GPU (managed and host "
                               "memory cannot be shared this way)",
                               result.text()));
}

// A handle needs no descriptor, so it comes first.
std::optional<GpuMemoryKind> KindOf(const GpuAllocation& allocation) {
  if (allocation.is_ipc_exportable) return GpuMemoryKind::kIpc;
  if (allocation.is_vmm_exportable) return GpuMemoryKind::kVmm;
  if (allocation.is_pool_exportable) return GpuMemoryKind::kPool;
  return std::nullopt;
}

// The kind by which all of the memory travels.
absl::StatusOr<GpuMemoryKind> CheckPieces(std::span<const GpuAllocation> pieces, GpuAddress address,
                                          uint64_t size_bytes) {
  const std::optional<GpuMemoryKind> kind = KindOf(pieces[0]);
  for (const GpuAllocation& piece : pieces) {
    const std::optional<GpuMemoryKind> found = KindOf(piece);
    const uint64_t before_bytes = std::max(piece.base, address) - address;
    const bool is_one_more = kind == GpuMemoryKind::kVmm && (!found.has_value() || found == kind);
    if (&piece != &pieces[0] && !is_one_more) {
      return MakeError(SPECD_ERROR_REGION, "size_bytes",
                       fmt::format("size_bytes = {} is outside 1..{}, what the allocation has "
                                   "behind the address; only pieces from cuMemCreate (PyTorch: "
                                   "expandable segments) are shared as one",
                                   size_bytes, before_bytes));
    }
    if (found.has_value()) continue;
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "address",
        fmt::format("the memory {} bytes behind the address was allocated so that no "
                    "other process can map it (the default pool of cudaMallocAsync, "
                    "cuMemCreate without a handle type, or another process's memory); "
                    "allocate it with cudaMalloc (PyTorch: "
                    "PYTORCH_CUDA_ALLOC_CONF=backend:native,expandable_segments:False)",
                    before_bytes));
  }
  if (pieces.size() <= kMessageFdsMax) return *kind;
  return MakeError(SPECD_ERROR_REGION, "size_bytes",
                   fmt::format("size_bytes = {} from the address lie on {} pieces of physical "
                               "memory, and a region has at most {}; share parts of it as regions "
                               "of their own, or allocate it with cudaMalloc (PyTorch: "
                               "expandable_segments:False)",
                               size_bytes, pieces.size(), kMessageFdsMax));
}

}  // namespace

absl::StatusOr<std::vector<GpuAllocation>> DescribeRange(GpuContext& context, GpuAddress address,
                                                         uint64_t size_bytes) {
  std::vector<GpuAllocation> pieces(1);
  const GpuResult described = context.Describe(address, &pieces[0]);
  if (!described.ok()) return NotDeviceMemory(described);
  if (size_bytes < 1 || size_bytes > kRegionBytesMax) {
    return MakeError(SPECD_ERROR_REGION, "size_bytes",
                     fmt::format("size_bytes = {} is outside 1..{}", size_bytes, kRegionBytesMax));
  }
  GpuAddress next = pieces[0].base + pieces[0].size_bytes;
  while (next - address < size_bytes) {
    GpuAllocation piece;
    const bool is_there = context.Describe(next, &piece).ok() && piece.base == next &&
                          piece.size_bytes > 0 && piece.device_index == pieces[0].device_index;
    if (!is_there) {
      return MakeError(SPECD_ERROR_REGION, "size_bytes",
                       fmt::format("size_bytes = {} is outside 1..{}: there the memory behind the "
                                   "address ends, or has a gap, or goes on on another device; "
                                   "share what lies behind a gap as a region of its own",
                                   size_bytes, next - address));
    }
    next += piece.size_bytes;
    pieces.push_back(piece);
  }
  return pieces;
}

absl::StatusOr<DeviceExport> ExportDeviceMemory(GpuContext& context,
                                                std::span<const GpuDevice> devices,
                                                GpuAddress address, uint64_t size_bytes) {
  const absl::StatusOr<std::vector<GpuAllocation>> pieces =
      DescribeRange(context, address, size_bytes);
  if (!pieces.ok()) return pieces.status();
  const absl::StatusOr<GpuMemoryKind> kind = CheckPieces(*pieces, address, size_bytes);
  if (!kind.ok()) return kind.status();
  const GpuAllocation& first = pieces->front();
  const GpuAllocation& last = pieces->back();
  SPECD_CHECK(first.device_index < devices.size());
  const uint64_t offset_bytes = address - first.base;
  DeviceExport out;
  out.skip_bytes = offset_bytes % kDeviceAlignmentBytes;
  out.spec = {.kind = static_cast<uint32_t>(*kind),
              .device_uuid = devices[first.device_index].uuid,
              .handle = {},
              .base_bytes = last.base + last.size_bytes - first.base,
              .offset_bytes = offset_bytes - out.skip_bytes,
              .size_bytes = size_bytes + out.skip_bytes,
              .buffer_id = first.buffer_id,
              .export_pid = static_cast<uint32_t>(getpid())};
  for (const GpuAllocation& piece : *pieces) {
    GpuExport exported;
    const GpuResult result = context.Export(std::max(piece.base, address), *kind, &exported);
    UniqueFd fd(exported.fd);
    if (!result.ok()) {
      return MakeError(SPECD_ERROR_REGION, "address",
                       fmt::format("the memory cannot be exported: {}; allocate it with cudaMalloc",
                                   result.text()));
    }
    if (fd.valid()) out.fds.push_back(std::move(fd));
    if (*kind == GpuMemoryKind::kVmm) {
      out.spec.piece_bytes.push_back(piece.size_bytes);
    } else {
      for (const uint8_t byte : exported.handle) out.spec.handle += fmt::format("{:02x}", byte);
    }
  }
  return out;
}

}  // namespace specd
