// GrammarCompiler where the xgrammar library is installed: `auto` takes it for what specd's own
// engine refuses by name, and says what it does not enforce.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/grammar_compiler.h"

namespace specd::grammar {
namespace {

constexpr const char* kUniqueItems =
    R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})";

bool Warns(const CompiledGrammar& compiled, const std::string& part) {
  for (const std::string& warning : compiled.warnings()) {
    if (warning.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST_SUITE("unit") {
  TEST_CASE("auto takes xgrammar where specd's own engine refuses by name, and only there") {
    Vocabulary::Builder builder;
    TokenId next = 0;
    for (const char* piece : {"[", "]", ",", "1", "2", " ", "</s>"}) builder.Set(next++, piece, {});
    const Vocabulary vocabulary = std::move(builder).Build();
    const auto compiler = *GrammarCompiler::Create({.vocabulary = &vocabulary, .vocab_size = 7});
    GrammarRequest request = {.kind = GrammarKind::kJsonSchema, .text = kUniqueItems};
    const auto taken = compiler->Compile(request);
    REQUIRE_MESSAGE(taken.ok(), taken.status().ToString());
    CHECK(Warns(**taken, "uniqueItems"));
    // It is followed: "[1,1]" is in the language, because uniqueItems is not enforced.
    const auto matcher = (*taken)->NewMatcher({.stop_ids = {6}});
    for (const TokenId id : {0, 3, 2, 3, 1}) CHECK(matcher->Accept(id));
    CHECK(matcher->IsAccepting());
    // The same request is answered from the cache.
    CHECK(*compiler->Compile(request) == *taken);

    request.backend = BackendChoice::kSpecd;
    CHECK(compiler->Compile(request).status().code() == absl::StatusCode::kUnimplemented);
    // lenient asks for specd's own engine without the part.
    request.backend = BackendChoice::kAuto;
    request.lenient = true;
    const auto lenient = compiler->Compile(request);
    REQUIRE(lenient.ok());
    CHECK(Warns(**lenient, "uniqueItems"));
    // A schema that specd's own engine enforces stays there, without a warning.
    request = {.kind = GrammarKind::kJsonSchema, .text = R"({"type":"integer"})"};
    const auto own = compiler->Compile(request);
    REQUIRE(own.ok());
    CHECK((*own)->warnings().empty());
  }
}

}  // namespace
}  // namespace specd::grammar
