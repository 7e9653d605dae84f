// The compiler compares driver_api.h with <cuda.h> here, if <cuda.h> is there. It compares numbers,
// sizes, and for every function the number and the passing of its arguments. It also compares the
// numbers of GpuCode with those of both CUDA libraries. The file makes no code.
#include <cuda.h>
#include <driver_types.h>

#include <type_traits>

#include "kernels/cuda/driver_api.h"

namespace specd::cuda {

namespace {

// Two arguments are passed alike if they have the same size, and both or neither are in a register
// for pointers, numbers or enums.
template <class Ours, class Theirs>
constexpr bool kPassedAlike =
    sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Ours> ==
                                          std::is_class_v<Theirs>&& std::is_pointer_v<Ours> ==
                                          std::is_pointer_v<Theirs>;

template <class Ours, class Theirs>
constexpr bool kSameCall = false;
template <class... Ours, class... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) constexpr bool kSameCall<int (*)(Ours...), CUresult (*)(Theirs...)> =
    (kPassedAlike<Ours, Theirs> && ...);

#define SPECD_CUDA_FUNCTION(name, parameters) \
  static_assert(kSameCall<decltype(DriverApi::name), decltype(&::name)>, #name);
SPECD_CUDA_FUNCTIONS(SPECD_CUDA_FUNCTION)
#undef SPECD_CUDA_FUNCTION

static_assert(sizeof(CUresult) == sizeof(int));
static_assert(sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle));
static_assert(sizeof(Handle) == sizeof(CUmemPoolPtrExportData));
static_assert(sizeof(Access) == sizeof(CUmemAccessDesc));
static_assert(offsetof(Access, device) == offsetof(CUmemAccessDesc, location.id));
static_assert(offsetof(Access, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, device) == offsetof(CUmemAllocationProp, location.id));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));

static_assert(+kCanUse64BitStreamMemOps == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
#if CUDA_VERSION >= 13000
static_assert(+kMpsEnabled == CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
#endif
static_assert(+kMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(+kBufferId == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(+kIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(+kDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(+kIsLegacyIpcCapable == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
static_assert(+kRangeStart == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
static_assert(+kRangeSize == CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(+kAllowedHandleTypes == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
static_assert(+kMemoryPool == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
static_assert(+kMappingSize == CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
static_assert(+kMappingBase == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
static_assert(+kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(+kHandleTypePosixFd == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(+kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(+kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(+kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(+kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(+kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(+kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(+kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(+kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(+kHostRegisterDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(+kWaitValueGeq == CU_STREAM_WAIT_VALUE_GEQ);
static_assert(+kCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(+kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);

// GpuDriver answers with the runtime's numbers, GpuContext with the driver's. The numbers are
// equal.
constexpr bool AreSame(GpuCode ours, CUresult driver, cudaError_t runtime) {
  return +ours == +driver && +ours == +runtime;
}
static_assert(AreSame(kGpuOk, CUDA_SUCCESS, cudaSuccess));
static_assert(AreSame(kGpuInvalidValue, CUDA_ERROR_INVALID_VALUE, cudaErrorInvalidValue));
static_assert(AreSame(kGpuOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation));
static_assert(AreSame(kGpuNotInitialized, CUDA_ERROR_NOT_INITIALIZED,
                      cudaErrorInitializationError));
static_assert(AreSame(kGpuNoDevice, CUDA_ERROR_NO_DEVICE, cudaErrorNoDevice));
static_assert(AreSame(kGpuInvalidDevice, CUDA_ERROR_INVALID_DEVICE, cudaErrorInvalidDevice));
static_assert(AreSame(kGpuInvalidContext, CUDA_ERROR_INVALID_CONTEXT,
                      cudaErrorDeviceUninitialized));
static_assert(AreSame(kGpuMapFailed, CUDA_ERROR_MAP_FAILED, cudaErrorMapBufferObjectFailed));
static_assert(AreSame(kGpuAlreadyMapped, CUDA_ERROR_ALREADY_MAPPED, cudaErrorAlreadyMapped));
static_assert(AreSame(kGpuPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                      cudaErrorPeerAccessUnsupported));
static_assert(AreSame(kGpuInvalidHandle, CUDA_ERROR_INVALID_HANDLE,
                      cudaErrorInvalidResourceHandle));
static_assert(AreSame(kGpuNotReady, CUDA_ERROR_NOT_READY, cudaErrorNotReady));
static_assert(AreSame(kGpuIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS, cudaErrorIllegalAddress));
static_assert(AreSame(kGpuTooManyPeers, CUDA_ERROR_TOO_MANY_PEERS, cudaErrorTooManyPeers));
static_assert(AreSame(kGpuHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                      cudaErrorHostMemoryAlreadyRegistered));
static_assert(AreSame(kGpuHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                      cudaErrorHostMemoryNotRegistered));
static_assert(AreSame(kGpuLaunchFailed, CUDA_ERROR_LAUNCH_FAILED, cudaErrorLaunchFailure));
static_assert(AreSame(kGpuNotPermitted, CUDA_ERROR_NOT_PERMITTED, cudaErrorNotPermitted));
static_assert(AreSame(kGpuNotSupported, CUDA_ERROR_NOT_SUPPORTED, cudaErrorNotSupported));

}  // namespace

}  // namespace specd::cuda
