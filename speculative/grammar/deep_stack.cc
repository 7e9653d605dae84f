#include "speculative/grammar/deep_stack.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstring>

#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

void* Call(void* function) {
  (*static_cast<absl::FunctionRef<void()>*>(function))();
  return nullptr;
}

}  // namespace

absl::Status RunOnDeepStack(size_t stack_bytes, absl::FunctionRef<void()> function) {
  pthread_attr_t attributes;
  SPECD_CHECK(pthread_attr_init(&attributes) == 0);
  int error = pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread = {};
  if (error == 0) error = pthread_create(&thread, &attributes, &Call, &function);
  SPECD_CHECK(pthread_attr_destroy(&attributes) == 0);
  if (error != 0) {
    return absl::ResourceExhaustedError(
        fmt::format("no thread with a stack of {} bytes: {}", stack_bytes, std::strerror(error)));
  }
  SPECD_CHECK(pthread_join(thread, nullptr) == 0);
  return absl::OkStatus();
}

}  // namespace specd::grammar
