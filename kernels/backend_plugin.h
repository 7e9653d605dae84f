// LoadBackendPlugin registers the backends of a shared object.
//
// A plugin is a shared object that links specd::backend and has one SPECD_BACKEND_PLUGIN. It has to
// be compiled by the same compiler, and with the same headers and standard library, as the program
// that loads it. The loader compares kBackendAbi, and refuses another one. The plugin's
// initialisers run before that. docs/BACKENDS.md has an example.
//
//   SPECD_BACKEND_PLUGIN(registry) {
//     return registry.Register({.name = "mine", .make = &MakeMine});
//   }
#pragma once

#include <string>

#include "absl/status/status.h"
#include "kernels/backend_abi.h"
#include "kernels/backend_registry.h"

namespace specd {

// The path begins with "/". If the plugin is refused, it is closed again, and the error names the
// path and the remedy. Once its registration begins, the plugin stays loaded for the life of the
// process; backends that it had registered before an error of its own stay registered. An exception
// of the registration is INTERNAL.
absl::Status LoadBackendPlugin(const std::string& path, BackendRegistry* registry);

}  // namespace specd

// Defines what a plugin exports. The body that follows registers its backends and returns a status.
// `registry` outlives them, so they may use it to make backends of the program.
#define SPECD_BACKEND_PLUGIN(registry)                                         \
  static absl::Status SpecdRegisterBackends(specd::BackendRegistry& registry); \
  extern "C" [[gnu::visibility("default")]] const char* specd_backend_abi() {  \
    return specd::kBackendAbi;                                                 \
  }                                                                            \
  extern "C" [[gnu::visibility("default")]] void specd_register_backends(      \
      specd::BackendRegistry* to, absl::Status* status) {                      \
    *status = SpecdRegisterBackends(*to);                                      \
  }                                                                            \
  static absl::Status SpecdRegisterBackends(specd::BackendRegistry& registry)
