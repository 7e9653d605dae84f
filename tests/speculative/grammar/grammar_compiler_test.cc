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
}

}  // namespace
}  // namespace specd::grammar
