#include "speculative/grammar/slow_compile.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace specd::grammar {
namespace {

struct Job {
  std::function<CompileResult()> compile;
  CompileResult result = absl::UnknownError("compiling");
  bool is_done = false;
};

struct Turn {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_taken = false;  // by a job that runs
  int num_stops = 0;
};

// A thread that is left behind uses it until the process ends, so it is never destroyed.
Turn& TheTurn() {
  static Turn* const turn = new Turn;
  return *turn;
}

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
  Turn& turn = TheTurn();
  const std::lock_guard lock(turn.mutex);
  job->result = std::move(result);
  job->is_done = true;
  turn.is_taken = false;
  turn.changed.notify_all();
}

}  // namespace

CompileResult SlowCompile(const SlowCompileOptions& options,
                          std::function<CompileResult()> compile) {
  Turn& turn = TheTurn();
  const auto turn_end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options.turn_ms);
  std::unique_lock lock(turn.mutex);
  turn.changed.wait_until(lock, turn_end, [&] { return !turn.is_taken || turn.num_stops > 0; });
  if (turn.num_stops > 0) return absl::UnavailableError("specd stops");
  if (turn.is_taken) {
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
  turn.is_taken = true;
  turn.changed.wait_until(lock, deadline, [&] { return job->is_done || turn.num_stops > 0; });
  if (job->is_done) return std::move(job->result);
  if (turn.num_stops > 0) return absl::UnavailableError("specd stops");
  return absl::DeadlineExceededError(fmt::format(
      "the constraint took longer to compile than {} ms, which is the limit; simplify it",
      options.deadline_ms));
}

CompileStop::CompileStop() {
  Turn& turn = TheTurn();
  const std::lock_guard lock(turn.mutex);
  ++turn.num_stops;
  turn.changed.notify_all();
}

CompileStop::~CompileStop() {
  Turn& turn = TheTurn();
  const std::lock_guard lock(turn.mutex);
  --turn.num_stops;
}

bool IsCompileLeftBehind() {
  Turn& turn = TheTurn();
  const std::lock_guard lock(turn.mutex);
  return turn.is_taken;
}

}  // namespace specd::grammar
