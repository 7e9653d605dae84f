#include "kernels/backend_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <exception>
#include <string_view>

namespace specd {
namespace {

using GetAbi = const char* (*)();
using RegisterBackends = void (*)(BackendRegistry*, absl::Status*);

// Finds the function that registers the plugin's backends, or says why the plugin does not fit.
absl::StatusOr<RegisterBackends> FindEntry(const std::string& path, void* plugin) {
  const auto abi = reinterpret_cast<GetAbi>(dlsym(plugin, "specd_backend_abi"));
  const auto entry = reinterpret_cast<RegisterBackends>(dlsym(plugin, "specd_register_backends"));
  if (abi == nullptr || entry == nullptr) {
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
  return entry;
}

absl::Status Register(RegisterBackends entry, BackendRegistry* registry) {
  try {
    absl::Status status;
    entry(registry, &status);
    return status;
  } catch (const std::exception& error) {
    return absl::InternalError(
        fmt::format("it threw an exception when it registered its backends: {}; the body of "
                    "SPECD_BACKEND_PLUGIN must return errors as a status",
                    error.what()));
  }
}

}  // namespace

absl::Status LoadBackendPlugin(const std::string& path, BackendRegistry* registry) {
  // Without a slash the dynamic linker would search its folders.
  if (!path.starts_with('/')) {
    return absl::InvalidArgumentError(
        fmt::format("the backend plugin \"{}\" has no absolute path; write the whole path", path));
  }
  // The dynamic linker would wait for the writer of a FIFO.
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(fmt::format(
        "the backend plugin {} is no regular file; give the path of a shared object", path));
  }
  // Local, so that no symbol of the plugin takes the place of one of ours.
  void* const plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    return absl::NotFoundError(
        fmt::format("the backend plugin {} cannot be loaded: {}; give --backend_plugin or "
                    "specd_load_backends the path of a shared object for this machine "
                    "(docs/BACKENDS.md)",
                    path, dlerror()));
  }
  const absl::StatusOr<RegisterBackends> entry = FindEntry(path, plugin);
  if (!entry.ok()) {
    dlclose(plugin);
    return entry.status();
  }
  // From here on it stays loaded: backends live as long as their sessions.
  const absl::Status status = Register(*entry, registry);
  if (status.ok()) return status;
  return absl::Status(
      status.code(), fmt::format("the backend plugin {}: {}", path, std::string(status.message())));
}

}  // namespace specd
