// Masks that several threads fill. Preset tsan runs these too.
#include "speculative/round/mask_filler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tests/support/scripted_grammar.h"

namespace specd {
namespace {

constexpr int32_t kVocab = 40;
constexpr int32_t kDraft = 5;
constexpr size_t kSequences = 24;
const BackendLimits kLimits = {.vocab_size = kVocab, .max_batch = 32, .max_draft = kDraft};

Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  builder.Set(0, "</s>", {.added = true, .special = true});
  TokenId id = 1;
  for (const char* piece : {"a", "b", "c", "ab", "abc", "ba", "{", "}", ":", "1", "12", "(", ")"}) {
    builder.Set(id++, piece, {});
  }
  return std::move(builder).Build();
}

// A batch of sequences, each with a draft and room for its masks.
struct Batch {
  explicit Batch(std::vector<SequenceGrammar> grammars) : sequences(grammars.size()) {
    std::mt19937 random(3);
    for (size_t i = 0; i < grammars.size(); ++i) {
      sequences[i].grammar = std::move(grammars[i]);
      tokens.emplace_back();
      for (int32_t j = 0; j < kDraft; ++j) {
        tokens.back().push_back(static_cast<TokenId>(random() % 14));
      }
      places.emplace_back(kDraft + 1);
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      drafts.push_back({.num_nodes = kDraft, .tokens = tokens[i].data()});
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      jobs.push_back({&sequences[i], &drafts[i], places[i].data()});
    }
  }

  // The allowed ids of every place of every sequence.
  std::vector<std::vector<uint32_t>> Masks() const {
    std::vector<std::vector<uint32_t>> masks;
    for (const std::vector<PlaceEdits>& sequence : places) {
      for (const PlaceEdits& place : sequence) {
        REQUIRE(place.grammar_mask != nullptr);
        masks.emplace_back(place.grammar_mask, place.grammar_mask + (kVocab + 31) / 32);
      }
    }
    return masks;
  }

  std::vector<Sequence> sequences;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<PlaceEdits>> places;
  std::vector<Draft> drafts;
  std::vector<MaskFiller::Job> jobs;
};

Batch RealBatch(const Vocabulary& vocabulary) {
  grammar::GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocab});
  const char* const texts[] = {"root ::= [a-c]+", "root ::= \"a\" root \"b\" | \"c\"",
                               "root ::= \"(\" root \")\" | [abc]{2,9}"};
  std::vector<std::shared_ptr<const grammar::CompiledGrammar>> compiled;
  for (const char* text : texts) {
    compiled.push_back(*compiler.CompileAnew({.kind = grammar::GrammarKind::kEbnf, .text = text}));
  }
  std::vector<SequenceGrammar> grammars;
  for (size_t i = 0; i < kSequences; ++i) {
    grammars.push_back(*SequenceGrammar::Create(
        compiled[i % compiled.size()]->NewMatcher({.stop_ids = {0}}), {}, kLimits));
  }
  return Batch(std::move(grammars));
}

Batch ScriptedBatch(const std::shared_ptr<GrammarScript>& script) {
  script->vocab_size = kVocab;
  std::vector<SequenceGrammar> grammars;
  for (size_t i = 0; i < kSequences; ++i) {
    auto matcher = std::make_unique<ScriptedMatcher>(std::to_string(i), script);
    grammars.push_back(*SequenceGrammar::Create(std::move(matcher), {}, kLimits));
  }
  return Batch(std::move(grammars));
}

// Fills in as many slices as it takes.
void FillWhole(MaskFiller* filler, std::span<MaskFiller::Job> jobs) {
  while (!jobs.empty()) jobs = jobs.subspan(filler->Fill(jobs));
}

// A clock by which every look takes as long as grammar::MaskPool works alone.
struct FastClock {
  std::atomic<int64_t> now_ns{0};
  grammar::MaskPool::NowNs Function() {
    return [this] { return now_ns.fetch_add(grammar::MaskPool::kAloneNs); };
  }
};

TEST_SUITE("unit") {
  TEST_CASE("MaskFiller: 24 sequences in several threads have the masks of one thread") {
    const Vocabulary vocabulary = MakeVocabulary();
    Batch alone = RealBatch(vocabulary);
    MaskFiller(4, nullptr).Fill(alone.jobs);
    const std::vector<std::vector<uint32_t>> expected = alone.Masks();
    FastClock clock;
    for (const bool starts : {true, false}) {
      MaskFiller filler(4, clock.Function());
      if (starts) filler.Start();
      for (int repeat = 0; repeat < 20; ++repeat) {
        Batch shared = RealBatch(vocabulary);
        FillWhole(&filler, shared.jobs);
        REQUIRE(shared.Masks() == expected);
      }
    }
  }

  TEST_CASE("MaskFiller: a sequence without memory for its masks is marked, and no other") {
    for (const int32_t threads : {1, 4}) {
      const auto script = std::make_shared<GrammarScript>();
      Batch batch = ScriptedBatch(script);
      script->on_mask = [](const std::string& name, const std::vector<TokenId>& ids) {
        if (name.back() == '7' && ids.size() == 2) throw std::bad_alloc();
      };
      FastClock clock;
      MaskFiller filler(threads, clock.Function());
      filler.Start();
      FillWhole(&filler, batch.jobs);
      for (size_t i = 0; i < kSequences; ++i) {
        CHECK(batch.sequences[i].grammar_failed == (i % 10 == 7));
        CHECK((batch.places[i].back().grammar_mask == nullptr) == (i % 10 == 7));
      }
    }
  }

  TEST_CASE("MaskFiller: Fill begins no sequence after its time, and goes on where it was") {
    for (const int32_t threads : {1, 4}) {
      const auto script = std::make_shared<GrammarScript>();
      Batch batch = ScriptedBatch(script);
      std::atomic<int64_t> now_ns{0};
      script->on_mask = [&now_ns](const std::string&, const std::vector<TokenId>& ids) {
        if (ids.empty()) now_ns += MaskFiller::kSliceNs / 4;
      };
      MaskFiller filler(threads, [&now_ns] { return now_ns.load(); });
      filler.Start();
      const std::span<MaskFiller::Job> jobs = batch.jobs;
      size_t num_filled = 0;
      int num_slices = 0;
      while (num_filled < jobs.size()) {
        const size_t more = filler.Fill(jobs.subspan(num_filled));
        REQUIRE(more >= 1);
        // A thread may have looked at the time just before it was over.
        REQUIRE(more <= 4 + static_cast<size_t>(threads) - 1);
        if (threads == 1) REQUIRE(more == 4);
        num_filled += more;
        ++num_slices;
      }
      CHECK(num_slices >= 4);
      CHECK(batch.Masks().size() == kSequences * (kDraft + 1));
    }
  }

  TEST_CASE("MaskFiller: one sequence that takes longer than a slice is done nevertheless") {
    const auto script = std::make_shared<GrammarScript>();
    Batch batch = ScriptedBatch(script);
    std::atomic<int64_t> now_ns{0};
    script->on_mask = [&now_ns](const std::string&, const std::vector<TokenId>&) {
      now_ns += 2 * MaskFiller::kSliceNs;
    };
    MaskFiller filler(1, [&now_ns] { return now_ns.load(); });
    CHECK(filler.Fill(batch.jobs) == 1);
    MaskFiller without_clock(4, nullptr);
    CHECK(without_clock.Fill(batch.jobs) == kSequences);
  }
}

}  // namespace
}  // namespace specd
