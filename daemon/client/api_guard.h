// Guard wraps the functions of the C interface for the files that define them.
//
// No exception leaves a guarded function. A status becomes a code and the text of specd_last_error.
// Adopt brings structs of other versions to this version. Safe from any thread; each thread has its
// own last error.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/version.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd::api {

const std::string& LastError();

// Remembers the text for LastError; returns the code.
int Fail(int code, std::string text);
int NullArgument(const char* field);
int Finish(const absl::Status& status);
int Finish(const absl::StatusOr<int>& answer);

// Runs `body`, which returns something that Finish takes. The body may run out of memory, and
// libraries may throw; C code never sees an exception.
template <class Body>
int Guard(Body body) {
  try {
    return Finish(body());
  } catch (const std::bad_alloc&) {
    return Fail(SPECD_ERROR_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return Fail(SPECD_ERROR_INTERNAL, error.what());
  }
}

// CallGate lets one thread at a time into the calls of a handle, and only in the process that
// opened it. A program that breaks these rules gets an error in place of corrupt rounds.
class CallGate {
 public:
  CallGate();

  // `what` is the handle's name in the error.
  template <class Body>
  int Run(const char* what, Body body) {
    if (const int code = Enter(what); code != SPECD_OK) return code;
    struct Leave {
      ~Leave() { gate->in_call_.store(false, std::memory_order_release); }
      CallGate* gate;
    } leave{this};
    return Guard(std::move(body));
  }

  // Waits until no thread is in a call, and lets none in any more. False in a forked child: the
  // handle is the parent's.
  bool Close();

 private:
  int Enter(const char* what);

  const uint64_t process_;
  std::atomic<bool> in_call_{false};
};

// Brings a struct of the caller's version to this version. A field that an older caller does not
// have keeps its default. A newer caller's further fields must be zero, because this version could
// not honour them.
template <class T>
absl::Status Adopt(const T* from, void (*init)(T*), T* to) {
  init(to);
  const uint32_t size = from->struct_size;
  if (size < sizeof(uint32_t) || size > 65536) {
    return MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "struct_size",
        fmt::format("struct_size = {}; fill the struct with its _init function", size));
  }
  const char* bytes = reinterpret_cast<const char*>(from);
  for (uint32_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "struct_size",
        fmt::format(
            "the struct has a field at byte {} that this version ({}) does not know; leave it "
            "at its default, or use a newer library",
            i, kVersion));
  }
  std::memcpy(to, from, std::min<size_t>(size, sizeof(T)));
  to->struct_size = sizeof(T);
  return absl::OkStatus();
}

// Sets *handle to the object that `make` makes of the adopted options, or to null on an error.
template <class Handle, class Options, class Make>
int Open(const Options* options, void (*init)(Options*), Make make, Handle** handle) {
  *handle = nullptr;
  return Guard([&]() -> absl::Status {
    Options adopted;
    if (absl::Status status = Adopt(options, init, &adopted); !status.ok()) return status;
    auto made = make(adopted);
    if (!made.ok()) return made.status();
    *handle = new Handle{*std::move(made)};
    return absl::OkStatus();
  });
}

}  // namespace specd::api
