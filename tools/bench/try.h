// SPECD_TRY and SPECD_TAKE pass errors on to the caller, for functions of specd-bench that return a
// Status or a StatusOr. Broken makes the error of a measurement whose sides are not what they
// should be. Safe from any thread.
//
//   SPECD_TRY(backend->Run(batch));
//   SPECD_TAKE(const auto backend, MakeBackend("cpu"));  // declares the value
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd::bench {

inline absl::Status Broken(std::string_view what) {
  return absl::InternalError("the scene is broken: " + std::string(what));
}

}  // namespace specd::bench

#define SPECD_JOIN_(a, b) a##b
#define SPECD_JOIN(a, b) SPECD_JOIN_(a, b)
#define SPECD_TRY(...) SPECD_TRY_(SPECD_JOIN(error_, __COUNTER__), (__VA_ARGS__))
#define SPECD_TRY_(error, call)                               \
  do {                                                        \
    if (absl::Status error = call; !error.ok()) return error; \
  } while (false)
#define SPECD_TAKE(declaration, ...) \
  SPECD_TAKE_(SPECD_JOIN(taken_, __COUNTER__), declaration, (__VA_ARGS__))
#define SPECD_TAKE_(taken, declaration, call) \
  auto taken = call;                          \
  if (!taken.ok()) return taken.status();     \
  declaration = *std::move(taken)
