#include "kernels/cuda/driver_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

namespace specd::cuda {

namespace {

constexpr char kLibrary[] = "libcuda.so.1";

struct Loaded {
  DriverApi api;
  GpuResult result = GpuResult::Ok();
};

GpuResult Load(DriverApi* api) {
  // Never closed: the driver has threads of its own.
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return GpuResult::Error(
        fmt::format("{} cannot be loaded ({}); install the NVIDIA driver, in a container run with "
                    "the NVIDIA runtime, or use the CPU",
                    kLibrary, dlerror()),
        kGpuNoDriver);
  }
  const char* missing = nullptr;
#define SPECD_CUDA_FUNCTION(name, parameters)                               \
  api->name = reinterpret_cast<decltype(api->name)>(dlsym(library, #name)); \
  if (api->name == nullptr) missing = #name;
  SPECD_CUDA_FUNCTIONS(SPECD_CUDA_FUNCTION)
#undef SPECD_CUDA_FUNCTION
  if (missing != nullptr) {
    return GpuResult::Error(
        fmt::format("{} has no {}; install a driver for CUDA 12.0 or newer", kLibrary, missing),
        kGpuNoDriver);
  }
  const int error = api->cuInit(0);
  // If the driver finds no device, the query for devices reports it.
  return error == kGpuNoDevice ? GpuResult::Ok() : ResultOf(*api, error, "cuInit");
}

}  // namespace

const DriverApi* LoadDriver(GpuResult* why) {
  static const Loaded loaded = [] {
    Loaded made;
    made.result = Load(&made.api);
    return made;
  }();
  *why = loaded.result;
  return loaded.result.ok() ? &loaded.api : nullptr;
}

GpuResult ResultOf(const DriverApi& api, int error, const char* call) {
  if (error == kGpuOk) return GpuResult::Ok();
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(error, &name) != kGpuOk || name == nullptr) name = "unknown error";
  if (api.cuGetErrorString(error, &text) != kGpuOk || text == nullptr) text = "no description";
  return GpuResult::Error(fmt::format("{}: {} = {} ({})", call, name, error, text), error);
}

}  // namespace specd::cuda
