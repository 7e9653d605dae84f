#include "speculative/grammar/slow_compile.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "speculative/grammar/compile_cancel.h"

namespace specd::grammar {
namespace {

struct Job {
  std::function<CompileResult()> compile;
  CompileResult result = absl::UnknownError("compiling");
  bool is_done = false;
};

// A job runs. Guarded by CompileCancel::waits().
bool is_taken = false;

// Nothing may leave the thread of the compile. Without memory for its text, the status has none.
absl::Status FailedWith(const char* why) {
  try {
    return absl::UnavailableError(fmt::format("the compile failed: {}", why));
  } catch (...) {
    return {absl::StatusCode::kUnavailable, ""};
  }
}

CompileResult Call(const std::function<CompileResult()>& compile) {
  try {
    return compile();
  } catch (const std::exception& error) {
    return FailedWith(error.what());
  } catch (...) {
    return FailedWith("an unknown error");
  }
}

void Run(std::shared_ptr<Job> job) {
  CompileResult result = Call(job->compile);
  // The function may hold much; it goes before the turn is free.
  job->compile = nullptr;
  CompileCancel::Waits& waits = CompileCancel::waits();
  const std::lock_guard lock(waits.mutex);
  job->result = std::move(result);
  job->is_done = true;
  is_taken = false;
  waits.changed.notify_all();
}

}  // namespace

CompileResult SlowCompile(const SlowCompileOptions& options,
                          std::function<CompileResult()> compile) {
  CompileCancel::Waits& waits = CompileCancel::waits();
  const auto turn_end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options.turn_ms);
  std::unique_lock lock(waits.mutex);
  waits.changed.wait_until(lock, turn_end, [] { return !is_taken || CompileCancel::IsAsked(); });
  if (CompileCancel::IsAsked()) return CompileCancel::Refusal();
  if (is_taken) {
    return absl::UnavailableError(fmt::format(
        "another constraint is being compiled, one is compiled at a time, and {} ms passed; try "
        "again later",
        options.turn_ms));
  }
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options.deadline_ms);
  auto job = std::make_shared<Job>();
  job->compile = std::move(compile);
  try {
    std::thread(Run, job).detach();
  } catch (const std::system_error& error) {
    return absl::UnavailableError(fmt::format("no thread to compile on: {}", error.what()));
  }
  is_taken = true;
  waits.changed.wait_until(lock, deadline,
                           [&] { return job->is_done || CompileCancel::IsAsked(); });
  if (job->is_done) return std::move(job->result);
  if (CompileCancel::IsAsked()) return CompileCancel::Refusal();
  return absl::DeadlineExceededError(fmt::format(
      "the constraint took longer to compile than {} ms, which is the limit; simplify it",
      options.deadline_ms));
}

bool IsCompileLeftBehind() {
  const std::lock_guard lock(CompileCancel::waits().mutex);
  return is_taken;
}

}  // namespace specd::grammar
