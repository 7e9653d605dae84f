// One thread of one process uses an engine. Others get an error that names the rule.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/client/api_guard.h"
#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/c_drafts.h"
#include "tests/support/grid_size.h"

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

// The child may also have an engine of its own.
std::string UseBothInChild(EmbeddedEngine* engine) {
  alarm(30);  // a child that waits for a thread or a lock of its parent ends so
  std::string problem = UseInChild(engine);
  if (!problem.empty()) return problem;
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = EmbeddedEngine::kVocab;
  options.threads = 1;
  specd_engine* own = nullptr;
  if (specd_open("embedded:cpu", &options, &own) != SPECD_OK) {
    return "no engine of its own: " + std::string(specd_last_error());
  }
  specd_params params = EmbeddedEngine::Params();
  specd_sequence_info info = Sized<specd_sequence_info>();
  if (specd_open_sequence(own, "child", &params, &info) != SPECD_OK) return "no sequence";
  const int32_t argmax[] = {5};
  specd_draft draft = ChainDraft(info.sequence, 0, nullptr, nullptr);
  draft.target_argmax = argmax;
  if (specd_submit(own, 1, &draft, 1) != SPECD_OK) return "its round was refused";
  specd_completion done = SizedCompletion();
  if (specd_poll(own, &done, 10000) != SPECD_OK) return "its round was not answered";
  const bool is_right = done.results[0].num_kept == 1 && done.results[0].tokens[0] == 5;
  specd_close(own);
  return is_right ? "" : "its round is wrong";
}

// Where the engines of a case are: a subcase for each.
struct Place {
  Place() {
    SUBCASE("embedded") {}
    SUBCASE("attached") {
      host = std::make_unique<EngineHost>();
      uri = host->uri;
    }
  }

  std::unique_ptr<EngineHost> host;
  std::string uri = "embedded:cpu";
};

void CheckRound(EmbeddedEngine* f, const std::string& name) {
  EmbeddedEngine::SetRow(f->target, 0, {0, 0, 0, 9, 0, 0, 0, 0});
  const specd_result result = f->Sample(f->Open(EmbeddedEngine::Params(), name));
  REQUIRE(result.num_kept == 1);
  CHECK(result.tokens[0] == 3);
}

TEST_SUITE("fault") {
  TEST_CASE("a forked child cannot use its parent's engine, and closing it there ends nothing") {
    const Place place;
    EmbeddedEngine f(place.uri);
    CheckRound(&f, "before");
    CHECK(FindInChild(&UseInChild, &f) == "");
    CheckRound(&f, "after");
  }

// The allocators of sanitizers keep their locks over a fork. oracle.fork forks without them.
#if !defined(SPECD_SANITIZED)
  TEST_CASE("a fork while other threads are in calls: the child is refused, no hang") {
    // The threads hold locks of the library, of its allocator and of its workers at any moment.
    const Place place;
    EmbeddedEngine busy(place.uri);
    EmbeddedEngine opening(place.uri);
    EmbeddedEngine::SetRow(busy.target, 0, {0, 0, 0, 9, 0, 0, 0, 0});
    std::atomic<bool> stop = false;
    std::atomic<uint64_t> rounds = 0;
    std::atomic<uint64_t> openings = 0;
    std::atomic<uint64_t> wrong = 0;
    const specd_sequence sequence = busy.Open([] {
      specd_params params = EmbeddedEngine::Params();
      params.max_tokens = 1u << 30;
      return params;
    }());
    std::thread in_rounds([&] {
      while (!stop) {
        const uint32_t row = 0;
        const specd_draft part = ChainDraft(sequence, 0, nullptr, &row);
        specd_completion done = SizedCompletion();
        if (specd_submit(busy.engine, 1, &part, 1) != SPECD_OK ||
            specd_poll(busy.engine, &done, 10000) != SPECD_OK || done.results[0].num_kept != 1 ||
            done.results[0].tokens[0] != 3) {
          ++wrong;
        }
        ++rounds;
      }
    });
    std::thread in_openings([&] {
      while (!stop) {
        specd_params params = EmbeddedEngine::Params();
        specd_sequence_info info = Sized<specd_sequence_info>();
        if (specd_open_sequence(opening.engine, "o", &params, &info) != SPECD_OK ||
            specd_close_sequence(opening.engine, info.sequence) != SPECD_OK) {
          ++wrong;
        }
        ++openings;
      }
    });
    for (int i = 0; i < GridSize({.full = 40, .sanitized = 4}); ++i) {
      const uint64_t before = rounds;
      const uint64_t opened = openings;
      CHECK(FindInChild(&UseBothInChild, i % 2 == 0 ? &busy : &opening) == "");
      // The parent's threads go on.
      while (rounds < before + 2 || openings < opened + 2) std::this_thread::yield();
    }
    stop = true;
    in_rounds.join();
    in_openings.join();
    CHECK(wrong == 0);
  }
#endif

  TEST_CASE("a second thread in an engine gets an error, the first one's call is whole") {
    const Place place;
    EmbeddedEngine f(place.uri);
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
