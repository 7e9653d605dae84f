// One thread of one process uses an engine. Others get an error that names the rule.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "daemon/client/api_guard.h"
#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::EngineHost;

// What `child` finds wrong in a forked child; "" if nothing. The child ends without destructors.
std::string FindInChild(std::string (*child)(EmbeddedEngine*), EmbeddedEngine* engine) {
  std::array<int, 2> fds = {};
  REQUIRE(pipe(fds.data()) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    const std::string problem = child(engine);
    const bool told =
        write(fds[1], problem.data(), problem.size()) == static_cast<ssize_t>(problem.size());
    _exit(told ? 0 : 1);
  }
  close(fds[1]);
  std::string problem;
  std::array<char, 256> buffer;
  for (ssize_t size = 0; (size = read(fds[0], buffer.data(), buffer.size())) > 0;) {
    problem.append(buffer.data(), static_cast<size_t>(size));
  }
  close(fds[0]);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
  return problem;
}

std::string UseInChild(EmbeddedEngine* engine) {
  specd_region region;
  if (specd_alloc(engine->engine, 4096, &region) != SPECD_ERROR_STATE) return "alloc was let in";
  if (std::string(specd_last_error()).find("forked") == std::string::npos) {
    return "the error does not name the fork: " + std::string(specd_last_error());
  }
  specd_completion completion = SizedCompletion();
  if (specd_poll(engine->engine, &completion, 0) != SPECD_ERROR_STATE) return "poll was let in";
  specd_close(engine->engine);
  return "";
}

void CheckRound(EmbeddedEngine* f, const std::string& name) {
  EmbeddedEngine::SetRow(f->target, 0, {0, 0, 0, 9, 0, 0, 0, 0});
  const specd_result result = f->Sample(f->Open(EmbeddedEngine::Params(), name));
  REQUIRE(result.num_kept == 1);
  CHECK(result.tokens[0] == 3);
}

TEST_SUITE("unit") {
  TEST_CASE("a forked child cannot use its parent's engine, and closing it there ends nothing") {
    std::unique_ptr<EngineHost> host;
    std::string uri = "embedded:cpu";
    SUBCASE("embedded") {}
    SUBCASE("attached") {
      host = std::make_unique<EngineHost>();
      uri = host->uri;
    }
    EmbeddedEngine f(uri);
    CheckRound(&f, "before");
    CHECK(FindInChild(&UseInChild, &f) == "");
    CheckRound(&f, "after");
  }

  TEST_CASE("a second thread in an engine gets an error, and the first one's call is whole") {
    EmbeddedEngine f;
    std::atomic<bool> stop = false;
    std::atomic<int> refused = 0;
    std::atomic<int> wrong = 0;
    std::thread other([&] {
      while (!stop) {
        specd_engine_stats stats;
        specd_engine_stats_init(&stats);
        const int code = specd_get_engine_stats(f.engine, &stats);
        if (code == SPECD_ERROR_STATE) {
          if (std::string(specd_last_error()).find("one thread at a time") == std::string::npos) {
            ++wrong;
          }
          ++refused;
        } else if (code != SPECD_OK) {
          ++wrong;
        }
      }
    });
    // The first thread meets the second one too, so it asks again.
    int polled = 0;
    specd_completion completion = SizedCompletion();
    while (refused == 0 || polled < 1000) {
      const int code = specd_poll(f.engine, &completion, 1);
      if (code != SPECD_EMPTY && code != SPECD_ERROR_STATE) ++wrong;
      ++polled;
    }
    stop = true;
    other.join();
    CHECK(wrong == 0);
    CHECK(refused > 0);
  }

  TEST_CASE("closing waits for the call of another thread, and lets none in afterwards") {
    api::CallGate gate;
    std::atomic<bool> is_in_call = false;
    std::atomic<bool> has_ended = false;
    std::thread other([&] {
      gate.Run("engine", [&] {
        is_in_call = true;
        // Long enough for a Close that does not wait to return first.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        has_ended = true;
        return SPECD_OK;
      });
    });
    while (!is_in_call) std::this_thread::yield();
    CHECK(gate.Close());
    CHECK(has_ended);
    other.join();
    CHECK(gate.Run("engine", [] { return SPECD_OK; }) == SPECD_ERROR_STATE);
  }
}

}  // namespace
}  // namespace specd
