// DriverApi has the functions of libcuda.so.1 for driver_context.cc; they are found at first use.
//
// The functions are declared here and not taken from <cuda.h>. A build without the CUDA toolkit can
// therefore share GPU memory too, and the same binary starts without a driver. Symbols carry their
// version (cuMemAlloc_v2). If <cuda.h> is there, driver_api_check.cc compares the declarations.
// Immutable once loaded; the library stays loaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/gpu_result.h"

namespace specd::cuda {

using Context = void*;
using Stream = void*;
using Event = void*;
using Pool = void*;
using Address = uint64_t;           // CUdeviceptr
using AllocationHandle = uint64_t;  // CUmemGenericAllocationHandle

struct Uuid {
  char bytes[16];
};
// The type of CUipcMemHandle and CUmemPoolPtrExportData.
struct Handle {
  char bytes[64];
};
// CUmemAccessDesc
struct Access {
  int32_t location_type;
  int32_t device;
  int32_t flags;
};
// CUmemAllocationProp
struct AllocationProperties {
  int32_t type;
  int32_t handle_types;
  int32_t location_type;
  int32_t device;
  void* unused;
  char flags[8];
};

enum DeviceAttribute : int {
  kCanUse64BitStreamMemOps = 122,
  kMpsEnabled = 133,
};
enum PointerAttribute : int {
  kMemoryType = 2,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kIsLegacyIpcCapable = 10,
  kRangeStart = 11,
  kRangeSize = 12,
  kAllowedHandleTypes = 14,
  kMemoryPool = 17,
  kMappingSize = 18,
  kMappingBase = 19,
};
inline constexpr unsigned kMemoryTypeDevice = 2;
inline constexpr int kHandleTypePosixFd = 1;
inline constexpr int kAllocationPinned = 1;
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr unsigned kWaitValueGeq = 0;
inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureModeRelaxed = 2;

// clang-format off
#define SPECD_CUDA_FUNCTIONS(F)                                                                    \
  F(cuInit, (unsigned flags))                                                                      \
  F(cuGetErrorName, (int error, const char** text))                                                \
  F(cuGetErrorString, (int error, const char** text))                                              \
  F(cuDeviceGetCount, (int* count))                                                                \
  F(cuDeviceGet, (int* device, int ordinal))                                                       \
  F(cuDeviceGetName, (char* name, int size_bytes, int device))                                     \
  F(cuDeviceGetUuid_v2, (Uuid* uuid, int device))                                                  \
  F(cuDeviceGetAttribute, (int* value, int attribute, int device))                                 \
  F(cuDevicePrimaryCtxRetain, (Context* context, int device))                                      \
  F(cuDevicePrimaryCtxRelease_v2, (int device))                                                    \
  F(cuCtxPushCurrent_v2, (Context context))                                                        \
  F(cuCtxPopCurrent_v2, (Context* context))                                                        \
  F(cuCtxGetDevice, (int* device))                                                                 \
  F(cuThreadExchangeStreamCaptureMode, (int* mode))                                                \
  F(cuMemAlloc_v2, (Address* address, size_t size_bytes))                                          \
  F(cuMemFree_v2, (Address address))                                                               \
  F(cuMemGetInfo_v2, (size_t* free_bytes, size_t* total_bytes))                                    \
  F(cuMemGetAddressRange_v2, (Address* base, size_t* size_bytes, Address address))                 \
  F(cuPointerGetAttributes,                                                                        \
    (unsigned count, int* attributes, void** values, Address address))                             \
  F(cuIpcGetMemHandle, (Handle* handle, Address address))                                          \
  F(cuIpcOpenMemHandle_v2, (Address* address, Handle handle, unsigned flags))                      \
  F(cuIpcCloseMemHandle, (Address address))                                                        \
  F(cuMemGetAllocationGranularity,                                                                 \
    (size_t* size_bytes, const AllocationProperties* properties, int which))                       \
  F(cuMemRetainAllocationHandle, (AllocationHandle* handle, void* address))                        \
  F(cuMemExportToShareableHandle,                                                                  \
    (void* shareable, AllocationHandle handle, int type, unsigned long long flags))                \
  F(cuMemImportFromShareableHandle, (AllocationHandle* handle, void* shareable, int type))         \
  F(cuMemRelease, (AllocationHandle handle))                                                       \
  F(cuMemAddressReserve, (Address* address, size_t size_bytes, size_t alignment, Address hint,     \
                          unsigned long long flags))                                               \
  F(cuMemAddressFree, (Address address, size_t size_bytes))                                        \
  F(cuMemMap, (Address address, size_t size_bytes, size_t offset_bytes, AllocationHandle handle,   \
               unsigned long long flags))                                                          \
  F(cuMemUnmap, (Address address, size_t size_bytes))                                              \
  F(cuMemSetAccess, (Address address, size_t size_bytes, const Access* access, size_t count))      \
  F(cuMemPoolExportToShareableHandle,                                                              \
    (void* shareable, Pool pool, int type, unsigned long long flags))                              \
  F(cuMemPoolImportFromShareableHandle,                                                            \
    (Pool* pool, void* shareable, int type, unsigned long long flags))                             \
  F(cuMemPoolExportPointer, (Handle* handle, Address address))                                     \
  F(cuMemPoolImportPointer, (Address* address, Pool pool, Handle* handle))                         \
  F(cuMemPoolDestroy, (Pool pool))                                                                 \
  F(cuMemHostRegister_v2, (void* host, size_t size_bytes, unsigned flags))                         \
  F(cuMemHostUnregister, (void* host))                                                             \
  F(cuMemHostGetDevicePointer_v2, (Address* device, void* host, unsigned flags))                   \
  F(cuStreamCreate, (Stream* stream, unsigned flags))                                              \
  F(cuStreamDestroy_v2, (Stream stream))                                                           \
  F(cuStreamSynchronize, (Stream stream))                                                          \
  F(cuStreamQuery, (Stream stream))                                                                \
  F(cuStreamGetCtx, (Stream stream, Context* context))                                             \
  F(cuStreamIsCapturing, (Stream stream, int* status))                                             \
  F(cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                               \
  F(cuStreamWriteValue32_v2, (Stream stream, Address word, uint32_t value, unsigned flags))        \
  F(cuStreamWriteValue64_v2, (Stream stream, Address word, uint64_t value, unsigned flags))        \
  F(cuStreamWaitValue32_v2, (Stream stream, Address word, uint32_t value, unsigned flags))         \
  F(cuStreamWaitValue64_v2, (Stream stream, Address word, uint64_t value, unsigned flags))         \
  F(cuLaunchHostFunc, (Stream stream, void (*function)(void*), void* argument))                    \
  F(cuMemcpyAsync, (Address target, Address source, size_t size_bytes, Stream stream))             \
  F(cuEventCreate, (Event* event, unsigned flags))                                                 \
  F(cuEventDestroy_v2, (Event event))                                                              \
  F(cuEventRecord, (Event event, Stream stream))
// clang-format on

struct DriverApi {
#define SPECD_CUDA_FUNCTION(name, parameters) int(*name) parameters = nullptr;
  SPECD_CUDA_FUNCTIONS(SPECD_CUDA_FUNCTION)
#undef SPECD_CUDA_FUNCTION
};

// Loads the library and initialises the driver at the first call. Later calls return the same
// answer. If that failed, returns null, with the reason and the remedy in *why. Safe from any
// thread.
const DriverApi* LoadDriver(GpuResult* why);

// cuPointerGetAttributes of the library if this process has loaded it; null otherwise. Loads and
// initialises nothing, so that a process without a GPU stays without one. Safe from any thread.
using PointerQuery = int (*)(unsigned count, int* attributes, void** values, Address address);
PointerQuery FindPointerQuery();

// Turns a driver's number into a result, with the name of the call.
GpuResult ResultOf(const DriverApi& api, int error, const char* call);

}  // namespace specd::cuda
