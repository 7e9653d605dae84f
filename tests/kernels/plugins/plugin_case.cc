// Shared objects for backend_plugin_test.cc; SPECD_PLUGIN_CASE chooses one.
#define SPECD_TAKEN_NAME 1
#define SPECD_OTHER_ABI 2
#define SPECD_NO_ENTRY 3
#define SPECD_THROWS 4
#define SPECD_OTHER_STRINGS 5

#if SPECD_PLUGIN_CASE == SPECD_TAKEN_NAME
#include "kernels/backend_plugin.h"

SPECD_BACKEND_PLUGIN(registry) {
  return registry.Register({.name = "cpu", .make = [](const specd::BackendOptions&) {
                              return absl::StatusOr<std::unique_ptr<specd::Backend>>(
                                  absl::UnimplementedError("none"));
                            }});
}
#elif SPECD_PLUGIN_CASE == SPECD_THROWS
#include <stdexcept>

#include "kernels/backend_plugin.h"

SPECD_BACKEND_PLUGIN(registry) {
  static_cast<void>(registry);
  throw std::runtime_error("no card");
}
#else

#define EXPORTED extern "C" [[gnu::visibility("default")]]

#if SPECD_PLUGIN_CASE == SPECD_OTHER_STRINGS
#define _GLIBCXX_USE_CXX11_ABI 0
#include "kernels/backend_abi.h"
EXPORTED const char* specd_backend_abi() { return specd::kBackendAbi; }
#else
EXPORTED const char* specd_backend_abi() { return "GNU 4.8.0, headers 0123456789ab"; }
#endif
#if SPECD_PLUGIN_CASE != SPECD_NO_ENTRY
EXPORTED void specd_register_backends(void*, void*) { __builtin_trap(); }  // must not be called
#endif
#endif
