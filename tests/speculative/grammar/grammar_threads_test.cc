// Several threads follow constraints at once. Preset tsan runs these too.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/grammar/masks/mask_cache.h"

namespace specd::grammar {
namespace {

constexpr TokenId kEos = 0;
constexpr int32_t kVocabSize = 40;

Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  builder.Set(kEos, "</s>", {.added = true, .special = true});
  TokenId id = 1;
  for (const char* piece : {"a", "b",  "c", "ab", "abc", "ba", "{",   "}", "\"", ":", ",",
                            "1", "12", "(", ")",  "aa",  "bb", "cab", "e", "((", "))"}) {
    builder.Set(id++, piece, {});
  }
  return std::move(builder).Build();
}

const char* const kGrammars[] = {
    "root ::= [a-c]+",
    "root ::= \"a\" root \"b\" | \"c\"",
    "root ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= \"\\\"\" [a-c]{1,30} \"\\\":\" [12]+",
    "root ::= e\ne ::= e e | \"1\" | \"(\" e \")\"",
};

TEST_SUITE("unit") {
  TEST_CASE("matchers of one grammar, in several threads, have the masks of one thread") {
    const Vocabulary vocabulary = MakeVocabulary();
    GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
    for (const char* grammar : kGrammars) {
      CAPTURE(grammar);
      // Each thread walks by itself over states that others make at the same time.
      const auto compiled = *compiler.CompileAnew({.kind = GrammarKind::kEbnf, .text = grammar});
      const auto alone = *compiler.CompileAnew({.kind = GrammarKind::kEbnf, .text = grammar});
      const auto walk = [](const CompiledGrammar& followed, uint32_t seed) {
        std::mt19937 random(seed);
        std::vector<std::vector<uint32_t>> masks;
        const auto matcher = followed.NewMatcher({.stop_ids = {kEos}});
        for (int step = 0; step < 60; ++step) {
          const MaskRow mask = matcher->Mask();
          masks.emplace_back(mask.words().begin(), mask.words().end());
          if (!matcher->Accept(static_cast<TokenId>(random() % kVocabSize)) &&
              matcher->num_accepted() > 5) {
            matcher->Rollback(random() % 5);
          }
        }
        return masks;
      };
      std::vector<std::vector<std::vector<uint32_t>>> found(4);
      std::vector<std::thread> threads;
      for (uint32_t i = 0; i < found.size(); ++i) {
        threads.emplace_back([&, i] { found[i] = walk(*compiled, i); });
      }
      for (std::thread& thread : threads) thread.join();
      for (uint32_t i = 0; i < found.size(); ++i) CHECK(found[i] == walk(*alone, i));
    }
  }

  TEST_CASE("the same constraint, asked for by several, is compiled once") {
    const Vocabulary vocabulary = MakeVocabulary();
    for (int repeat = 0; repeat < 20; ++repeat) {
      GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
      std::vector<std::shared_ptr<const CompiledGrammar>> compiled(4);
      std::vector<std::thread> threads;
      for (auto& place : compiled) {
        threads.emplace_back(
            [&] { place = *compiler.Compile({.kind = GrammarKind::kRegex, .text = "[ab]{3,5}"}); });
      }
      for (std::thread& thread : threads) thread.join();
      for (const auto& each : compiled) CHECK(each == compiled[0]);
    }
  }

  TEST_CASE("threads that met the same new state each built its mask: one builds, others wait") {
    GrammarMemory memory(size_t{1} << 30);
    MaskCache cache(1 << 20, &memory);
    std::atomic<int> num_builds = 0;
    std::atomic<int> num_failures = 0;
    std::vector<std::thread> threads;
    for (uint32_t seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&] {
        for (uint32_t state = 0; state < 500; ++state) {
          MaskCache::Words words;
          while (words == nullptr) {
            words = cache.FindOrBuild({.state = state}, [&]() -> MaskCache::Words {
              // The first builder of every seventh row has none; another thread then builds.
              if (state % 7 == 0 && num_failures.load() <= static_cast<int>(state / 7)) {
                ++num_failures;
                return nullptr;
              }
              ++num_builds;
              return std::make_shared<const MaskWords>(8, state);
            });
          }
          if (words->front() != state || words->back() != state) std::abort();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(num_builds.load() == 500);
    CHECK_THROWS_AS(
        cache.FindOrBuild({.state = 999}, []() -> MaskCache::Words { throw std::bad_alloc(); }),
        std::bad_alloc);
    CHECK(cache.FindOrBuild({.state = 999},
                            [] { return std::make_shared<const MaskWords>(1, 9u); }) != nullptr);
  }

  TEST_CASE("threads that insert and find the same keys see whole rows") {
    GrammarMemory memory(size_t{1} << 30);
    MaskCache cache(8 * 1200, &memory);
    std::vector<std::thread> threads;
    for (uint32_t seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&cache, seed] {
        for (uint32_t i = 0; i < 20000; ++i) {
          const uint32_t state = (i * 7 + seed * 3) % 16;
          MaskCache::Words words = cache.Find({.state = state});
          if (words == nullptr)
            words = cache.Insert({.state = state}, std::make_shared<const MaskWords>(256, state));
          if (words->front() != state || words->back() != state) std::abort();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace specd::grammar
