// ExportDeviceMemory describes an engine's device memory as a DeviceRegionSpec that can travel to
// the daemon.
//
// libspecd calls these functions before it asks the daemon. Memory that cannot be shared is thus
// refused where the user can act on it. The functions look an address up and choose how its memory
// can travel. They use a GpuContext and are safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"
#include "ipc/memory/device_region.h"
#include "kernels/core/gpu_context.h"

namespace specd {

struct DeviceExport {
  DeviceRegionSpec spec;
  std::vector<UniqueFd> fds;  // one for each piece, one for a pool, or none
  // A region begins at a multiple of kDeviceAlignmentBytes. The address is skip_bytes after that.
  uint64_t skip_bytes = 0;
};

// Returns the neighbouring allocations that [address, address + size_bytes) lies in. A gap, or
// memory of another device, is an error.
absl::StatusOr<std::vector<GpuAllocation>> DescribeRange(GpuContext& context, GpuAddress address,
                                                         uint64_t size_bytes);

// REQUIRES: `devices` are as GpuPlatform lists them. [address, address + size_bytes) must lie in
// one allocation, or in pieces of kind kVmm.
absl::StatusOr<DeviceExport> ExportDeviceMemory(GpuContext& context,
                                                std::span<const GpuDevice> devices,
                                                GpuAddress address, uint64_t size_bytes);

}  // namespace specd
