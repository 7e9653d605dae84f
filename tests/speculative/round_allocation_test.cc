// A round takes no memory for any parameters of its sequences: every operator new of this program
// is counted.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "kernels/backend.h"
#include "speculative/drafts/ngram_draft.h"
#include "speculative/verifier.h"
#include "tests/support/verify_round.h"

namespace {
std::atomic<uint64_t> num_allocations{0};
std::atomic<bool> has_memory{true};
}  // namespace

// GCC takes a free() of what operator new gave for a mistake once both are inlined.
__attribute__((noinline)) void* operator new(size_t size_bytes) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (!has_memory.load(std::memory_order_relaxed)) throw std::bad_alloc();
  if (void* memory = std::malloc(size_bytes)) return memory;
  throw std::bad_alloc();
}
// The library's temporary buffers come this way, and go the way of all.
__attribute__((noinline)) void* operator new(size_t size_bytes, const std::nothrow_t&) noexcept {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size_bytes);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace specd {
namespace {

constexpr int32_t kVocab = 40;
constexpr int32_t kDraft = 4;
constexpr int32_t kBatch = 8;
constexpr size_t kRows = kBatch * (kDraft + 1);

SequenceParams Everything(VerifyMethod verify) {
  SequenceParams params;
  params.verify = verify;
  params.temperature = verify == VerifyMethod::kGreedy ? 0 : 0.8;
  if (verify != VerifyMethod::kGreedy) {
    params.top_k = 30;
    params.top_p = 0.95;
    params.min_p = 0.01;
  }
  params.repetition_penalty = 1.1;
  params.frequency_penalty = 0.1;
  params.presence_penalty = 0.1;
  params.logit_bias = {{1, 1.0f}, {9, -1.0f}};
  params.disallowed_token_ids = {3};
  params.bad_words = {{4}, {5, 6}, {7, 8, 9}};
  params.no_repeat_ngram_size = 3;
  params.thinking = {6, 10, {11, 12}, 13};
  params.processors = {{"repeat_run", {{"max_run", 2}}}};
  params.max_tokens = 400;
  params.min_tokens = 400;
  params.stop_token_ids = {2};
  params.logprobs = 5;
  params.logprobs_mode = ScoreMode::kProcessedLogprob;
  params.logprob_token_ids = {20, 21};
  params.seed = 3;
  params.has_seed = true;
  params.draft.edits = true;
  return params;
}

// Id i + 1 is letter i.
Vocabulary Letters() {
  Vocabulary::Builder builder;
  builder.Set(0, "</s>", {.added = true, .special = true});
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    builder.Set(letter - 'a' + 1, std::string(1, letter), {});
  }
  return std::move(builder).Build();
}

struct Rounds {
  explicit Rounds(uint32_t seed) : random(seed), logits(kRows * kVocab), vocabulary(Letters()) {
    VerifierOptions options;
    options.grammars = std::make_shared<grammar::GrammarCompiler>(
        grammar::GrammarCompilerOptions{.vocabulary = &vocabulary, .vocab_size = kVocab});
    options.now_ns = [] { return int64_t{0}; };
    options.limits = {kVocab, kBatch, kDraft};
    options.max_sequences = kBatch;
    options.eos_token_ids = {0};
    verifier = *Verifier::Create(options, *MakeBackend("cpu"));
    TensorView view;
    view.data = logits.data();
    view.num_rows = kRows;
    view.row_stride = kVocab;
    view.vocab_size = kVocab;
    REQUIRE(verifier->BindTarget(view).ok());
    REQUIRE(verifier->BindDraft(view).ok());
    verifier->BindMask({mask, 1, 2});
    for (size_t i = 0; i < kRows; ++i) rows[i] = static_cast<uint32_t>(i);
  }

  void OpenAll() {
    const TokenId prompt[] = {10, 5, 6, 7, 8, 5};
    const TokenId outputs[] = {5, 20};
    const VerifyMethod methods[] = {VerifyMethod::kGreedy, VerifyMethod::kExactMatch,
                                    VerifyMethod::kToken, VerifyMethod::kBlock};
    for (VerifyMethod method : methods) {
      const auto info = verifier->Open(Everything(method), {prompt, outputs});
      REQUIRE_MESSAGE(info.ok(), info.status().ToString());
      sequences.push_back(info->handle);
    }
  }
  void OpenConstrained() {
    for (const VerifyMethod method : {VerifyMethod::kExactMatch, VerifyMethod::kToken}) {
      SequenceParams params;
      params.verify = method;
      params.max_tokens = 1000;
      params.ignore_eos = true;
      params.grammar_kind = grammar::GrammarKind::kRegex;
      params.grammar_text = "([a-m]|n[o-z])+";
      params.draft.edits = true;
      const auto info = verifier->Open(params);
      REQUIRE_MESSAGE(info.ok(), info.status().ToString());
      sequences.push_back(info->handle);
    }
  }
  void OpenWithText() {
    SequenceParams params;
    params.max_tokens = 1000;
    absl::StatusOr<Sequence> built = verifier->opening().Build(params, {});
    REQUIRE(built.ok());
    built->text = SequenceText(TextStream(&vocabulary, nullptr, {}), {.is_kept = true});
    sequences.push_back(verifier->Insert(*std::move(built))->handle);
  }
  void ForkAll() {
    for (size_t i = 0; i < 4; ++i) {
      sequences.push_back(verifier->Fork(sequences[i], i)->handle);
    }
  }

  void Round() {
    for (float& l : logits) l = static_cast<float>(random() % 1000) * 0.01f;
    for (size_t i = 0; i < sequences.size(); ++i) {
      TokenId* drafts = &tokens[i * (kDraft + 1)];
      for (int32_t j = 0; j < kDraft; ++j) {
        drafts[j] = static_cast<TokenId>(random() % (kVocab + 2));
        kinds[i * kDraft + static_cast<size_t>(j)] =
            random() % 2 == 0 ? DraftKind::kOneHot : DraftKind::kSampled;
      }
      inputs[i] = SequenceInput{};
      inputs[i].sequence = sequences[i];
      inputs[i].draft.num_nodes = kDraft;
      inputs[i].draft.tokens = drafts;
      inputs[i].draft.kinds = &kinds[i * kDraft];
      inputs[i].draft.target_rows = &rows[i * (kDraft + 1)];
      inputs[i].draft.draft_rows = &rows[i * (kDraft + 1)];
      if (is_masked) inputs[i].mask_rows = mask_rows;
      draft_inputs[i] = DraftInput{};
      draft_inputs[i].sequence = sequences[i];
      draft_inputs[i].prefix = drafts;
      draft_inputs[i].num_prefix = 2;
      draft_inputs[i].num_children = 3;
    }
    SampleDraftAtOnce(verifier, {draft_inputs, sequences.size()},
                      {draft_results, sequences.size()});
    VerifyRound(verifier, {inputs, sequences.size()}, {results, sequences.size()});
    const TokenId ids[] = {1, 2};
    const ScoreInput score{rows, ids, 2, {true, ScoreMode::kRawLogprob, 64, ids, 2}};
    ScoreResult scored;
    ScoreAtOnce(verifier, {&score, 1}, {&scored, 1});
    scores += scored.num_scored;
    for (size_t i = 0; i < sequences.size(); ++i) {
      kept += results[i].num_kept;
      children += draft_results[i].children.size();
    }
  }

  std::mt19937 random;
  std::vector<float> logits;
  const Vocabulary vocabulary;
  bool is_masked = true;
  std::unique_ptr<Verifier> verifier;
  std::vector<SequenceHandle> sequences;
  const uint32_t mask[2] = {0xFFFFFFDFu, 0xFFu};
  const int32_t mask_rows[kDraft + 1] = {-1, 0, -1, 0, -1};
  uint32_t rows[kRows];
  TokenId tokens[kRows];
  DraftKind kinds[kBatch * kDraft];
  SequenceInput inputs[kBatch];
  SequenceResult results[kBatch];
  DraftInput draft_inputs[kBatch];
  DraftResult draft_results[kBatch];
  uint64_t kept = 0;
  uint64_t children = 0;
  int32_t scores = 0;
};

TEST_SUITE("unit") {
  TEST_CASE("a round allocates nothing with every parameter on, forked sequences among them") {
    Rounds rounds(17);
    rounds.OpenAll();
    rounds.Round();
    rounds.ForkAll();
    const uint64_t before = num_allocations.load();
    for (int i = 0; i < 50; ++i) rounds.Round();
    const uint64_t after = num_allocations.load();
    CHECK(after == before);
    // The rounds did something, and the counter counts.
    CHECK(rounds.kept > 400);
    CHECK(rounds.children > 400);
    CHECK(rounds.scores == 2 * 51);
    CHECK(rounds.verifier->counters().invalid_records == 0);
    CHECK(rounds.verifier->counters().bad_target_rows == 0);
    CHECK(rounds.verifier->counters().bad_tokens == 0);
    for (const SequenceResult& result : rounds.results) {
      CHECK(result.finish_reason == FinishReason::kNone);
      CHECK(result.cumulative_logprob < 0);
    }
    // Nor does a cut.
    const uint64_t before_cut = num_allocations.load();
    rounds.verifier->Finish(rounds.sequences[0], FinishReason::kAbort, 10);
    CHECK(num_allocations.load() == before_cut);
    const std::vector<int> something(10);
    CHECK(num_allocations.load() > after);
  }

  TEST_CASE("without memory for its text a sequence ends with an error, alone") {
    Rounds rounds(19);
    rounds.OpenAll();
    rounds.Round();
    rounds.OpenWithText();
    has_memory = false;
    rounds.Round();
    has_memory = true;
    CHECK(rounds.results[4].status == RoundStatus::kBadDistribution);
    CHECK(rounds.results[4].finish_reason == FinishReason::kError);
    CHECK(rounds.results[4].num_kept == 0);
    for (size_t i = 0; i < 4; ++i) CHECK(rounds.results[i].status == RoundStatus::kOk);
    rounds.Round();
    CHECK(rounds.results[4].status == RoundStatus::kFinished);
  }

  TEST_CASE("a round of constrained sequences allocates nothing once their masks are built") {
    Rounds rounds(18);
    rounds.is_masked = false;
    rounds.OpenConstrained();
    // A matcher keeps a state for each token. The list of states doubles when it is full, which
    // is the one allocation that is left; 300 tokens are behind the size of 256.
    const auto kept_least = [&rounds] {
      return std::min(rounds.results[0].total_kept, rounds.results[1].total_kept);
    };
    while (kept_least() < 300) rounds.Round();
    REQUIRE(std::max(rounds.results[0].total_kept, rounds.results[1].total_kept) < 480);
    const uint64_t before = num_allocations.load();
    for (int i = 0; i < 5; ++i) rounds.Round();
    CHECK(num_allocations.load() == before);
    for (size_t i = 0; i < 2; ++i) CHECK(rounds.results[i].status == RoundStatus::kOk);
    CHECK(rounds.verifier->counters().invalid_records == 0);
  }

  TEST_CASE("bug: a draft from a text took memory for every id that ever followed its end") {
    // Every second id is 1, and what follows is different each time.
    std::vector<TokenId> text;
    for (TokenId id = 2; id < 20'000; ++id) text.insert(text.end(), {id, 1});
    const uint64_t before = num_allocations.load();
    const NgramDraft draft = DraftNgrams(text, {.num_nodes = 8, .width = 4});
    const uint64_t taken = num_allocations.load() - before;
    CHECK(draft.tokens.size() == 8);
    CHECK(taken < 200);  // lists that double, and some for each node
  }
}

}  // namespace
}  // namespace specd
