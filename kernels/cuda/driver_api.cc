#include "kernels/cuda/driver_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <atomic>
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

PointerQuery FindPointerQuery() {
  static std::atomic<PointerQuery> found{nullptr};
  static std::atomic<uint64_t> num_loads_seen{0};
  if (const PointerQuery query = found.load(std::memory_order_acquire)) return query;
  // The search takes tens of microseconds. Its answer holds until the process loads something.
  uint64_t num_loads = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* count) {
        *static_cast<uint64_t*>(count) = info->dlpi_adds;
        return 1;
      },
      &num_loads);
  if (num_loads == num_loads_seen.load(std::memory_order_relaxed)) return nullptr;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    num_loads_seen.store(num_loads, std::memory_order_relaxed);
    return nullptr;
  }
  const auto query = reinterpret_cast<PointerQuery>(dlsym(library, "cuPointerGetAttributes"));
  found.store(query, std::memory_order_release);
  return query;
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
