// Speculation does not change the text where the method says so, also if parameters look back at
// the draft, which may be a tree. Rows are a function of the tokens before them. Two verifiers that
// differ in their drafts alone must keep the same tokens with the same logprobs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "speculative/verifier.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

constexpr int32_t kVocab = 12;
constexpr int32_t kDraft = 6;

// The row that a model might give after these tokens: pure in its arguments.
void FillRow(const Ids& tokens, float* row) {
  uint32_t state = 12345;
  const size_t first = tokens.size() > 3 ? tokens.size() - 3 : 0;
  for (size_t i = first; i < tokens.size(); ++i) {
    state = state * 31 + static_cast<uint32_t>(tokens[i] + 1);
  }
  std::mt19937 random(state);
  for (int32_t v = 0; v < kVocab; ++v) row[v] = static_cast<float>(random() % 512) / 128.0f;
}

struct Text {
  Ids ids;
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;
  FinishReason reason = FinishReason::kNone;
  size_t num_accepted = 0;
};

// The draft tokens from the root to a place.
Ids PrefixOf(const Ids& drafts, const std::vector<int32_t>& parents, size_t place) {
  Ids prefix;
  for (auto node = static_cast<int32_t>(place) - 1; node != kRoot;
       node = parents[static_cast<size_t>(node)]) {
    prefix.insert(prefix.begin(), drafts[static_cast<size_t>(node)]);
  }
  return prefix;
}

// The text of one sequence with drafts of up to max_draft tokens, about half of them right. If
// `trees` is set, a node follows any of the three before it, or the kept tokens.
Text Generate(const SequenceParams& params, const Ids& prompt, const Text* guess, int32_t max_draft,
              uint32_t seed, bool trees = false) {
  VerifierOptions options;
  options.limits = {kVocab, 1, kDraft};
  options.max_sequences = 1;
  options.eos_token_ids = {0};
  auto verifier = *Verifier::Create(options, *MakeBackend("cpu"));
  std::vector<float> logits(kVocab * (kDraft + 1));
  TensorView view;
  view.data = logits.data();
  view.num_rows = kDraft + 1;
  view.row_stride = kVocab;
  view.vocab_size = kVocab;
  REQUIRE(verifier->BindTarget(view).ok());
  const auto info = verifier->Open(params, {prompt, {}});
  REQUIRE_MESSAGE(info.ok(), info.status().ToString());

  const uint32_t rows[] = {0, 1, 2, 3, 4, 5, 6};
  std::mt19937 random(seed);
  Text text;
  while (text.reason == FinishReason::kNone) {
    Ids drafts;
    std::vector<int32_t> parents;
    const auto num_drafts = max_draft == 0 ? 0 : random() % static_cast<uint32_t>(max_draft + 1);
    for (size_t i = 0; i < num_drafts; ++i) {
      const int32_t back = trees ? static_cast<int32_t>(random() % 3) : 0;
      parents.push_back(std::max(static_cast<int32_t>(i) - 1 - back, kRoot));
      const size_t at =
          text.ids.size() + PrefixOf(drafts, parents, size_t(parents.back() + 1)).size();
      const bool right = guess != nullptr && at < guess->ids.size() && random() % 6 != 0;
      // One past the vocabulary at times: no id, and never the target's.
      drafts.push_back(right ? guess->ids[at] : static_cast<TokenId>(random() % (kVocab + 1)));
    }
    Ids before = prompt;
    before.insert(before.end(), text.ids.begin(), text.ids.end());
    for (size_t i = 0; i <= drafts.size(); ++i) {
      const Ids prefix = PrefixOf(drafts, parents, i);
      Ids tokens = before;
      tokens.insert(tokens.end(), prefix.begin(), prefix.end());
      FillRow(tokens, &logits[i * kVocab]);
    }
    SequenceInput input;
    input.sequence = info->handle;
    input.draft.num_nodes = static_cast<int32_t>(drafts.size());
    input.draft.tokens = drafts.data();
    input.draft.target_rows = rows;
    if (trees) input.draft.parents = parents.data();
    SequenceResult result;
    VerifyRound(verifier, {&input, 1}, {&result, 1});
    REQUIRE(result.status == RoundStatus::kOk);
    // The path leads down from the root, over the accepted tokens.
    for (uint32_t j = 0; j < result.num_accepted; ++j) {
      const auto node = static_cast<size_t>(result.path[j]);
      REQUIRE(parents[node] == (j == 0 ? kRoot : result.path[j - 1]));
      REQUIRE(drafts[node] == result.tokens[j]);
    }
    text.num_accepted += result.num_accepted;
    for (uint32_t j = 0; j < result.num_kept; ++j) {
      text.ids.push_back(result.tokens[j]);
      text.logprobs.push_back(
          result.scores[j * static_cast<uint32_t>(result.scores_per_token)].value);
      text.ranks.push_back(result.scores[j * static_cast<uint32_t>(result.scores_per_token)].rank);
    }
    text.reason = result.finish_reason;
  }
  return text;
}

SequenceParams AnyParams(std::mt19937& random) {
  const auto coin = [&] { return random() % 2 == 0; };
  SequenceParams params;
  params.seed = random();
  params.has_seed = true;
  params.temperature = coin() ? 0 : 0.9;
  params.max_tokens = 40;
  params.logprobs = 0;
  params.logprobs_mode = ScoreMode::kProcessedLogprob;
  if (coin()) params.repetition_penalty = 1.3;
  if (coin()) params.frequency_penalty = 0.7;
  if (coin()) params.presence_penalty = 0.4;
  if (coin()) params.logit_bias = {{3, 2.0f}};
  if (coin()) params.min_tokens = 15;
  if (coin()) params.bad_words = {{3, 4}, {5}, {6, 7, 8}, {3, 3}};
  if (coin()) params.no_repeat_ngram_size = 2 + static_cast<int64_t>(random() % 2);
  if (coin()) params.thinking = {static_cast<int64_t>(random() % 5), 9, {10, 11}, 1};
  if (coin()) params.processors = {{"repeat_run", {{"max_run", 1}}}};
  return params;
}

TEST_SUITE("invariance") {
  TEST_CASE("parameters that look back: one text for every draft (vLLM 42, SGLang 91)") {
    std::mt19937 random(4711);
    size_t num_tokens = 0;
    size_t num_accepted = 0;
    for (int trial = 0; trial < 150; ++trial) {
      CAPTURE(trial);
      const SequenceParams params = AnyParams(random);
      const Ids prompt = {9, static_cast<TokenId>(random() % kVocab), 3};
      const Text plain = Generate(params, prompt, nullptr, 0, 0);
      num_tokens += plain.ids.size();
      for (int32_t max_draft : {1, 3, kDraft}) {
        CAPTURE(max_draft);
        const Text drafted = Generate(params, prompt, &plain, max_draft, random());
        const Text branched = Generate(params, prompt, &plain, max_draft, random(), true);
        num_accepted += branched.num_accepted;
        for (const Text& text : {drafted, branched}) {
          CHECK(text.ids == plain.ids);
          CHECK(text.logprobs == plain.logprobs);
          CHECK(text.ranks == plain.ranks);
          CHECK(text.reason == plain.reason);
        }
      }
    }
    CHECK(num_tokens > 2000);
    CHECK(num_accepted > 2000);
  }

  TEST_CASE("a greedy text with argmax ids in place of rows") {
    // Bug: the count of invalid drafts looked at a row that was never given.
    VerifierOptions options;
    options.limits = {kVocab, 1, kDraft};
    options.max_sequences = 1;
    auto verifier = *Verifier::Create(options, *MakeBackend("cpu"));
    SequenceParams params;
    params.temperature = 0;
    SequenceInput input;
    input.sequence = verifier->Open(params)->handle;
    const TokenId drafts[] = {3, 4, 5};
    const TokenId argmax[] = {3, 7, 5, 6};
    input.draft.num_nodes = 3;
    input.draft.tokens = drafts;
    input.draft.target_argmax = argmax;
    SequenceResult result;
    VerifyRound(verifier, {&input, 1}, {&result, 1});
    CHECK(result.status == RoundStatus::kOk);
    CHECK(Ids(result.tokens, result.tokens + result.num_kept) == Ids{3, 7});
    CHECK(result.num_accepted == 1);
    CHECK(verifier->counters().invalid_drafts == 0);
  }
}

}  // namespace
}  // namespace specd
