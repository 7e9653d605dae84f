// What an engine's process does to share device memory: look an address up, choose how it can
// travel, and describe it in the words of a DeviceRegionSpec.
//
// libspecd calls this before it asks the daemon, so that memory which cannot be shared is refused
// where the user can do something about it. Functions of a GpuContext, safe from any thread.
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
  std::vector<UniqueFd> fds;  // of each piece, of a pool, or none
  // A region begins at a multiple of kDeviceAlignmentBytes; the address is so far behind that.
  uint64_t skip_bytes = 0;
};

// The allocations that [address, address + size_bytes) lies in, one behind the other; an error
// where there is a gap, or memory of another device.
absl::StatusOr<std::vector<GpuAllocation>> DescribeRange(GpuContext& context, GpuAddress address,
                                                         uint64_t size_bytes);

// [address, address + size_bytes) must lie in one allocation, or in pieces of kind kVmm. `devices`
// as GpuPlatform lists them.
absl::StatusOr<DeviceExport> ExportDeviceMemory(GpuContext& context,
                                                std::span<const GpuDevice> devices,
                                                GpuAddress address, uint64_t size_bytes);

// An error if what was exported (of several pieces, the first) has been freed since, even if the
// address was allocated again.
absl::Status CheckStillAllocated(GpuContext& context, const DeviceRegionSpec& spec,
                                 GpuAddress address);

}  // namespace specd
