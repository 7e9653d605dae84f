// Memory that runs out while a constraint is followed, and the memory of all constraints together.
#include "speculative/grammar/base/grammar_memory.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include <array>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "kernels/core/draft.h"
#include "kernels/core/edits.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/grammar/compiler/grammar_holder.h"
#include "speculative/sequence/sequence_grammar.h"
#include "tests/support/fill_all.h"
#include "tests/support/watched_memory.h"

namespace specd::grammar {
namespace {

constexpr TokenId kEos = 256;
constexpr int32_t kVocabSize = 257;

Vocabulary AllBytes() {
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < 256; ++id) builder.Set(id, std::string(1, static_cast<char>(id)), {});
  builder.Set(kEos, "</s>", {.added = true, .special = true});
  return std::move(builder).Build();
}

// Calls and returns, repetitions that are counted, and states with several items.
const char* const kGrammar =
    "root ::= value\nvalue ::= list | [a-c]{1,9} | \"(\" value \")\" | value \"+\" value\n"
    "list ::= \"[\" (value (\",\" value)*)? \"]\"";
const std::string kText = "[abc,(a+[b,c]),[[aa]],b+c+(a)]";

std::vector<uint32_t> WordsOf(GrammarMatcher& matcher) {
  const MaskRow row = matcher.Mask();
  return {row.words().begin(), row.words().end()};
}

// Allows every id, and shows whether its row is held elsewhere.
class WatchedMatcher : public GrammarMatcher {
 public:
  explicit WatchedMatcher(std::shared_ptr<const MaskWords> row) : row_(std::move(row)) {}
  std::optional<MaskRow> TryMask(WorkSlice* /*slice*/) override { return MaskRow(row_); }
  MatcherFault fault() const override { return MatcherFault::kNone; }
  bool Accept(TokenId) override { return ++num_accepted_ > 0; }
  bool AcceptText(std::string_view) override { return ++num_accepted_ > 0; }
  void Rollback(size_t num_tokens) override { num_accepted_ -= num_tokens; }
  size_t num_accepted() const override { return num_accepted_; }
  std::unique_ptr<GrammarMatcher> Fork() const override {
    return std::make_unique<WatchedMatcher>(*this);
  }
  bool IsAccepting() override { return true; }
  bool IsFinished() override { return false; }
  bool IsTerminated() const override { return false; }
  std::string ForcedText() override { return {}; }
  uint64_t StateNumber() const override { return num_accepted_ + 1; }

 private:
  std::shared_ptr<const MaskWords> row_;
  size_t num_accepted_ = 0;
};

// The bytes of all blocks that malloc has given out, to any thread.
double BytesInUse() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

// A sanitizer's malloc does not tell what it has given out.
bool IsMallocKnown() {
  const double before = BytesInUse();
  const std::vector<char> block(size_t{4} << 20, 'x');
  return BytesInUse() - before >= static_cast<double>(block.size());
}

TEST_SUITE("unit") {
  // Bug: many small constraints took five times the bytes that were counted, so a daemon whose
  // bound was 100 MiB had 429 MiB resident.
  TEST_CASE("what constraints are said to take covers what they take, and not much more") {
    const Vocabulary vocabulary = AllBytes();
    const std::array<GrammarKind, 3> kinds = {GrammarKind::kRegex, GrammarKind::kJsonSchema,
                                              GrammarKind::kEbnf};
    for (const GrammarKind kind : kinds) {
      CAPTURE(static_cast<int>(kind));
      for (const bool follows : {false, true}) {
        CAPTURE(follows);
        GrammarMemory memory(size_t{1} << 30);
        GrammarCompiler compiler(
            {.vocabulary = &vocabulary, .vocab_size = kVocabSize, .memory = &memory});
        REQUIRE(compiler.Prepare().ok());
        std::vector<std::shared_ptr<const CompiledGrammar>> grammars;
        grammars.reserve(200);
        const double before = BytesInUse();
        for (int i = 0; i < 200; ++i) {
          const std::string number = std::to_string(i);
          const std::string text =
              kind == GrammarKind::kRegex ? "[a-z]{0," + number + "}x"
              : kind == GrammarKind::kEbnf
                  ? std::string(kGrammar) + " | \"" + number + "\""
                  : R"({"type":"object","properties":{"k)" + number +
                        R"(":{"type":"string"},"n":{"type":"integer"}},"required":["n"]})";
          auto compiled = compiler.CompileAnew({.kind = kind, .text = text});
          REQUIRE(compiled.ok());
          grammars.push_back(*std::move(compiled));
          if (!follows) continue;
          const auto matcher = grammars.back()->NewMatcher({.stop_ids = {kEos}});
          for (const char byte : kind == GrammarKind::kEbnf    ? kText
                                 : kind == GrammarKind::kRegex ? std::string(i, 'a')
                                                               : std::string(R"({"k":"v")")) {
            (void)matcher->Mask();
            if (!matcher->Accept(byte)) break;
          }
        }
        const auto counted = static_cast<double>(memory.size_bytes());
        const double held = BytesInUse() - before;
        MESSAGE("held ", held / 200, " and counted ", counted / 200, " bytes each");
        if (!IsMallocKnown()) continue;
        CHECK(held <= 1.1 * counted);
        CHECK(counted <= 2 * held);
      }
    }
  }

  TEST_CASE("waiting sequences held the rows of their last drafts, beyond the cache's bound") {
    const auto row = std::make_shared<const MaskWords>(9, ~uint32_t{0});
    auto grammar =
        *SequenceGrammar::Create(std::make_unique<WatchedMatcher>(row), {},
                                 {.vocab_size = 288, .max_batch = 1, .max_draft = 4, .threads = 1});
    const TokenId tokens[] = {1, 2, 3, 4};
    std::array<PlaceEdits, 5> places = {};
    const int64_t before = row.use_count();
    FillAll(&grammar, {.num_nodes = 4, .tokens = tokens}, places.data());
    CHECK(row.use_count() == before + 5);
    CHECK(grammar.Commit(tokens) == 4);
    CHECK(row.use_count() == before);
  }

  TEST_CASE("memory that ran out in a step left states that were wrong from then on") {
    const Vocabulary vocabulary = AllBytes();
    GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
    const GrammarRequest request = {.kind = GrammarKind::kEbnf, .text = kGrammar};
    const auto fresh = (*compiler.CompileAnew(request))->NewMatcher({.stop_ids = {kEos}});
    std::vector<std::vector<uint32_t>> masks;
    for (const char byte : kText) {
      masks.push_back(WordsOf(*fresh));
      REQUIRE(fresh->Accept(byte));
    }
    int num_faults = 0;
    bool has_failed = true;
    for (int left = 0; has_failed; ++left) {
      CAPTURE(left);
      REQUIRE(left < 3000);
      const auto matcher = (*compiler.CompileAnew(request))->NewMatcher({.stop_ids = {kEos}});
      has_failed = false;
      for (size_t at = 0; at < kText.size(); ++at) {
        CAPTURE(at);
        if (at == kText.size() / 3) allocations_left = left;
        MaskRow row = matcher->Mask();
        bool is_failed = matcher->fault() != MatcherFault::kNone;
        if (is_failed) row = matcher->Mask();  // the memory is back
        const bool is_accepted = matcher->Accept(kText[at]);
        if (!is_accepted) {
          is_failed = true;
          REQUIRE(matcher->fault() == MatcherFault::kNoMemory);
          REQUIRE(matcher->num_accepted() == at);
          REQUIRE(matcher->Accept(kText[at]));
        }
        const int allocations = allocations_left.exchange(-1);
        REQUIRE(std::equal(masks[at].begin(), masks[at].end(), row.words().begin()));
        allocations_left = allocations;
        has_failed |= is_failed;
      }
      allocations_left = -1;
      num_faults += has_failed ? 1 : 0;
      // What was made before and after is what a fresh matcher makes.
      const auto again = (*compiler.CompileAnew(request))->NewMatcher({.stop_ids = {kEos}});
      matcher->Rollback(matcher->num_accepted());
      for (size_t at = 0; at < kText.size(); ++at) {
        REQUIRE(WordsOf(*matcher) == masks[at]);
        REQUIRE(matcher->Accept(kText[at]));
      }
    }
    CHECK(num_faults > 10);
  }

  TEST_CASE("memory that ran out while a draft was filled left the sequence at a draft's place") {
    const Vocabulary vocabulary = AllBytes();
    GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
    constexpr int32_t kDraft = 12;
    std::vector<TokenId> tokens(kText.begin(), kText.end());
    const Draft draft = {.num_nodes = kDraft, .tokens = tokens.data()};
    int num_faults = 0;
    bool has_failed = true;
    for (int left = 0; has_failed; ++left) {
      CAPTURE(left);
      REQUIRE(left < 3000);
      const auto compiled = *compiler.CompileAnew({.kind = GrammarKind::kEbnf, .text = kGrammar});
      auto grammar = *SequenceGrammar::Create(
          compiled->NewMatcher({.stop_ids = {kEos}}), {},
          {.vocab_size = kVocabSize, .max_batch = 1, .max_draft = kDraft, .threads = 1});
      std::array<PlaceEdits, kDraft + 1> places = {};
      allocations_left = left;
      FillAll(&grammar, draft, places.data());
      allocations_left = -1;
      has_failed = false;
      for (size_t i = 0; i <= kDraft; ++i) {
        has_failed |= grammar.FaultAt(i) != MatcherFault::kNone;
        CHECK(places[i].grammar_mask != nullptr);
      }
      num_faults += has_failed ? 1 : 0;
      CHECK(grammar.FindEnd(tokens) == 0);
      CHECK(grammar.Commit(tokens) == tokens.size());
    }
    CHECK(num_faults > 10);
  }

  TEST_CASE("constraints together could take any memory: past a bound they are refused by name") {
    const Vocabulary vocabulary = AllBytes();
    GrammarMemory memory(8 << 20);
    auto compiler = std::make_unique<GrammarCompiler>(GrammarCompilerOptions{
        .vocabulary = &vocabulary, .vocab_size = kVocabSize, .memory = &memory});
    GrammarHolder holder(&memory);
    std::vector<std::shared_ptr<const CompiledGrammar>> held;
    std::vector<std::unique_ptr<GrammarMatcher>> matchers;
    absl::Status status;
    for (int i = 0; i < 2000 && status.ok(); ++i) {
      auto compiled = compiler->Compile(
          {.kind = GrammarKind::kRegex, .text = "[a-z]{0," + std::to_string(500 + i) + "}"});
      REQUIRE(compiled.ok());
      compiled = holder.Hold(*std::move(compiled));
      status = compiled.status();
      if (!compiled.ok()) break;
      held.push_back(*compiled);
      matchers.push_back((*compiled)->NewMatcher({.stop_ids = {kEos}}));
      for (int step = 0; step < 400; ++step) REQUIRE(matchers.back()->Accept('a'));
    }
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(std::string(status.message()).find("of 6.0 MiB free") != std::string::npos);
    CHECK(memory.size_bytes() <= memory.bytes_max());
    // What only the cache holds is dropped first, and a place becomes free.
    matchers.clear();
    held.clear();
    CHECK(compiler->Compile({.kind = GrammarKind::kRegex, .text = "b+"}).ok());
    CHECK(memory.size_bytes() <= memory.bytes_max() / 4 * 3 + (size_t{64} << 10));
    compiler.reset();
    CHECK(memory.size_bytes() == 0);
  }

  TEST_CASE("at the bound of memory a sequence has a fault, and goes on when memory is back") {
    const Vocabulary vocabulary = AllBytes();
    GrammarMemory memory(4 << 20);
    GrammarCompiler compiler(
        {.vocabulary = &vocabulary, .vocab_size = kVocabSize, .memory = &memory});
    const auto compiled =
        *compiler.CompileAnew({.kind = GrammarKind::kRegex, .text = "[ab]*a[ab]{30}"});
    const auto matcher = compiled->NewMatcher({.stop_ids = {kEos}});
    memory.Add(5 << 20);
    size_t num_accepted = 0;
    while (num_accepted < 100 && matcher->Accept('a')) ++num_accepted;
    CHECK(num_accepted < 100);
    CHECK(matcher->fault() == MatcherFault::kFull);
    CHECK(matcher->num_accepted() == num_accepted);
    memory.Remove(5 << 20);
    REQUIRE(matcher->Accept('a'));
    // Short of memory, the automaton is left when it is small.
    constexpr size_t kOthers = (size_t{2} << 20) + (size_t{200} << 10);
    memory.Add(kOthers);
    uint32_t random = 1;
    for (int i = 0; i < 100000; ++i) {
      random = random * 1664525 + 1013904223;
      REQUIRE(matcher->Accept(random >> 31 != 0 ? 'a' : 'b'));
      // The last step before the bound may pass it.
      REQUIRE(memory.size_bytes() <= memory.bytes_max() + (size_t{64} << 10));
    }
    memory.Remove(kOthers);
  }

  TEST_CASE("an automaton that was made without memory stayed, and no later text could begin") {
    const Vocabulary vocabulary = AllBytes();
    GrammarMemory memory(16 << 20);
    GrammarCompiler compiler(
        {.vocabulary = &vocabulary, .vocab_size = kVocabSize, .memory = &memory});
    const auto compiled =
        *compiler.CompileAnew({.kind = GrammarKind::kRegex, .text = "[ab]*a[ab]{30}"});
    const auto matcher = compiled->NewMatcher({.stop_ids = {kEos}});
    // Past 1 MiB, a matcher leaves its automaton while memory is short.
    const size_t start = memory.size_bytes();
    uint32_t random = 1;
    while (memory.size_bytes() < start + (size_t{3} << 20)) {
      random = random * 1664525 + 1013904223;
      REQUIRE(matcher->Accept(random >> 31 != 0 ? 'a' : 'b'));
    }
    memory.Add(size_t{32} << 20);
    (void)matcher->Mask();
    (void)matcher->Accept('a');
    memory.Remove(size_t{32} << 20);
    const auto later = compiled->NewMatcher({.stop_ids = {kEos}});
    (void)later->Mask();
    CHECK(later->fault() == MatcherFault::kNone);
    REQUIRE(later->Accept('a'));
    later->Rollback(1);
    CHECK(later->Accept('b'));
  }
}

}  // namespace
}  // namespace specd::grammar
