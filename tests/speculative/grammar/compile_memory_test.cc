// Memory that runs out while a constraint is compiled: that request alone is refused, nothing of it
// stays, and it can come again.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tests/support/grid_size.h"
#include "tests/support/watched_memory.h"

namespace specd::grammar {
namespace {

constexpr TokenId kEos = 256;
constexpr int32_t kVocabSize = 259;

Vocabulary Bytes() {
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < 256; ++id) builder.Set(id, std::string(1, static_cast<char>(id)), {});
  builder.Set(kEos, "</s>", {.added = true, .special = true});
  builder.Set(257, "ab", {});
  builder.Set(258, "{\"", {});
  return std::move(builder).Build();
}

using Masks = std::vector<std::vector<uint32_t>>;

// The masks along a text of the constraint.
Masks MasksAlong(const CompiledGrammar& grammar, const std::string& text) {
  const auto matcher = grammar.NewMatcher({.stop_ids = {kEos}});
  Masks masks;
  for (const char byte : text) {
    const MaskRow row = matcher->Mask();
    REQUIRE(matcher->fault() == MatcherFault::kNone);
    masks.emplace_back(row.words().begin(), row.words().end());
    REQUIRE(matcher->Accept(static_cast<uint8_t>(byte)));
  }
  return masks;
}

struct Case {
  std::string name;
  GrammarRequest request;
  std::string text;  // one that the constraint allows
};

const Case kCases[] = {
    {"regex", {.kind = GrammarKind::kRegex, .text = "(?:[a-f]{2,3}|\\d+|é)+x?"}, "abcdefx"},
    {"ebnf",
     {.kind = GrammarKind::kEbnf,
      .text = "root ::= e\ne ::= e \"+\" t | t\nt ::= \"(\" e \")\" | [a-c]{1,3} | \"é\" | d?\n"
              "d ::= [0-9] d?"},
     "(ab+12)+c"},
    {"json",
     {.kind = GrammarKind::kJsonSchema,
      .text = R"({"$defs":{"n":{"type":"integer","minimum":3,"maximum":40}},
        "type":"object","properties":{"a":{"$ref":"#/$defs/n"},"b":{"type":"array",
        "items":{"enum":["x",null,1.5]},"maxItems":2},"c":{"type":"string","pattern":"^a+$"}},
        "patternProperties":{"^z":{"type":"boolean"}},"required":["a"],
        "additionalProperties":false})",
      .whitespace = Whitespace::kCompact},
     R"({"a":12,"b":["x",1.5],"c":"aa","zed":true})"},
    {"structural_tag",
     {.kind = GrammarKind::kStructuralTag,
      .text = R"({"type":"structural_tag","structures":[{"begin":"<f>","schema":
        {"type":"object","properties":{"k":{"type":"null"}},"required":["k"],
        "additionalProperties":false},"end":"</f>"}],"triggers":["<f"]})",
      .whitespace = Whitespace::kCompact},
     "so: <f>{\"k\":null}</f> and"},
    {"choice", {.kind = GrammarKind::kChoice, .text = R"(["abc","abd","é"])"}, "abd"},
};

// A row of the cache of masks: its words and 128 bytes.
constexpr size_t kRowBytes = (kVocabSize + 31) / 32 * sizeof(uint32_t) + 128;

TEST_SUITE("unit") {
  TEST_CASE("memory that ran out in a compile ended the process, or left a refusal that stayed") {
    const Vocabulary vocabulary = Bytes();
    const GrammarRequest other = {.kind = GrammarKind::kRegex, .text = "[ab]+c"};
    for (const Case& one : kCases) {
      CAPTURE(one.name);
      Masks expected;
      Masks neighbour_masks;
      int num_refused = 0;
      bool has_failed = true;
      // A sanitizer's build tries every nineteenth allocation.
      for (int left = 0; has_failed; left += GridSize({.full = 1, .sanitized = 19})) {
        CAPTURE(left);
        GrammarMemory memory(size_t{1} << 30);
        GrammarCompiler compiler(
            {.vocabulary = &vocabulary, .vocab_size = kVocabSize, .memory = &memory});
        const auto neighbour = *compiler.Compile(other);
        if (left == 0) {
          const auto whole = compiler.Compile(one.request);
          REQUIRE_MESSAGE(whole.ok(), whole.status().ToString());
          neighbour_masks = MasksAlong(*neighbour, "abab");
          expected = MasksAlong(**whole, one.text);
          continue;
        }
        const size_t before = memory.size_bytes();
        allocations_left = left - 1;
        auto compiled = compiler.Compile(one.request);
        has_failed = allocations_left.exchange(-1) < 0;
        if (!compiled.ok()) {
          REQUIRE(has_failed);
          REQUIRE(compiled.status().code() == absl::StatusCode::kResourceExhausted);
          // The cache of masks may have those of the 17 places that the compile followed, with stop
          // ids and without, and keeps them until it needs the room.
          const size_t left_bytes = memory.size_bytes() - before;
          REQUIRE(left_bytes % kRowBytes == 0);
          REQUIRE(left_bytes / kRowBytes <= 2 * 17);
          ++num_refused;
          compiled = compiler.Compile(one.request);
          REQUIRE_MESSAGE(compiled.ok(), compiled.status().ToString());
        }
        REQUIRE(MasksAlong(**compiled, one.text) == expected);
        REQUIRE(MasksAlong(*neighbour, "abab") == neighbour_masks);
      }
      CHECK(num_refused > GridSize({.full = 50, .sanitized = 2}));
    }
  }

  TEST_CASE("memory that ran out in the first compile of a tokenizer left it without a trie") {
    const Vocabulary vocabulary = Bytes();
    const Case& one = kCases[0];
    GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
    const Masks expected = MasksAlong(**compiler.Compile(one.request), one.text);
    bool has_failed = true;
    // The parts that constraints share take many thousands of allocations; those of the compile
    // itself are tried one by one above.
    for (int left = 0; has_failed; left += 1 + left / 16) {
      CAPTURE(left);
      GrammarCompiler fresh({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
      allocations_left = left;
      auto compiled = fresh.Compile(one.request);
      has_failed = allocations_left.exchange(-1) < 0;
      if (!compiled.ok()) {
        REQUIRE(compiled.status().code() == absl::StatusCode::kResourceExhausted);
        compiled = fresh.Compile(one.request);
        REQUIRE_MESSAGE(compiled.ok(), compiled.status().ToString());
      }
      REQUIRE(fresh.forced_tokens() != nullptr);
      REQUIRE(MasksAlong(**compiled, one.text) == expected);
    }
  }

  TEST_CASE(
      "memory that ran out while a wrong text was refused left a refusal without its reason") {
    const Vocabulary vocabulary = Bytes();
    const GrammarRequest wrong = {.kind = GrammarKind::kJsonSchema,
                                  .text = R"({"type":"object","properties":{"a":{"type":5}}})"};
    GrammarCompiler reference({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
    const absl::Status expected = reference.Compile(wrong).status();
    REQUIRE(expected.code() == absl::StatusCode::kInvalidArgument);
    bool has_failed = true;
    for (int left = 0; has_failed; ++left) {
      CAPTURE(left);
      GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
      (void)compiler.Compile({.kind = GrammarKind::kRegex, .text = "a"});
      allocations_left = left;
      const absl::Status status = compiler.Compile(wrong).status();
      has_failed = allocations_left.exchange(-1) < 0;
      if (status != expected) REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
      REQUIRE(compiler.Compile(wrong).status() == expected);
    }
  }
}

}  // namespace
}  // namespace specd::grammar
