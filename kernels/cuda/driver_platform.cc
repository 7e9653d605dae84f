#include "kernels/cuda/driver_platform.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <string>

#include "kernels/cuda/driver_api.h"
#include "kernels/cuda/driver_context.h"

namespace specd {

namespace {

using cuda::DriverApi;

std::string UuidText(const cuda::Uuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

class CudaPlatform final : public GpuPlatform {
 public:
  GpuResult ListDevices(std::vector<GpuDevice>* devices) override {
    devices->clear();
    GpuResult result = GpuResult::Ok();
    const DriverApi* const api = cuda::LoadDriver(&result);
    if (api == nullptr) return result;
    int count = 0;
    const int error = api->cuDeviceGetCount(&count);
    // The driver's answer if it found no device at all.
    if (error == kGpuNoDevice || error == kGpuNotInitialized) return GpuResult::Ok();
    if (error != kGpuOk) return cuda::ResultOf(*api, error, "cuDeviceGetCount");
    for (int i = 0; i < count && result.ok(); ++i) result = AddDevice(*api, i, devices);
    return result;
  }

  GpuResult FindDevice(GpuStream stream, size_t* device_index) override {
    GpuResult result = GpuResult::Ok();
    const DriverApi* const api = cuda::LoadDriver(&result);
    if (api == nullptr) return result;
    cuda::Context context = nullptr;
    result = cuda::ResultOf(*api, api->cuStreamGetCtx(stream.handle, &context), "cuStreamGetCtx");
    if (!result.ok()) return result;
    int device = 0;
    result = DeviceOf(*api, context, &device);
    if (!result.ok()) return result;
    // Held for the comparison only: the owner of a CUDA stream in it holds it too.
    cuda::Context primary = nullptr;
    result = cuda::ResultOf(*api, api->cuDevicePrimaryCtxRetain(&primary, device),
                            "cuDevicePrimaryCtxRetain");
    if (!result.ok()) return result;
    result = cuda::ResultOf(*api, api->cuDevicePrimaryCtxRelease_v2(device),
                            "cuDevicePrimaryCtxRelease");
    if (!result.ok()) return result;
    if (context != primary) {
      return GpuResult::Error(
          "the stream is not in its device's primary context, the one of the CUDA runtime",
          kGpuInvalidContext);
    }
    // A device's handle is its ordinal, but CUDA does not promise that.
    int count = 0;
    result = cuda::ResultOf(*api, api->cuDeviceGetCount(&count), "cuDeviceGetCount");
    for (int i = 0; i < count && result.ok(); ++i) {
      int found = 0;
      result = cuda::ResultOf(*api, api->cuDeviceGet(&found, i), "cuDeviceGet");
      if (!result.ok() || found != device) continue;
      *device_index = static_cast<size_t>(i);
      return result;
    }
    if (!result.ok()) return result;
    return GpuResult::Error("the stream's device is not among those listed", kGpuInvalidDevice);
  }

  GpuResult DeviceOf(GpuAddress address, std::optional<size_t>* device_index) override {
    device_index->reset();
    const cuda::PointerQuery query = cuda::FindPointerQuery();
    if (query == nullptr) return GpuResult::Ok();
    unsigned memory_type = 0;
    int ordinal = -1;
    unsigned is_managed = 0;
    int attributes[] = {cuda::kMemoryType, cuda::kDeviceOrdinal, cuda::kIsManaged};
    void* values[] = {&memory_type, &ordinal, &is_managed};
    // The query needs no context. It succeeds for memory that the driver does not know. If the
    // driver was never initialised or has no device, nothing lies on a device.
    const int error = query(std::size(attributes), attributes, values, address);
    if (error == kGpuNotInitialized || error == kGpuNoDevice) return GpuResult::Ok();
    if (error != kGpuOk) {
      GpuResult result = GpuResult::Ok();
      const DriverApi* const api = cuda::LoadDriver(&result);  // initialised already
      return api == nullptr ? result : cuda::ResultOf(*api, error, "cuPointerGetAttributes");
    }
    if (memory_type == cuda::kMemoryTypeDevice && is_managed == 0 && ordinal >= 0) {
      *device_index = static_cast<size_t>(ordinal);
    }
    return GpuResult::Ok();
  }

  GpuResult OpenContext(size_t device_index, std::unique_ptr<GpuContext>* context) override {
    GpuResult result = GpuResult::Ok();
    const DriverApi* const api = cuda::LoadDriver(&result);
    if (api == nullptr) return result;
    int device = 0;
    result = cuda::ResultOf(*api, api->cuDeviceGet(&device, static_cast<int>(device_index)),
                            "cuDeviceGet");
    if (!result.ok()) return result;
    cuda::Context made = nullptr;
    result = cuda::ResultOf(*api, api->cuDevicePrimaryCtxRetain(&made, device),
                            "cuDevicePrimaryCtxRetain");
    if (result.ok()) *context = MakeCudaContext(*api, device, made);
    return result;
  }

 private:
  static GpuResult DeviceOf(const DriverApi& api, cuda::Context context, int* device) {
    GpuResult result = cuda::ResultOf(api, api.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
    if (!result.ok()) return result;
    result = cuda::ResultOf(api, api.cuCtxGetDevice(device), "cuCtxGetDevice");
    cuda::Context popped = nullptr;
    const int error = api.cuCtxPopCurrent_v2(&popped);
    return result.ok() ? cuda::ResultOf(api, error, "cuCtxPopCurrent") : result;
  }

  static GpuResult AddDevice(const DriverApi& api, int ordinal, std::vector<GpuDevice>* devices) {
    int device = 0;
    char name[256] = {};
    cuda::Uuid uuid = {};
    GpuResult result = cuda::ResultOf(api, api.cuDeviceGet(&device, ordinal), "cuDeviceGet");
    if (result.ok()) {
      result = cuda::ResultOf(api, api.cuDeviceGetName(name, sizeof(name) - 1, device),
                              "cuDeviceGetName");
    }
    if (result.ok()) {
      result = cuda::ResultOf(api, api.cuDeviceGetUuid_v2(&uuid, device), "cuDeviceGetUuid");
    }
    if (!result.ok()) return result;
    // If a driver does not know an attribute, it refuses the query.
    const auto attribute = [&](int which) -> std::optional<bool> {
      int value = 0;
      if (api.cuDeviceGetAttribute(&value, which, device) != kGpuOk) return std::nullopt;
      return value != 0;
    };
    devices->push_back(
        {.name = name,
         .uuid = UuidText(uuid),
         .has_64_bit_words = attribute(cuda::kCanUse64BitStreamMemOps).value_or(false),
         .has_mps = attribute(cuda::kMpsEnabled),
         .granularity_bytes = GranularityOf(api, device)});
    return result;
  }

  // If a device has no memory with descriptors, it refuses the query.
  static uint64_t GranularityOf(const DriverApi& api, int device) {
    const cuda::AllocationProperties properties = {.type = cuda::kAllocationPinned,
                                                   .handle_types = cuda::kHandleTypePosixFd,
                                                   .location_type = cuda::kLocationDevice,
                                                   .device = device,
                                                   .unused = nullptr,
                                                   .flags = {}};
    size_t size_bytes = 0;
    const int error =
        api.cuMemGetAllocationGranularity(&size_bytes, &properties, cuda::kGranularityMinimum);
    return error == kGpuOk ? size_bytes : 0;
  }
};

}  // namespace

std::unique_ptr<GpuPlatform> MakeCudaPlatform() { return std::make_unique<CudaPlatform>(); }

}  // namespace specd
