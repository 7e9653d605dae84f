// A round in pieces on the CPU, where long tasks pause between rows: the answers are those of a
// whole round, to the bit.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tests/speculative/verifier_fixture.h"
#include "tests/support/rows.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

constexpr int32_t kVocab = 700;
constexpr int32_t kDrafts = 6;
constexpr int32_t kSequences = 16;

// Sequences of every method, with and without filters, penalties and scores.
SequenceParams ParamsOf(int32_t i) {
  constexpr VerifyMethod kMethods[] = {VerifyMethod::kAuto,      VerifyMethod::kToken,
                                       VerifyMethod::kBlock,     VerifyMethod::kExactMatch,
                                       VerifyMethod::kTraversal, VerifyMethod::kTargetOnly,
                                       VerifyMethod::kTree};
  SequenceParams params;
  params.verify = kMethods[i % 7];
  params.temperature = i % 5 == 4 ? 0.0 : 0.8;
  if (params.temperature == 0.0) params.verify = VerifyMethod::kAuto;
  params.top_p = i % 3 == 1 ? 0.9 : 1.0;
  params.top_k = i % 3 == 2 ? 40 : 0;
  params.repetition_penalty = i % 2 == 0 ? 1.0 : 1.2;
  params.logprobs = i % 4 == 3 ? 3 : -1;
  params.seed = static_cast<uint64_t>(100 + i);
  params.has_seed = true;
  params.max_tokens = 1000;
  return params;
}

struct Answer {
  RoundStatus status;
  Ids tokens;
  uint32_t num_accepted;
  std::vector<int32_t> path;
  std::vector<float> scores;
  uint64_t cumulative_logprob;  // its bits
  Refusal refusal;
  uint32_t bad_row;

  bool operator==(const Answer&) const = default;
};

// The answers of ten rounds over the same rows.
std::vector<Answer> RunRounds(int64_t piece_work, int32_t threads) {
  auto created = Verifier::Create({.limits = {.vocab_size = kVocab,
                                              .max_batch = kSequences,
                                              .max_draft = kDrafts,
                                              .threads = threads},
                                   .max_sequences = kSequences,
                                   .eos_token_ids = {},
                                   .piece_work = piece_work},
                                  *MakeBackend("cpu"));
  REQUIRE(created.ok());
  Verifier& verifier = **created;
  RowMatrix target({.vocab_size = kVocab, .num_rows = kDrafts + 1});
  RowMatrix draft({.vocab_size = kVocab, .num_rows = kDrafts});
  REQUIRE(verifier.BindTarget(target.view()).ok());
  REQUIRE(verifier.BindDraft(draft.view()).ok());
  std::vector<SequenceHandle> handles;
  for (int32_t i = 0; i < kSequences; ++i) handles.push_back(verifier.Open(ParamsOf(i))->handle);
  std::mt19937_64 random(5);
  const uint32_t rows[] = {0, 1, 2, 3, 4, 5, 6};
  const DraftKind kinds[kDrafts] = {DraftKind::kSampled, DraftKind::kSampled, DraftKind::kOneHot,
                                    DraftKind::kSampled, DraftKind::kSampled, DraftKind::kSampled};
  // Half the rounds have trees: two nodes after the root, two after node 0, and two after node 3.
  // Rows 0 to 5 want the ids of their numbers, so paths of three nodes are likely.
  const int32_t parents[kDrafts] = {kRoot, kRoot, 0, 0, 3, 3};
  const uint32_t tree_draft_rows[] = {0, 0, 1, 1, 4, 4};
  const TokenId tree_tokens[kDrafts] = {0, 6, 7, 1, 4, 8};
  const DraftKind tree_kinds[kDrafts] = {DraftKind::kSampledRest, DraftKind::kSampledRest,
                                         DraftKind::kOneHot,      DraftKind::kSampledRest,
                                         DraftKind::kSampledRest, DraftKind::kOneHot};
  std::vector<Answer> answers;
  for (int round = 0; round < 10; ++round) {
    for (int32_t row = 0; row <= kDrafts; ++row) {
      std::vector<double> logits = RandomLogits(random, kVocab);
      logits[static_cast<size_t>(row)] = 10;  // the draft token of this place, which mostly stands
      target.Set(row, logits);
      if (row == kDrafts) break;
      // q is not p, so the prefix of a block changes at every place.
      logits = RandomLogits(random, kVocab);
      logits[static_cast<size_t>(row)] = 11;
      draft.Set(row, logits);
    }
    // The fifth row of some rounds is bad.
    if (round % 4 == 3) target.Set(4, std::vector<double>(kVocab, -INFINITY));
    const TokenId tokens[kDrafts] = {0, 1, 2, 3, 4, 5};
    std::vector<SequenceInput> inputs(kSequences);
    for (int32_t i = 0; i < kSequences; ++i) {
      SequenceInput& input = inputs[static_cast<size_t>(i)];
      input.sequence = handles[static_cast<size_t>(i)];
      input.draft = {.num_nodes = i % (kDrafts + 1),
                     .tokens = tokens,
                     .kinds = kinds,
                     .target_rows = rows,
                     .draft_rows = rows};
      if (round % 2 == 0) continue;
      input.draft.parents = parents;
      input.draft.tokens = tree_tokens;
      input.draft.kinds = tree_kinds;
      input.draft.draft_rows = tree_draft_rows;
    }
    std::vector<SequenceResult> results(kSequences);
    VerifyRound(&verifier, inputs, results);
    for (const SequenceResult& result : results) {
      Answer answer = {.status = result.status,
                       .tokens = Kept(result),
                       .num_accepted = result.num_accepted,
                       .path = {result.path, result.path + result.num_accepted},
                       .scores = {},
                       .cumulative_logprob = std::bit_cast<uint64_t>(result.cumulative_logprob),
                       .refusal = result.refusal,
                       .bad_row = result.bad_row};
      for (uint32_t j = 0; j < result.num_kept * result.scores_per_token; ++j) {
        answer.scores.push_back(result.scores[j].value);
      }
      answers.push_back(std::move(answer));
    }
  }
  return answers;
}

// Scores of calls over seven rows. The fifth row is bad.
std::vector<uint32_t> RunScores(int64_t piece_work, int32_t threads) {
  auto created = Verifier::Create({.limits = {.vocab_size = kVocab,
                                              .max_batch = kSequences,
                                              .max_draft = kDrafts,
                                              .threads = threads},
                                   .max_sequences = kSequences,
                                   .eos_token_ids = {},
                                   .piece_work = piece_work},
                                  *MakeBackend("cpu"));
  REQUIRE(created.ok());
  RowMatrix target({.vocab_size = kVocab, .num_rows = kDrafts + 1});
  std::mt19937_64 random(6);
  for (int32_t row = 0; row <= kDrafts; ++row) target.Set(row, RandomLogits(random, kVocab));
  target.Set(4, std::vector<double>(kVocab, NAN));
  REQUIRE((*created)->BindTarget(target.view()).ok());
  const uint32_t rows[] = {6, 5, 3, 2, 1, 0, 4};
  const TokenId ids[] = {9, 8, 7, 6, 5, 4, 3};
  const TokenId chosen[] = {11, 12, 13};
  std::vector<ScoreInput> inputs(kSequences);
  for (int32_t i = 0; i < kSequences; ++i) {
    inputs[static_cast<size_t>(i)] = {.rows = rows,
                                      .ids = ids,
                                      .num_ids = 1 + i % (kDrafts + 1),
                                      .request = {.enabled = true,
                                                  .mode = ScoreMode::kRawLogprob,
                                                  .num_top = i % 4,
                                                  .chosen = chosen,
                                                  .num_chosen = i % 3}};
  }
  std::vector<ScoreResult> results(kSequences);
  ScoreAtOnce(*created, inputs, results);
  std::vector<uint32_t> words;
  for (const ScoreResult& result : results) {
    words.push_back(static_cast<uint32_t>(result.status));
    words.push_back(static_cast<uint32_t>(result.refusal));
    words.push_back(static_cast<uint32_t>(result.num_scored));
    for (int32_t j = 0; j < result.num_scored * result.scores_per_token; ++j) {
      words.push_back(static_cast<uint32_t>(result.scores[j].id));
      words.push_back(std::bit_cast<uint32_t>(result.scores[j].value));
      words.push_back(static_cast<uint32_t>(result.scores[j].rank));
    }
  }
  return words;
}

TEST_SUITE("unit") {
  TEST_CASE("a call of scores in pieces has the answers of a whole one, to the bit") {
    const std::vector<uint32_t> whole = RunScores(int64_t{1} << 40, 1);
    REQUIRE(whole.size() > 500);
    for (const int32_t threads : {1, 3}) {
      for (const int64_t piece_work : {1, 5 * kVocab, 20 * kVocab}) {
        CAPTURE(threads);
        CAPTURE(piece_work);
        CHECK(RunScores(piece_work, threads) == whole);
      }
    }
  }

  TEST_CASE("a round in pieces has the answers of a whole one, to the bit") {
    const std::vector<Answer> whole = RunRounds(int64_t{1} << 40, 1);
    uint32_t num_accepted = 0;
    int num_bad = 0;
    int num_scored = 0;
    int num_deep = 0;  // of trees
    for (const Answer& answer : whole) {
      num_accepted += answer.num_accepted;
      num_bad += answer.status == RoundStatus::kBadDistribution ? 1 : 0;
      num_scored += answer.scores.empty() ? 0 : 1;
      num_deep += answer.path.size() > 1 && answer.path[1] == 3 ? 1 : 0;
    }
    CHECK(num_accepted > 100);
    CHECK(num_bad > 1);
    CHECK(num_scored > 3);
    CHECK(num_deep > 3);
    for (const int32_t threads : {1, 2, 3}) {
      for (const int64_t piece_work : {1, 2 * kVocab, 5 * kVocab, 20 * kVocab}) {
        CAPTURE(threads);
        CAPTURE(piece_work);
        CHECK(RunRounds(piece_work, threads) == whole);
      }
    }
  }
}

}  // namespace
}  // namespace specd
