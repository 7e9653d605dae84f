#include "speculative/grammar/matchers/reasoning_gate.h"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd::grammar {
namespace {

constexpr TokenId kEos = 0;
constexpr int32_t kVocab = 40;
// Id 1 + i is piece i. The marker is </t>: one token, pieces of it, and tokens that run past it.
const std::vector<std::string> kPieces = {"</t>", "<",  "/",   "t",     ">",   "</",     "t>",
                                          "a",    "b",  "ab",  "</t>a", ">a",  "</t>b",  ">b",
                                          "x",    "<<", "x</", "t>ab",  "</t", "</t>ab", ">c"};

Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  builder.Set(kEos, "</s>", {.added = true, .special = true});
  for (size_t i = 0; i < kPieces.size(); ++i) {
    builder.Set(static_cast<TokenId>(i + 1), kPieces[i], {.special = kPieces[i] == "</t>"});
  }
  return std::move(builder).Build();
}

// The rule, from its definition: the text up to the first marker is free, the rest follows the
// pattern a(ab|b)*.
class Rule {
 public:
  // Nothing: the ids are forbidden. Otherwise what the constraint has read; empty before the
  // marker.
  static std::optional<std::string> Constrained(const std::vector<TokenId>& ids) {
    std::string text;
    for (const TokenId id : ids) {
      if (id >= 1 && static_cast<size_t>(id) <= kPieces.size()) {
        text += kPieces[static_cast<size_t>(id - 1)];
      }
    }
    const size_t end = text.find("</t>");
    return end == std::string::npos ? "" : text.substr(end + 4);
  }
  static bool IsPrefix(const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      const bool is_a = text[i] == 'a';
      if (!is_a && text[i] != 'b') return false;
      if (i == 0 && !is_a) return false;
      // After the first letter, an a begins "ab": no two of them stand together.
      if (i > 1 && is_a && text[i - 1] == 'a') return false;
    }
    return true;
  }
};

struct Fixture {
  Fixture() : vocabulary(MakeVocabulary()) {
    compiler = std::make_unique<GrammarCompiler>(
        GrammarCompilerOptions{.vocabulary = &vocabulary, .vocab_size = kVocab});
    markers = *ReasoningMarkers::Create({.start = "<t>", .end = "</t>"}, &vocabulary, kVocab);
  }
  std::unique_ptr<GrammarMatcher> Gate(const std::vector<TokenId>& prompt = {}) {
    auto compiled = compiler->CompileAnew({.kind = GrammarKind::kRegex, .text = "a(ab|b)*"});
    REQUIRE(compiled.ok());
    return std::make_unique<ReasoningGate>(markers, (*compiled)->NewMatcher({.stop_ids = {kEos}}),
                                           prompt);
  }

  Vocabulary vocabulary;
  std::unique_ptr<GrammarCompiler> compiler;
  std::shared_ptr<const ReasoningMarkers> markers;
};

bool IsOpen(const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) {
    if (id > 0) text += kPieces[static_cast<size_t>(id - 1)];
  }
  return text.find("</t>") != std::string::npos;
}

TEST_SUITE("unit") {
  TEST_CASE("vLLM pulls 36138, 44297: the mask of every text around the marker, by definition") {
    Fixture fixture;
    std::mt19937 random(3);
    size_t num_open = 0;
    for (int walk = 0; walk < 300; ++walk) {
      const auto gate = fixture.Gate();
      std::vector<TokenId> ids;
      for (int step = 0; step < 9; ++step) {
        const MaskRow mask = gate->Mask();
        const bool is_open = IsOpen(ids);
        num_open += is_open;
        REQUIRE(gate->IsWaiting() == !is_open);
        std::vector<TokenId> allowed;
        for (TokenId id = 1; static_cast<size_t>(id) <= kPieces.size(); ++id) {
          std::vector<TokenId> next = ids;
          next.push_back(id);
          bool expected = Rule::IsPrefix(*Rule::Constrained(next));
          // Behind the marker a special token is no text.
          if (is_open && kPieces[static_cast<size_t>(id - 1)] == "</t>") expected = false;
          CAPTURE(walk);
          CAPTURE(step);
          CAPTURE(kPieces[static_cast<size_t>(id - 1)]);
          REQUIRE(mask.Allows(id) == expected);
          const auto fork = gate->Fork();
          REQUIRE(fork->Accept(id) == expected);
          if (expected) allowed.push_back(id);
        }
        const std::string read = *Rule::Constrained(ids);
        if (is_open) {
          const bool is_whole = !read.empty() && (read.size() == 1 || read.back() == 'b');
          REQUIRE(mask.Allows(kEos) == is_whole);
        } else {
          REQUIRE(mask.Allows(kEos));
        }
        if (allowed.empty()) break;
        ids.push_back(allowed[random() % allowed.size()]);
        REQUIRE(gate->Accept(ids.back()));
        REQUIRE(gate->num_accepted() == ids.size());
      }
    }
    CHECK(num_open > 300);
  }

  TEST_CASE("a row was built anew at each place where a token may cross the marker") {
    Fixture fixture;
    const auto gate = fixture.Gate();
    const MaskRow first = gate->Mask();
    REQUIRE(!first.IsUnconstrained());
    const TokenId x = 15;
    const TokenId less = 2;
    REQUIRE(kPieces[x - 1] == "x");
    REQUIRE(kPieces[less - 1] == "<");
    REQUIRE(gate->Accept(x));  // the same progress
    CHECK(gate->Mask().words().data() == first.words().data());
    CHECK(gate->Fork()->Mask().words().data() == first.words().data());
    REQUIRE(gate->Accept(less));
    const MaskRow second = gate->Mask();
    gate->Rollback(1);
    CHECK(gate->Mask().words().data() == first.words().data());
    REQUIRE(gate->Accept(less));
    if (!second.IsUnconstrained()) CHECK(gate->Mask().words().data() == second.words().data());
  }

  TEST_CASE("rollback over the marker closes the gate again, its rest included") {
    Fixture fixture;
    std::mt19937 random(4);
    for (int walk = 0; walk < 200; ++walk) {
      const auto gate = fixture.Gate();
      std::vector<TokenId> ids;
      for (int step = 0; step < 40; ++step) {
        if (random() % 3 == 0) {
          const size_t count = random() % (ids.size() + 1);
          gate->Rollback(count);
          ids.resize(ids.size() - count);
        } else {
          const auto id = static_cast<TokenId>(1 + random() % kPieces.size());
          if (gate->Accept(id)) ids.push_back(id);
        }
        const auto replay = fixture.Gate();
        for (const TokenId id : ids) REQUIRE(replay->Accept(id));
        REQUIRE(gate->num_accepted() == ids.size());
        REQUIRE(gate->IsWaiting() == !IsOpen(ids));
        const MaskRow a = gate->Mask();
        const MaskRow b = replay->Mask();
        for (TokenId id = 0; id < kVocab; ++id) REQUIRE(a.Allows(id) == b.Allows(id));
      }
    }
  }

  TEST_CASE("a prompt that closed its last thought opens the gate, one in a thought does not") {
    Fixture fixture;
    const auto id_of = [](const std::string& piece) {
      for (size_t i = 0; i < kPieces.size(); ++i) {
        if (kPieces[i] == piece) return static_cast<TokenId>(i + 1);
      }
      return kNoToken;
    };
    const TokenId x = id_of("x");
    CHECK(fixture.Gate({id_of("<"), id_of("t"), id_of(">"), x, id_of("</t>")})->Mask().Allows(x) ==
          false);
    CHECK(fixture.Gate({id_of("</t>"), id_of("<"), id_of("t>"), x})->Mask().Allows(x));
    // The prompt ends inside the marker.
    const auto gate = fixture.Gate({x, id_of("</")});
    REQUIRE(gate->Accept(id_of("t>")));
    CHECK(!gate->Mask().Allows(x));
  }

  TEST_CASE("markers that cannot be are refused by name") {
    Fixture fixture;
    CHECK(ReasoningMarkers::Create({.end = ""}, &fixture.vocabulary, kVocab)
              .status()
              .message()
              .find("reasoning_end is empty") == 0);
    CHECK(
        !ReasoningMarkers::Create({.end = std::string(65, 'x')}, &fixture.vocabulary, kVocab).ok());
  }
}

}  // namespace
}  // namespace specd::grammar
