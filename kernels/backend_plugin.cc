#include "kernels/backend_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

namespace specd {

absl::Status LoadBackendPlugin(const std::string& path, BackendRegistry* registry) {
  // Without a slash the dynamic linker would search its folders.
  if (!path.starts_with('/')) {
    return absl::InvalidArgumentError(
        fmt::format("the backend plugin \"{}\" has no absolute path; write the whole path", path));
  }
  // Local, so that no symbol of the plugin takes the place of one of ours. Never closed: backends
  // live as long as their sessions.
  void* const plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    return absl::NotFoundError(
        fmt::format("the backend plugin {} cannot be loaded: {}", path, dlerror()));
  }
  const auto abi = reinterpret_cast<const char* (*)()>(dlsym(plugin, "specd_backend_abi"));
  const auto register_backends = reinterpret_cast<void (*)(BackendRegistry*, absl::Status*)>(
      dlsym(plugin, "specd_register_backends"));
  if (abi == nullptr || register_backends == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("{} is no backend plugin: it lacks {}; write SPECD_BACKEND_PLUGIN once in it "
                    "(docs/BACKENDS.md)",
                    path, abi == nullptr ? "specd_backend_abi" : "specd_register_backends"));
  }
  if (std::string_view(abi()) != kBackendAbi) {
    return absl::UnimplementedError(
        fmt::format("the backend plugin {} was compiled with \"{}\", and this program with \"{}\"; "
                    "compile the plugin again with the sources and the compiler of this program",
                    path, abi(), kBackendAbi));
  }
  absl::Status status;
  register_backends(registry, &status);
  if (status.ok()) return status;
  return absl::Status(
      status.code(), fmt::format("the backend plugin {}: {}", path, std::string(status.message())));
}

}  // namespace specd
