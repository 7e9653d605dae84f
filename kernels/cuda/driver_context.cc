#include "kernels/cuda/driver_context.h"

#include <cstring>
#include <iterator>

#include "kernels/cuda/cuda_context.h"

namespace specd {

GpuResult CudaContext::Describe(GpuAddress address, GpuAllocation* allocation) {
  unsigned memory_type = 0;
  unsigned long long buffer_id = 0;
  int ordinal = -1;
  unsigned ipc = 0;
  unsigned long long handle_types = 0;
  cuda::Pool pool = nullptr;
  cuda::Address base = 0;
  size_t size_bytes = 0;
  cuda::Address mapping_base = 0;
  size_t mapping_bytes = 0;
  int attributes[] = {cuda::kMemoryType,         cuda::kBufferId,           cuda::kDeviceOrdinal,
                      cuda::kIsLegacyIpcCapable, cuda::kAllowedHandleTypes, cuda::kMemoryPool,
                      cuda::kRangeStart,         cuda::kRangeSize,          cuda::kMappingBase,
                      cuda::kMappingSize};
  void* values[] = {&memory_type, &buffer_id, &ordinal,    &ipc,          &handle_types,
                    &pool,        &base,      &size_bytes, &mapping_base, &mapping_bytes};
  static_assert(std::size(attributes) == std::size(values));
  const GpuResult result = Call("cuPointerGetAttributes", [&] {
    return api_.cuPointerGetAttributes(std::size(attributes), attributes, values, address);
  });
  if (!result.ok()) return result;
  // The call does not fail for an unknown address; it leaves the unknown values unset.
  if (memory_type != cuda::kMemoryTypeDevice || ordinal < 0) {
    return GpuResult::Error("the address is not in device memory", kGpuInvalidValue);
  }
  const bool has_fd = (handle_types & cuda::kHandleTypePosixFd) != 0;
  *allocation = {.base = base,
                 .size_bytes = size_bytes,
                 .device_index = static_cast<size_t>(ordinal),
                 .buffer_id = buffer_id,
                 .is_ipc_exportable = ipc != 0,
                 .is_vmm_exportable = has_fd && pool == nullptr,
                 .is_pool_exportable = has_fd && pool != nullptr};
  if (!allocation->is_ipc_exportable && allocation->is_vmm_exportable) {
    // One reserved range may hold many mappings, and a descriptor names one of them.
    allocation->base = mapping_base;
    allocation->size_bytes = mapping_bytes;
  }
  return GpuResult::Ok();
}

GpuResult CudaContext::Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) {
  *exported = {.kind = kind};
  cuda::Handle handle = {};
  GpuResult result = GpuResult::Ok();
  if (kind == GpuMemoryKind::kIpc) {
    result = Call("cuIpcGetMemHandle", [&] { return api_.cuIpcGetMemHandle(&handle, address); });
  } else if (kind == GpuMemoryKind::kVmm) {
    cuda::AllocationHandle allocation = 0;
    result = Call("cuMemRetainAllocationHandle", [&] {
      return api_.cuMemRetainAllocationHandle(&allocation, reinterpret_cast<void*>(address));
    });
    if (!result.ok()) return result;
    result = Call("cuMemExportToShareableHandle", [&] {
      return api_.cuMemExportToShareableHandle(&exported->fd, allocation, cuda::kHandleTypePosixFd,
                                               0);
    });
    const GpuResult released = Call("cuMemRelease", [&] { return api_.cuMemRelease(allocation); });
    if (result.ok()) result = released;
  } else {
    cuda::Pool pool = nullptr;
    int attribute = cuda::kMemoryPool;
    void* value = &pool;
    result = Call("cuPointerGetAttributes",
                  [&] { return api_.cuPointerGetAttributes(1, &attribute, &value, address); });
    if (result.ok()) {
      result = Call("cuMemPoolExportPointer",
                    [&] { return api_.cuMemPoolExportPointer(&handle, address); });
    }
    if (result.ok()) {
      result = Call("cuMemPoolExportToShareableHandle", [&] {
        return api_.cuMemPoolExportToShareableHandle(&exported->fd, pool, cuda::kHandleTypePosixFd,
                                                     0);
      });
    }
  }
  std::memcpy(exported->handle.data(), &handle, sizeof(handle));
  return result;
}

std::unique_ptr<GpuContext> MakeCudaContext(const cuda::DriverApi& api, int device,
                                            cuda::Context context) {
  return std::make_unique<CudaContext>(api, device, context);
}

}  // namespace specd
