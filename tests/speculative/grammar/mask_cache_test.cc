#include "speculative/grammar/masks/mask_cache.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace specd::grammar {
namespace {

MaskCache::Words Row(uint32_t value, size_t size = 256) {
  return std::make_shared<const MaskWords>(size, value);
}

TEST_SUITE("unit") {
  TEST_CASE("the row used least recently is dropped, and lives on while somebody holds it") {
    GrammarMemory memory(size_t{1} << 30);
    MaskCache cache(4 * 1200, &memory);  // four rows of 1 KiB and their entries
    for (uint32_t i = 0; i < 4; ++i) cache.Insert({.state = i}, Row(i));
    const MaskCache::Words held = cache.Find({.state = 0});
    REQUIRE(held != nullptr);
    cache.Insert({.state = 4}, Row(4));
    CHECK(cache.Find({.state = 1}) == nullptr);  // 0 was used after it
    CHECK(cache.Find({.state = 0}) == held);
    for (uint32_t i = 5; i < 20; ++i) cache.Insert({.state = i}, Row(i));
    CHECK(cache.Find({.state = 0}) == nullptr);
    CHECK(held->at(0) == 0);
    CHECK(cache.size_bytes() <= 4 * 1200);
  }

  TEST_CASE("grammar, state and stop set are a key together; the first row of a key stays") {
    GrammarMemory memory(size_t{1} << 30);
    MaskCache cache(1 << 20, &memory);
    const MaskCache::Words first = cache.Insert({.grammar = 1, .state = 2, .stop_set = 3}, Row(1));
    CHECK(cache.Insert({.grammar = 1, .state = 2, .stop_set = 3}, Row(2)) == first);
    for (const MaskCache::Key& key :
         {MaskCache::Key{2, 2, 3}, MaskCache::Key{1, 3, 3}, MaskCache::Key{1, 2, 2}}) {
      CHECK(cache.Find(key) == nullptr);
    }
  }

  TEST_CASE("one row that is larger than the bound is kept until the next") {
    GrammarMemory memory(size_t{1} << 30);
    MaskCache cache(100, &memory);
    cache.Insert({.state = 1}, Row(1));
    CHECK(cache.Find({.state = 1}) != nullptr);
    cache.Insert({.state = 2}, Row(2));
    CHECK(cache.Find({.state = 1}) == nullptr);
  }

  // Bug: rows, up to 256 MiB for each tokenizer, came on top of the memory of all constraints.
  TEST_CASE("rows count in the memory of all grammars, and take an eighth of it at most") {
    GrammarMemory memory(8 * 10 * 1200);
    {
      MaskCache cache(size_t{1} << 30, &memory);
      for (uint32_t i = 0; i < 8; ++i) cache.Insert({.state = i}, Row(i));
      CHECK(memory.size_bytes() == cache.size_bytes());
      CHECK(memory.size_bytes() >= 8 * 1024);
      for (uint32_t i = 8; i < 100; ++i) cache.Insert({.state = i}, Row(i));
      CHECK(memory.size_bytes() == cache.size_bytes());
      CHECK(memory.size_bytes() <= 10 * 1200);
      CHECK(memory.size_bytes() > 8 * 1024);
    }
    CHECK(memory.size_bytes() == 0);
  }
}

}  // namespace
}  // namespace specd::grammar
