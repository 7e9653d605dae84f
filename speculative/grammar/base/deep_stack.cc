#include "speculative/grammar/base/deep_stack.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstring>
#include <exception>

#include "kernels/core/check.h"
#include "speculative/grammar/base/compile_turns.h"

namespace specd::grammar {
namespace {

struct Job {
  absl::FunctionRef<void()> function;
  CompileTurn* turn = nullptr;
  std::exception_ptr thrown = nullptr;
};

// An exception that left this function would end the process.
void* Call(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  const CompileTurn::OnThread on_thread(job.turn);
  try {
    job.function();
  } catch (...) {
    job.thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

absl::Status RunOnDeepStack(size_t stack_bytes, absl::FunctionRef<void()> function) {
  pthread_attr_t attributes;
  SPECD_CHECK(pthread_attr_init(&attributes) == 0);
  int error = pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread = {};
  Job job = {.function = function, .turn = CompileTurn::OfThread()};
  if (error == 0) error = pthread_create(&thread, &attributes, &Call, &job);
  SPECD_CHECK(pthread_attr_destroy(&attributes) == 0);
  if (error != 0) {
    return absl::UnavailableError(
        fmt::format("no thread with a stack of {} bytes: {}", stack_bytes, std::strerror(error)));
  }
  SPECD_CHECK(pthread_join(thread, nullptr) == 0);
  if (job.thrown != nullptr) std::rethrow_exception(job.thrown);
  return absl::OkStatus();
}

}  // namespace specd::grammar
