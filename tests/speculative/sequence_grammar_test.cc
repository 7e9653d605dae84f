// SequenceGrammar::Fill: each place of a tree has the mask of the chain that leads to it, and the
// constraint decides about the other edits of a place.
#include "speculative/sequence/sequence_grammar.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/grammar/matchers/reasoning_gate.h"
#include "tests/support/fill_all.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

constexpr int32_t kVocab = 40;
constexpr int32_t kNodes = 12;
constexpr size_t kWords = (kVocab + 31) / 32;
const std::vector<std::string> kPieces = {"a", "b", "c", "ab", "bc", "(", ")", "1", "+"};

struct Constraint {
  Constraint(const Vocabulary& vocabulary, const char* text)
      : compiler(std::make_unique<grammar::GrammarCompiler>(
            grammar::GrammarCompilerOptions{.vocabulary = &vocabulary, .vocab_size = kVocab})),
        compiled(*compiler->CompileAnew({.kind = grammar::GrammarKind::kEbnf, .text = text})) {}

  SequenceGrammar At(const Ids& outputs) const {
    return *SequenceGrammar::Create(compiled->NewMatcher({.stop_ids = {0}}), outputs,
                                    {.vocab_size = kVocab, .max_batch = 1, .max_draft = kNodes});
  }

  std::unique_ptr<grammar::GrammarCompiler> compiler;
  std::shared_ptr<const grammar::CompiledGrammar> compiled;
};

std::vector<uint32_t> WordsOf(const PlaceEdits& place) {
  REQUIRE(place.grammar_mask != nullptr);
  return {place.grammar_mask, place.grammar_mask + kWords};
}

// The tokens from the root to a node.
Ids PathTo(const std::vector<int32_t>& parents, const Ids& tokens, int32_t node) {
  Ids path;
  for (; node != kRoot; node = parents[static_cast<size_t>(node)]) {
    path.push_back(tokens[static_cast<size_t>(node)]);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

struct Masks {
  std::vector<std::vector<uint32_t>> words;
  std::vector<bool> below_min_tokens;
};

Masks Fill(SequenceGrammar* grammar, const Ids& tokens, const int32_t* parents) {
  std::vector<PlaceEdits> places(tokens.size() + 1);
  for (PlaceEdits& place : places) place.below_min_tokens = true;
  FillAll(grammar,
          {.num_nodes = static_cast<int32_t>(tokens.size()),
           .tokens = tokens.data(),
           .parents = parents},
          places.data());
  Masks masks;
  for (const PlaceEdits& place : places) {
    masks.words.push_back(WordsOf(place));
    masks.below_min_tokens.push_back(place.below_min_tokens);
  }
  return masks;
}

Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  builder.Set(0, "</s>", {.added = true, .special = true});
  for (size_t i = 0; i < kPieces.size(); ++i) {
    builder.Set(static_cast<TokenId>(i + 1), kPieces[i], {});
  }
  return std::move(builder).Build();
}

TokenId IdOf(const std::string& piece) {
  const auto found = std::find(kPieces.begin(), kPieces.end(), piece);
  REQUIRE(found != kPieces.end());
  return static_cast<TokenId>(found - kPieces.begin() + 1);
}

// Allows every id, and counts the looks at the end of its text.
class CompleteMatcher : public grammar::GrammarMatcher {
 public:
  struct Script {
    grammar::MatcherFault fault = grammar::MatcherFault::kNone;
    bool is_complete = false;
    size_t num_looks = 0;  // calls of IsFinished
  };
  explicit CompleteMatcher(Script* script) : script_(*script) {}

  std::optional<grammar::MaskRow> TryMask(grammar::WorkSlice* /*slice*/) override {
    return grammar::MaskRow();
  }
  grammar::MatcherFault fault() const override { return script_.fault; }
  bool Accept(TokenId) override { return ++num_accepted_ > 0; }
  bool AcceptText(std::string_view) override { return ++num_accepted_ > 0; }
  void Rollback(size_t num_tokens) override { num_accepted_ -= num_tokens; }
  size_t num_accepted() const override { return num_accepted_; }
  std::unique_ptr<GrammarMatcher> Fork() const override {
    return std::make_unique<CompleteMatcher>(*this);
  }
  bool IsAccepting() override { return true; }
  bool IsFinished() override {
    ++script_.num_looks;
    return script_.is_complete;
  }
  bool IsTerminated() const override { return false; }
  std::string ForcedText() override { return {}; }
  uint64_t StateNumber() const override { return num_accepted_ + 1; }

 private:
  Script& script_;
  size_t num_accepted_ = 0;
};

// Allows every id, numbers its states from 1, and meets a limit where the test says.
class LimitedMatcher : public grammar::GrammarMatcher {
 public:
  struct Script {
    size_t accept_limit = 100;  // that many tokens are accepted
    size_t mask_limit = 100;    // that many tokens may lie before a mask
  };
  explicit LimitedMatcher(const Script* script) : script_(*script) {}

  std::optional<grammar::MaskRow> TryMask(grammar::WorkSlice* /*slice*/) override {
    SetFault(num_accepted_ > script_.mask_limit);
    return grammar::MaskRow(std::make_shared<const grammar::MaskWords>(kWords, ~uint32_t{0}));
  }
  grammar::MatcherFault fault() const override { return fault_; }
  bool Accept(TokenId) override {
    SetFault(num_accepted_ == script_.accept_limit);
    if (fault_ == grammar::MatcherFault::kNone) ++num_accepted_;
    return fault_ == grammar::MatcherFault::kNone;
  }
  bool AcceptText(std::string_view) override { return false; }
  void Rollback(size_t num_tokens) override { num_accepted_ -= num_tokens; }
  size_t num_accepted() const override { return num_accepted_; }
  std::unique_ptr<GrammarMatcher> Fork() const override {
    return std::make_unique<LimitedMatcher>(*this);
  }
  bool IsAccepting() override { return false; }
  bool IsFinished() override { return false; }
  bool IsTerminated() const override { return false; }
  std::string ForcedText() override { return {}; }
  uint64_t StateNumber() const override { return num_accepted_ + 1; }

 private:
  void SetFault(bool is_met) {
    fault_ = is_met ? grammar::MatcherFault::kTooMuchWork : grammar::MatcherFault::kNone;
  }

  const Script& script_;
  grammar::MatcherFault fault_ = grammar::MatcherFault::kNone;
  size_t num_accepted_ = 0;
};

TEST_SUITE("unit") {
  TEST_CASE("a place that met a limit had the state of an earlier draft") {
    LimitedMatcher::Script script;
    SequenceGrammar grammar =
        *SequenceGrammar::Create(std::make_unique<LimitedMatcher>(&script), {},
                                 {.vocab_size = kVocab, .max_batch = 1, .max_draft = kNodes});
    const auto states_of = [&grammar] {
      const Ids tokens = {1, 2, 3};
      PlaceEdits places[4];
      FillAll(&grammar, {.num_nodes = 3, .tokens = tokens.data()}, places);
      std::vector<uint64_t> states;
      for (int32_t place = 0; place < 4; ++place) states.push_back(grammar.StateAt(place));
      return states;
    };
    CHECK(states_of() == std::vector<uint64_t>{1, 2, 3, 4});
    // The matcher cannot move past the first token: the rest has no state.
    script.accept_limit = 1;
    CHECK(states_of() == std::vector<uint64_t>{1, 2, 0, 0});
    // It moves, and cannot say what is allowed: the mask is not that of the state.
    script = {.mask_limit = 1};
    CHECK(states_of() == std::vector<uint64_t>{1, 2, 0, 0});
  }

  TEST_CASE("a thinking budget could force a token after the constraint had begun") {
    const Vocabulary vocabulary = MakeVocabulary();
    const Constraint constraint(vocabulary, "root ::= [a-c]+");
    auto markers =
        *grammar::ReasoningMarkers::Create({.start = "", .end = ")"}, &vocabulary, kVocab);
    auto gate = std::make_unique<grammar::ReasoningGate>(
        markers, constraint.compiled->NewMatcher({.stop_ids = {0}}), Ids{});
    SequenceGrammar grammar = *SequenceGrammar::Create(
        std::move(gate), {}, {.vocab_size = kVocab, .max_batch = 1, .max_draft = kNodes});
    const Ids tokens = {IdOf("("), IdOf(")"), IdOf("a"), IdOf("b")};
    // What is forced is allowed everywhere, so the mask has no word in this.
    const TokenId forced = IdOf("c");
    std::vector<PlaceEdits> places(tokens.size() + 1);
    for (PlaceEdits& place : places) place.forced = forced;
    FillAll(&grammar, {.num_nodes = static_cast<int32_t>(tokens.size()), .tokens = tokens.data()},
            places.data());
    for (size_t place = 0; place < places.size(); ++place) {
      CAPTURE(place);
      const bool has_begun = place >= 2;
      CHECK(places[place].forced == (has_begun ? kNoToken : forced));
      if (has_begun) CHECK((WordsOf(places[place])[0] >> forced & 1) == 1);
    }
    // The same for the places of drafts that specd draws.
    PlaceEdits place;
    place.forced = forced;
    grammar::WorkSlice all;
    (void)grammar.FillAfter(std::span(tokens).first(1), &place, &all);
    CHECK(place.forced == forced);
    (void)grammar.FillAfter(std::span(tokens).first(2), &place, &all);
    CHECK(place.forced == kNoToken);
  }

  TEST_CASE("a place whose mask met a limit was looked at again, to see whether the text ends") {
    for (const bool has_fault : {false, true}) {
      CAPTURE(has_fault);
      // A complete text is refused when a sequence is opened, so this one completes later.
      CompleteMatcher::Script script;
      SequenceGrammar grammar =
          *SequenceGrammar::Create(std::make_unique<CompleteMatcher>(&script), {},
                                   {.vocab_size = kVocab, .max_batch = 1, .max_draft = kNodes});
      script = {
          .fault = has_fault ? grammar::MatcherFault::kTooMuchWork : grammar::MatcherFault::kNone,
          .is_complete = true};
      PlaceEdits place;
      place.below_min_tokens = true;
      FillAll(&grammar, {.num_nodes = 0}, &place);
      CHECK(script.num_looks == (has_fault ? 0 : 1));
      CHECK(place.below_min_tokens == has_fault);
    }
  }

  TEST_CASE("each place of a tree has the mask of the chain that leads to it") {
    const Vocabulary vocabulary = MakeVocabulary();
    std::mt19937 random(21);
    size_t num_deep = 0;
    for (const char* text :
         {"root ::= [a-c]+ (\"+\" \"1\")?", "root ::= \"(\" root \")\" | [abc]{1,4}",
          "root ::= e\ne ::= e \"+\" t | t\nt ::= \"(\" e \")\" | \"1\" | \"a\"",
          "root ::= \"abc\""}) {
      CAPTURE(text);
      const Constraint constraint(vocabulary, text);
      for (int trial = 0; trial < 60; ++trial) {
        CAPTURE(trial);
        SequenceGrammar grammar = constraint.At({});
        SequenceGrammar reference = constraint.At({});
        const auto num_nodes = static_cast<int32_t>(random() % kNodes + 1);
        Ids tokens;
        std::vector<int32_t> parents;
        for (int32_t node = 0; node < num_nodes; ++node) {
          parents.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(node + 1)) - 1);
          // Nodes are mostly allowed ids; stop ids, -1 and ids outside the vocabulary among them.
          const Ids path = PathTo(parents, tokens, parents.back());
          const std::vector<uint32_t> mask = Fill(&reference, path, nullptr).words.back();
          Ids allowed;
          for (TokenId id = 0; id < kVocab; ++id) {
            if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
          }
          tokens.push_back(random() % 4 == 0 || allowed.empty()
                               ? static_cast<TokenId>(random() % (kVocab + 6)) - 3
                               : allowed[random() % allowed.size()]);
        }
        // Twice: the walk ends where it began.
        for (int repeat = 0; repeat < 2; ++repeat) {
          const Masks tree = Fill(&grammar, tokens, parents.data());
          for (int32_t node = kRoot; node < num_nodes; ++node) {
            CAPTURE(node);
            const Ids path = PathTo(parents, tokens, node);
            const Masks chain = Fill(&reference, path, nullptr);
            const auto place = static_cast<size_t>(PlaceAfter(node));
            REQUIRE(tree.words[place] == chain.words.back());
            REQUIRE(tree.below_min_tokens[place] == chain.below_min_tokens.back());
            num_deep += path.size() > 2;
          }
        }
      }
    }
    CHECK(num_deep > 300);
  }
}

}  // namespace
}  // namespace specd
