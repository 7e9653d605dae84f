// The choice of a backend for a request. The cases with the xgrammar library are in
// xgrammar_compiler_test.cc.
#include "speculative/grammar/grammar_compiler.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <utility>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/xgrammar_install.h"

namespace specd::grammar {
namespace {

// specd's own engine cannot enforce this, and xgrammar takes it.
constexpr const char* kUniqueItems =
    R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})";

Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  TokenId id = 0;
  for (const char* piece : {"[", "]", ",", "1", "2", " "}) builder.Set(id++, piece, {});
  return std::move(builder).Build();
}

TEST_SUITE("unit") {
  TEST_CASE(
      "without xgrammar, auto gives the refusal of specd's own engine, and its name its own") {
    const char* const old = getenv(kXgrammarDirVariable);
    const std::string kept = old == nullptr ? "" : old;
    unsetenv(kXgrammarDirVariable);
    const Vocabulary vocabulary = MakeVocabulary();
    const auto compiler = *GrammarCompiler::Create({.vocabulary = &vocabulary, .vocab_size = 6});
    GrammarRequest request = {.kind = GrammarKind::kJsonSchema, .text = kUniqueItems};
    const absl::Status by_auto = compiler->Compile(request).status();
    CHECK(by_auto.code() == absl::StatusCode::kUnimplemented);
    CHECK(by_auto.message().find("uniqueItems") != std::string::npos);
    request.backend = BackendChoice::kSpecd;
    CHECK(compiler->Compile(request).status() == by_auto);
    request.backend = BackendChoice::kXgrammar;
    const absl::Status by_name = compiler->Compile(request).status();
    CHECK(by_name.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(by_name.message().find(XgrammarInstallCommand()) != std::string::npos);
    // What specd's own engine takes or finds wrong needs no xgrammar.
    request = {.kind = GrammarKind::kJsonSchema, .text = R"({"type":"integer"})"};
    CHECK(compiler->Compile(request).ok());
    request.text = R"({"type":5})";
    CHECK(compiler->Compile(request).status().code() == absl::StatusCode::kInvalidArgument);
    if (old != nullptr) setenv(kXgrammarDirVariable, kept.c_str(), 1);
  }

  TEST_CASE(
      "a schema with keys in any order is another constraint, alone and in a structural tag") {
    Vocabulary::Builder builder;
    TokenId next = 0;
    for (const char* piece : {"{", "}", ",", ":", "\"", "a", "b", "1"})
      builder.Set(next++, piece, {});
    const Vocabulary vocabulary = std::move(builder).Build();
    const auto compiler = *GrammarCompiler::Create({.vocabulary = &vocabulary, .vocab_size = next});
    const std::string schema =
        R"({"type":"object","properties":{"a":{"const":1},"b":{"const":1}},"additionalProperties":false})";
    const auto accepts = [&](const GrammarRequest& request, std::string_view text) {
      const auto compiled = compiler->Compile(request);
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
    request = {.kind = GrammarKind::kJsonSchema,
               .text = schema,
               .key_order = KeyOrder::kAny,
               .backend = BackendChoice::kXgrammar};
    const absl::Status refusal = compiler->Compile(request).status();
    CHECK(refusal.code() == absl::StatusCode::kUnimplemented);
    CHECK(refusal.message().find("grammar_key_order") != std::string::npos);
  }
}

}  // namespace
}  // namespace specd::grammar
