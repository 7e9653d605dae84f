// The shares of engines in the memory of constraints. The expected numbers follow from the rule: an
// engine holds as much as it leaves free, and always a 256th.
#include "speculative/grammar/compiler/grammar_holder.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "speculative/grammar/compiler/compile_cache.h"
#include "tests/support/grammar_weight.h"

namespace specd::grammar {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
using Grammar = std::shared_ptr<const CompiledGrammar>;

struct Engines {
  // 1024 MiB: grammars have room for 768, and an engine has always 4.
  GrammarMemory memory{1024 * kMiB};
  GrammarWeights weights{&memory};
  GrammarHolder greedy{&memory};
  GrammarHolder other{&memory};

  CompileResult Open(GrammarHolder& holder, size_t num_mib) {
    if (absl::Status status = holder.CheckRoom(); !status.ok()) return status;
    return holder.Hold(weights.Make(num_mib * kMiB));
  }
  // Opens grammars of one size until one is refused.
  std::vector<Grammar> Fill(GrammarHolder& holder, size_t num_mib) {
    std::vector<Grammar> held;
    while (true) {
      CompileResult opened = Open(holder, num_mib);
      if (!opened.ok()) return held;
      held.push_back(*std::move(opened));
    }
  }
};

TEST_SUITE("unit") {
  TEST_CASE("one engine's grammars took the memory of all, and a small one was refused") {
    Engines f;
    std::vector<Grammar> many = f.Fill(f.greedy, 48);
    CHECK(many.size() == 8);  // 384 MiB, half of the room
    CHECK(f.greedy.size_bytes() == 384 * kMiB);
    const CompileResult refused = f.Open(f.greedy, 48);
    CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(
        std::string(refused.status().message()) ==
        "the constraints of this engine's sequences take 432.0 MiB, this one included, and all "
        "engines leave 336.0 of 768.0 MiB free. An engine may take as much as it leaves free, and "
        "always 4.0 MiB; close sequences, or try again later");
    CHECK(f.Open(f.other, 1).ok());
    // Greedy engines leave less and less. One that holds little is still served.
    std::vector<std::unique_ptr<GrammarHolder>> holders;
    std::vector<std::vector<Grammar>> held;
    for (int i = 0; i < 30; ++i) {
      holders.push_back(std::make_unique<GrammarHolder>(&f.memory));
      held.push_back(f.Fill(*holders.back(), 4));
      CHECK(!held.back().empty());
    }
    CHECK(f.memory.size_bytes() > 768 * kMiB);
    CHECK(f.Open(f.other, 4).ok());
    CHECK(!f.Open(f.other, 5).ok());
    // A closed sequence makes room for its engine.
    many.resize(1);
    CHECK(f.greedy.size_bytes() == 48 * kMiB);
    CHECK(f.Open(f.greedy, 48).ok());
  }

  TEST_CASE("a grammar that is held twice counts once, and until its last sequence is closed") {
    Engines f;
    const auto grammar = f.weights.Make(300 * kMiB);
    CompileResult first = f.greedy.Hold(grammar);
    REQUIRE(first.ok());
    CompileResult second = f.greedy.Hold(grammar);
    REQUIRE(second.ok());
    CHECK(*first == *second);
    CHECK(f.greedy.size_bytes() == 300 * kMiB);
    // It counts for another engine too.
    CHECK(f.other.Hold(grammar).ok());
    first = absl::UnknownError("closed");
    CHECK(f.greedy.size_bytes() == 300 * kMiB);
    second = absl::UnknownError("closed");
    CHECK(f.greedy.size_bytes() == 0);
    CHECK(f.other.size_bytes() == 0);
    CHECK(grammar.use_count() == 1);
  }

  TEST_CASE("grammars that no sequence follows give way before an engine is refused") {
    Engines f;
    CompileCache cache({.bytes_max = 2048 * kMiB, .memory = &f.memory});
    const auto open = [&](GrammarHolder& holder, const std::string& name) -> CompileResult {
      if (absl::Status status = holder.CheckRoom(); !status.ok()) return status;
      CompileResult compiled =
          cache.FindOrCompile({.kind = GrammarKind::kRegex, .text = name},
                              [&]() -> CompileResult { return f.weights.Make(100 * kMiB); });
      return compiled.ok() ? holder.Hold(*std::move(compiled)) : compiled;
    };
    for (const char* const name : {"a", "b", "c", "d", "e", "f", "g"}) {
      CHECK(open(f.greedy, name).ok());  // and closed
    }
    CHECK(f.memory.size_bytes() == 600 * kMiB);  // "a" gave way to "g"
    const CompileResult one = open(f.other, "h");
    const CompileResult two = open(f.other, "i");
    const CompileResult three = open(f.other, "j");
    REQUIRE(one.ok());
    REQUIRE(two.ok());
    REQUIRE(three.ok());
    CHECK(f.other.size_bytes() == 300 * kMiB);
    CHECK(f.memory.size_bytes() + f.other.size_bytes() <= 768 * kMiB);
  }

  TEST_CASE("a holder that is gone, and threads that hold and release one grammar") {
    GrammarMemory memory(1024 * kMiB);
    const GrammarWeights weights(&memory);
    const auto grammar = weights.Make(1);
    Grammar left;
    {
      GrammarHolder holder(&memory);
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
          for (int j = 0; j < 1000; ++j) REQUIRE(holder.Hold(grammar).ok());
        });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK(holder.size_bytes() == 0);
      left = *holder.Hold(grammar);
      CHECK(holder.size_bytes() == 1);
    }
    left.reset();
    CHECK(grammar.use_count() == 1);
  }
}

}  // namespace
}  // namespace specd::grammar
