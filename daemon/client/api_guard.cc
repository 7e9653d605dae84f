#include "daemon/client/api_guard.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace specd::api {
namespace {

thread_local std::string last_error;

// Another number in a process that was forked from this one. Reading it costs no system call.
std::atomic<uint64_t> process_number{1};
[[maybe_unused]] const int fork_handler = pthread_atfork(
    nullptr, nullptr, [] { process_number.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

const std::string& LastError() { return last_error; }

CallGate::CallGate() : process_(process_number.load(std::memory_order_relaxed)) {}

int CallGate::Enter(const char* what) {
  if (process_ != process_number.load(std::memory_order_relaxed)) {
    return Fail(SPECD_ERROR_STATE,
                fmt::format("the {0} was opened before this process was forked, and belongs to the "
                            "parent; open one of its own in the child",
                            what));
  }
  if (in_call_.exchange(true, std::memory_order_acquire)) {
    return Fail(SPECD_ERROR_STATE,
                fmt::format("another thread is in a call of this {0}; one thread at a time may use "
                            "it: take a lock around its calls",
                            what));
  }
  return SPECD_OK;
}

bool CallGate::Close() {
  if (process_ != process_number.load(std::memory_order_relaxed)) return false;
  while (in_call_.exchange(true, std::memory_order_acquire)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

int Fail(int code, std::string text) {
  last_error = std::move(text);
  return code;
}

int NullArgument(const char* field) {
  return Fail(SPECD_ERROR_INVALID_ARGUMENT, fmt::format("{} is NULL", field));
}

int Finish(const absl::Status& status) {
  if (status.ok()) return SPECD_OK;
  return Fail(ErrorCodeOf(status), std::string(status.message()));
}

int Finish(const absl::StatusOr<int>& answer) {
  return answer.ok() ? *answer : Finish(answer.status());
}

}  // namespace specd::api
