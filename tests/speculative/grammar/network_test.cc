// The size of a network, compared with the bytes that the C library's heap says it has given out.
#include "speculative/grammar/network/network.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include <optional>
#include <string>
#include <utility>

#include "speculative/grammar/front_ends/regex.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

size_t UsedBytes() {
  const auto heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

std::optional<Network> BuildRegex(const std::string& text) {
  GrammarRules rules;
  const absl::StatusOr<ExprId> body = ParseRegex(text, {}, &rules);
  REQUIRE(body.ok());
  const RuleId root = rules.AddRule("the constraint");
  rules.Define(root, *body);
  rules.SetRoot(root);
  absl::StatusOr<Network> network = Network::Build(rules);
  REQUIRE(network.ok());
  return *std::move(network);
}

TEST_SUITE("unit") {
  TEST_CASE("a network took twice the memory that it counted") {
    if (kIsSanitized) return;  // the heap is the sanitizer's
    for (const char* const part : {"(ab|c[0-9]|\u00e9)x?", "a?b", "([a-z]{40}[0-9])"}) {
      std::string text;
      for (int i = 0; i < 500; ++i) text += part;
      CAPTURE(part);
      const size_t before = UsedBytes();
      const std::optional<Network> network = BuildRegex(text);
      const auto used = static_cast<double>(UsedBytes() - before);
      const auto counted = static_cast<double>(network->size_bytes());
      CHECK(used < 1.3 * counted);
      CHECK(counted < 1.3 * used);
    }
  }
}

}  // namespace
}  // namespace specd::grammar
