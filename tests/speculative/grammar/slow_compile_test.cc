#include "speculative/grammar/slow_compile.h"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "speculative/grammar/compile_cancel.h"
#include "speculative/grammar/deep_stack.h"

namespace specd::grammar {
namespace {

CompileResult Refused() { return absl::InvalidArgumentError("compiled"); }

TEST_SUITE("unit") {
  TEST_CASE("a compile without end blocked its opening, and stopping waited for it") {
    std::promise<void> end;
    const std::shared_future<void> ended = end.get_future().share();
    const CompileResult late = SlowCompile({.deadline_ms = 5}, [ended]() -> CompileResult {
      ended.wait();
      return Refused();
    });
    CHECK(late.status().code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(late.status().message().find("5 ms") != absl::string_view::npos);
    CHECK(IsCompileLeftBehind());
    // One at a time: the next is refused without a compile, for now.
    const CompileResult next =
        SlowCompile({.deadline_ms = 1000000, .turn_ms = 5}, [] { return Refused(); });
    CHECK(next.status().code() == absl::StatusCode::kUnavailable);
    CHECK(next.status().message().find("5 ms passed") != absl::string_view::npos);
    // A caller that waits with a long deadline is let go by a cancel.
    CompileResult waiting = absl::UnknownError("waiting");
    std::thread waiter(
        [&] { waiting = SlowCompile({.turn_ms = 1000000}, [] { return Refused(); }); });
    {
      const CompileCancel cancel;
      waiter.join();
    }
    CHECK(waiting.status().code() == absl::StatusCode::kUnavailable);
    end.set_value();
    // The turn is free when the thread has ended.
    CHECK(SlowCompile({.turn_ms = 1000000}, [] { return Refused(); }).status().message() ==
          "compiled");
    CHECK(!IsCompileLeftBehind());
  }

  TEST_CASE("an exception on a compile's thread ended the process") {
    const CompileResult thrown =
        SlowCompile({}, []() -> CompileResult { throw std::runtime_error("a fault"); });
    CHECK(thrown.status().code() == absl::StatusCode::kUnavailable);
    CHECK(thrown.status().message().find("a fault") != absl::string_view::npos);
    CHECK(!IsCompileLeftBehind());
    CHECK_THROWS_AS(static_cast<void>(RunOnDeepStack(
                        1 << 20, [] { throw std::runtime_error("on the deep stack"); })),
                    std::runtime_error);
  }

  TEST_CASE("a stack that the system cannot give now is no fault of the constraint") {
    bool has_run = false;
    const absl::Status status = RunOnDeepStack(size_t{1} << 62, [&] { has_run = true; });
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(!has_run);
  }
}

}  // namespace
}  // namespace specd::grammar
