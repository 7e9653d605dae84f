// The order of keys as a mode of a constraint.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd::grammar {
namespace {

TEST_SUITE("unit") {
  TEST_CASE(
      "a schema with keys in any order is another constraint, alone and in a structural tag") {
    Vocabulary::Builder builder;
    TokenId next = 0;
    for (const char* piece : {"{", "}", ",", ":", "\"", "a", "b", "1"})
      builder.Set(next++, piece, {});
    const Vocabulary vocabulary = std::move(builder).Build();
    GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = next});
    const std::string schema =
        R"({"type":"object","properties":{"a":{"const":1},"b":{"const":1}},"additionalProperties":false})";
    const auto accepts = [&](const GrammarRequest& request, std::string_view text) {
      const auto compiled = compiler.Compile(request);
      REQUIRE_MESSAGE(compiled.ok(), std::string(compiled.status().message()));
      const auto matcher = (*compiled)->NewMatcher({});
      return matcher->AcceptText(text) && matcher->IsAccepting();
    };
    const auto tag_with = [&](const char* option) {
      return R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":)" + schema +
             option + "}}";
    };
    GrammarRequest request = {.kind = GrammarKind::kJsonSchema, .text = schema};
    for (const KeyOrder order : {KeyOrder::kSchema, KeyOrder::kAny, KeyOrder::kSchema}) {
      request.key_order = order;
      const bool is_any = order == KeyOrder::kAny;
      CHECK(accepts(request, R"({"a":1,"b":1})"));
      CHECK(accepts(request, R"({"b":1,"a":1})") == is_any);
      CHECK_FALSE(accepts(request, R"({"a":1,"a":1})"));
      // A tag's own option, and that of the request.
      const GrammarRequest tag = {.kind = GrammarKind::kStructuralTag,
                                  .text = tag_with(is_any ? R"(,"any_order":true)" : "")};
      CHECK(accepts(tag, R"({"b":1,"a":1})") == is_any);
      const GrammarRequest plain = {
          .kind = GrammarKind::kStructuralTag, .text = tag_with(""), .key_order = order};
      CHECK(accepts(plain, R"({"b":1,"a":1})") == is_any);
    }
  }
}

}  // namespace
}  // namespace specd::grammar
