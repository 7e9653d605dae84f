// Compiles that are shared, tried again, and dropped. The expected answers follow from the calls:
// each compile of these tests says its number.
#include "speculative/grammar/compiler/compile_cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/grammar_weight.h"

namespace specd::grammar {
namespace {

GrammarRequest Named(const std::string& text) {
  return {.kind = GrammarKind::kRegex, .text = text};
}

struct Fixture {
  CompileResult Find(const std::string& name, absl::Status status) {
    return cache.FindOrCompile(Named(name), [&]() -> CompileResult {
      ++num_compiles;
      if (!status.ok()) return status;
      return weights.Make(1);
    });
  }

  int64_t now_ms = 5'000'000;
  int num_compiles = 0;
  GrammarMemory memory{1 << 20};
  GrammarWeights weights{&memory};
  CompileCache cache{
      {.bytes_max = 1000, .memory = &memory, .wait_ms = 5, .now_ms = [this] { return now_ms; }}};
};

TEST_SUITE("unit") {
  TEST_CASE("an opening waited without end for the compile of another one") {
    GrammarMemory memory(1 << 20);
    const GrammarWeights weights(&memory);
    std::promise<void> begun;
    std::promise<void> end;
    CompileResult first = absl::UnknownError("compiling");
    CompileCache cache({.memory = &memory, .wait_ms = 5});
    std::thread compiler([&] {
      first = cache.FindOrCompile(Named("a"), [&]() -> CompileResult {
        begun.set_value();
        end.get_future().wait();
        return weights.Make(1);
      });
    });
    begun.get_future().wait();
    const auto fails = []() -> CompileResult { throw std::logic_error("a second compile"); };
    const CompileResult late = cache.FindOrCompile(Named("a"), fails);
    CHECK(late.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(late.status().message().find("5 ms passed") != absl::string_view::npos);
    // Other requests do not wait, and the refusal is not the answer once the compile has ended.
    CHECK(cache.FindOrCompile(Named("b"), [&]() -> CompileResult { return weights.Make(1); }).ok());
    end.set_value();
    compiler.join();
    REQUIRE(first.ok());
    const CompileResult again = cache.FindOrCompile(Named("a"), fails);
    REQUIRE(again.ok());
    CHECK(*again == *first);
  }

  TEST_CASE("a compile that took too long was refused for ever") {
    Fixture f;
    const absl::Status late = absl::DeadlineExceededError("took longer than 30000 ms");
    int num_tries = 0;
    for (int64_t pause_ms = CompileCache::kFirstPauseMs; num_tries < 9; ++num_tries) {
      CAPTURE(num_tries);
      const CompileResult tried = f.Find("slow", late);
      CHECK(f.num_compiles == num_tries + 1);
      CHECK(tried.status().code() == absl::StatusCode::kResourceExhausted);
      CHECK(std::string(tried.status().message()) == "took longer than 30000 ms; for " +
                                                         std::to_string(pause_ms / 1000) +
                                                         " s it is not tried again");
      // In the pause the answer is known.
      f.now_ms += pause_ms - 1;
      CHECK(f.Find("slow", absl::OkStatus()).status() == tried.status());
      CHECK(f.num_compiles == num_tries + 1);
      f.now_ms += 1;
      pause_ms = std::min(2 * pause_ms, CompileCache::kPauseMsMax);
    }
    CHECK(f.Find("slow", absl::OkStatus()).ok());
    CHECK(f.num_compiles == num_tries + 1);
    CHECK(f.Find("slow", late).ok());  // it is compiled
  }

  TEST_CASE("a try that found no room or turn ended the pause after a compile that took too long") {
    Fixture f;
    const absl::Status late = absl::DeadlineExceededError("late");
    REQUIRE(!f.Find("slow", late).ok());
    f.now_ms += CompileCache::kFirstPauseMs;
    const CompileResult busy = f.Find("slow", absl::UnavailableError("busy"));
    CHECK(busy.status() == absl::ResourceExhaustedError("busy; for 60 s it is not tried again"));
    CHECK(f.num_compiles == 2);
    CHECK(f.Find("slow", late).status() == busy.status());
    CHECK(f.num_compiles == 2);
    f.now_ms += CompileCache::kFirstPauseMs;
    CHECK(f.Find("slow", late).status().message().find("for 120 s") != absl::string_view::npos);
    // Such a try waits for the first pause, however long the last one was.
    f.now_ms += 2 * CompileCache::kFirstPauseMs;
    CHECK(f.Find("slow", absl::UnavailableError("busy")).status() == busy.status());
    CHECK(f.num_compiles == 4);
    f.now_ms += CompileCache::kFirstPauseMs;
    CHECK(f.Find("slow", absl::OkStatus()).ok());
  }

  TEST_CASE("errors are kept, except those that have their cause in the machine") {
    Fixture f;
    for (int i = 0; i < 2; ++i) {
      CHECK(f.Find("wrong", absl::InvalidArgumentError("wrong")).status() ==
            absl::InvalidArgumentError("wrong"));
    }
    CHECK(f.num_compiles == 1);
    CHECK(f.Find("now", absl::UnavailableError("no room")).status() ==
          absl::ResourceExhaustedError("no room"));
    const CompileResult thrown = f.cache.FindOrCompile(
        Named("now"), []() -> CompileResult { throw std::runtime_error("a fault"); });
    CHECK(thrown.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(thrown.status().message().find("a fault") != absl::string_view::npos);
    CHECK(f.Find("now", absl::OkStatus()).ok());
    CHECK(f.num_compiles == 3);
  }

  TEST_CASE("unused grammars of other models kept the memory of the process") {
    constexpr size_t kPart = size_t{1} << 20;
    GrammarMemory memory(16 * kPart);  // grammars take 12 parts before one is dropped
    const GrammarWeights weights(&memory);
    CompileCache first({.memory = &memory});
    CompileCache second({.memory = &memory});
    const auto find = [&](CompileCache& cache, const std::string& name, size_t num_parts,
                          bool* is_new = nullptr) {
      if (is_new != nullptr) *is_new = false;
      return cache.FindOrCompile(Named(name), [&]() -> CompileResult {
        if (is_new != nullptr) *is_new = true;
        return weights.Make(num_parts * kPart);
      });
    };
    // A sequence follows the oldest.
    auto followed = find(first, "a", 3);
    REQUIRE(followed.ok());
    REQUIRE(find(first, "b", 4).ok());
    REQUIRE(find(first, "c", 3).ok());
    REQUIRE(find(second, "d", 3).ok());
    REQUIRE(memory.size_bytes() == 13 * kPart);
    bool is_new = false;
    // There is no room for this one before something goes: "b" is the oldest without a follower.
    REQUIRE(find(second, "e", 4, &is_new).ok());
    CHECK(is_new);
    CHECK(memory.size_bytes() == 13 * kPart);
    // Now "c", though it belongs to the other cache. All others are there.
    REQUIRE(find(second, "d", 9, &is_new).ok());
    CHECK(!is_new);
    REQUIRE(find(first, "a", 9, &is_new).ok());
    CHECK(!is_new);
    CHECK(memory.size_bytes() == 10 * kPart);
    REQUIRE(find(first, "c", 3, &is_new).ok());
    CHECK(is_new);
    // "e" was used before "d".
    REQUIRE(find(first, "f", 3).ok());
    CHECK(memory.size_bytes() == 12 * kPart);
    REQUIRE(find(second, "d", 9, &is_new).ok());
    CHECK(!is_new);
    // Grammars that are followed stay: only "a" is left of the old ones.
    memory.Add(10 * kPart);
    REQUIRE(find(second, "g", 1, &is_new).ok());
    CHECK(is_new);
    CHECK(memory.size_bytes() == 14 * kPart);
    memory.Remove(10 * kPart);
  }

  TEST_CASE("a cache that is gone is not asked for its grammars") {
    GrammarMemory memory(100);
    const GrammarWeights weights(&memory);
    CompileCache first({.memory = &memory});
    {
      CompileCache second({.memory = &memory});
      REQUIRE(second.FindOrCompile(Named("a"), [&]() -> CompileResult { return weights.Make(90); })
                  .ok());
    }
    CHECK(memory.size_bytes() == 0);
    memory.Add(90);
    CHECK(first.FindOrCompile(Named("b"), [&]() -> CompileResult { return weights.Make(1); }).ok());
  }
}

}  // namespace
}  // namespace specd::grammar
