// BackendRegistry makes backends by the name of a device, such as "cpu", "cuda" or "cuda:1".
//
// The part before the colon names a backend, and the part after it a device of that backend. A
// program may register its own backends beside those of specd at any time (docs/BACKENDS.md). Any
// thread.
//
//   absl::Status status = ProcessBackends().Register({.name = "mine", .make = &MakeMine});
//   auto backend = ProcessBackends().Make("mine");
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace specd {

// A backend as its registry knows it. The fields say what a caller may ask of `make`.
struct BackendEntry {
  std::string name = {};           // 1 .. 32 of a-z, 0-9, "_" and "-"
  bool has_devices = false;        // BackendOptions::device_index may be given ("cuda:1")
  bool takes_cuda_stream = false;  // BackendOptions::cuda_stream may be given
  // Its answers are taken as they are; for the processors of specd, whose tests hold them to the
  // contract. The answers of every other backend are checked (kernels/answer_check.h).
  bool is_own = false;
  // Makes a backend, or says why this machine or this build has none. Called in any thread.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>(const BackendOptions&)> make = {};
};

class BackendRegistry {
 public:
  BackendRegistry() = default;
  // REQUIRES: Register takes each entry.
  explicit BackendRegistry(const std::vector<BackendEntry>& entries);
  BackendRegistry(const BackendRegistry&) = delete;
  BackendRegistry& operator=(const BackendRegistry&) = delete;
  virtual ~BackendRegistry() = default;

  // INVALID_ARGUMENT: the name is not allowed, or `make` is empty. ALREADY_EXISTS: the name is
  // taken. A plugin calls the function of the program that loads it, because the function is
  // virtual; so is Make.
  virtual absl::Status Register(BackendEntry entry);

  // INVALID_ARGUMENT: the device names no backend, or the backend takes no such option. INTERNAL:
  // BackendEntry::make threw an exception, or made nothing. Other errors are its own. Without
  // is_own, the backend's answers are checked.
  virtual absl::StatusOr<std::unique_ptr<Backend>> Make(std::string_view device,
                                                        const BackendOptions& options = {});

  // The entry of a device's backend; INVALID_ARGUMENT as for Make. The pointer stays valid.
  absl::StatusOr<const BackendEntry*> Find(std::string_view device) const;

  // The one spelling of a device: that of "cuda" and of "cuda:00" is "cuda:0". INVALID_ARGUMENT as
  // for Make.
  absl::StatusOr<std::string> FullName(std::string_view device) const;

  // In the order of registration.
  std::vector<std::string> Names() const;

 private:
  const BackendEntry* FindLocked(std::string_view name) const;
  std::string NamesText() const;  // for errors

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<const BackendEntry>> entries_;
};

// The registry of this process. It begins with "cpu" and "cuda", also in a build or on a machine
// without CUDA; Make says then what is missing.
BackendRegistry& ProcessBackends();

}  // namespace specd
