// Rounds as arrays: the answers of specd_submit and specd_poll for the same seeds and rows, bit for
// bit, and refusals that name index and field. Embedded and attached.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/daemon/client/batch_arrays.h"
#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

using test::Arrays;
using test::BatchOf;
using test::EmbeddedEngine;
using test::EngineHost;
using test::ForBothModes;
using test::kScores;
using test::kWidth;
using test::TokensOf;

constexpr int kTimeoutMs = 10000;

bool SameBits(const void* a, const void* b, size_t size_bytes) {
  return size_bytes == 0 || std::memcmp(a, b, size_bytes) == 0;
}

// Compares element i of the arrays with a result of specd_poll, and the rest of its rows with -1.
void CheckEqual(const Arrays& a, uint32_t i, const specd_result& b) {
  CHECK(a.status[i] == b.status);
  CHECK(a.finish_reason[i] == b.finish_reason);
  CHECK(a.num_accepted[i] == b.num_accepted);
  REQUIRE(a.num_kept[i] == b.num_kept);
  CHECK(a.total_kept[i] == b.total_kept);
  CHECK(a.stop_token[i] == b.stop_token);
  CHECK(a.detail[i] == b.detail);
  CHECK(a.bad_row[i] == b.bad_row);
  CHECK(a.verify[i] == b.verify);
  CHECK(a.scores_per_token[i] == b.scores_per_token);
  CHECK(SameBits(&a.cumulative_logprob[i], &b.cumulative_logprob, sizeof(double)));
  std::vector<int32_t> tokens(b.tokens, b.tokens + b.num_kept);
  tokens.resize(kWidth, -1);
  CHECK(a.RowOf(a.tokens, i) == tokens);
  std::vector<int32_t> path(b.path, b.path + b.num_accepted);
  path.resize(kWidth, -1);
  CHECK(a.RowOf(a.path, i) == path);
  for (uint32_t k = 0; k < kWidth; ++k) {
    const specd_token_score* row = a.scores + (i * kWidth + k) * kScores;
    const uint32_t there = k < b.num_kept ? b.scores_per_token : 0;
    CHECK(SameBits(row, b.scores + k * b.scores_per_token, there * sizeof(*row)));
    for (uint32_t s = there; s < kScores; ++s) CHECK(row[s].id == -1);
  }
}

// Four sequences of different parameters with the same names and seeds in every engine.
std::vector<specd_sequence> OpenFour(EmbeddedEngine& f) {
  std::vector<specd_sequence> sequences;
  for (uint32_t i = 0; i < 4; ++i) {
    specd_params params = EmbeddedEngine::Params(i == 0 ? 0 : 0.8);
    params.seed = 100 + i;
    if (i == 1) params.logprobs = 2;
    if (i == 2) params.frequency_penalty = 0.7;
    if (i == 3) params.verify = SPECD_VERIFY_BLOCK;
    sequences.push_back(f.Open(params, "s" + std::to_string(i)));
  }
  return sequences;
}

void FillRows(EmbeddedEngine& f, uint32_t round) {
  for (uint32_t row = 0; row < EmbeddedEngine::kRows; ++row) {
    const float x = 0.3f * static_cast<float>((row + round) % 7);
    EmbeddedEngine::SetRow(f.target, row, {x, 0.2f, -x, 1.0f, 0.5f, 0.1f, 2 * x, -1.0f});
    EmbeddedEngine::SetRow(f.draft, row, {0.4f, -x, 1.5f, x, 0.25f, 0.0f, 0.9f, -0.5f});
  }
  f.mask[1] = 0xb7;
}

// The arrays of a round whose rows are in order, or named the other way round.
struct Round {
  specd_batch AsBatch(const std::vector<specd_sequence>& sequences) const {
    specd_batch batch = BatchOf(sequences);
    batch.draft_offsets = offsets;
    batch.tokens = tokens;
    batch.kinds = kinds;
    batch.flags = flags;
    batch.mask_rows = masks;
    if (is_named) {
      batch.target_rows = backwards;
      batch.draft_rows = backwards;
    }
    return batch;
  }

  std::vector<specd_draft> AsDrafts(const std::vector<specd_sequence>& sequences) const {
    const uint32_t* rows = is_named ? backwards : forwards;
    std::vector<specd_draft> drafts;
    for (uint32_t i = 0; i < 4; ++i) {
      specd_draft draft = ChainDraft(sequences[i], offsets[i + 1] - offsets[i], tokens + offsets[i],
                                     rows + offsets[i] + i);
      draft.flags = flags[i];
      draft.kinds = kinds + offsets[i];
      draft.draft_rows = rows + offsets[i];
      draft.mask_rows = masks + offsets[i] + i;
      drafts.push_back(draft);
    }
    return drafts;
  }

  bool is_named = false;
  const uint32_t offsets[5] = {0, 1, 1, 3, 4};
  const int32_t tokens[4] = {6, 3, 6, 2};
  const uint8_t kinds[4] = {SPECD_ONE_HOT, SPECD_ONE_HOT, SPECD_ONE_HOT, SPECD_SAMPLED};
  uint32_t flags[4] = {};
  const int32_t masks[8] = {-1, -1, 1, -1, -1, 1, -1, -1};
  const uint32_t forwards[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const uint32_t backwards[8] = {7, 6, 5, 4, 3, 2, 1, 0};
};

// The error of a batch after `change`.
template <class Change>
std::string RefusalOf(EmbeddedEngine& f, const std::vector<specd_sequence>& sequences,
                      Change change) {
  const Round round;
  specd_batch batch = round.AsBatch(sequences);
  Arrays arrays;
  change(&batch, &arrays.results);
  const int code = specd_verify_batch(f.engine, 1, &batch, &arrays.results, kTimeoutMs);
  return std::to_string(code) + ": " + (code < 0 ? specd_last_error() : "");
}

TEST_SUITE("unit") {
  TEST_CASE("batch: arrays bring what drafts bring, bit for bit, over many rounds") {
    const EngineHost host;
    for (const std::string& uri : {std::string("embedded:cpu"), host.uri}) {
      for (const bool is_named : {false, true}) {
        EmbeddedEngine one;
        const std::vector<specd_sequence> drafted = OpenFour(one);
        EmbeddedEngine other(uri);
        const std::vector<specd_sequence> batched = OpenFour(other);
        Round round{.is_named = is_named};
        for (uint32_t number = 0; number < 12; ++number) {
          FillRows(one, number);
          FillRows(other, number);
          round.flags[1] = number == 5 ? SPECD_DISCARD : 0;
          const std::vector<specd_draft> drafts = round.AsDrafts(drafted);
          REQUIRE(specd_submit(one.engine, number, drafts.data(), 4) == SPECD_OK);
          specd_completion done = SizedCompletion();
          REQUIRE(specd_poll(one.engine, &done, kTimeoutMs) == SPECD_OK);
          const specd_batch batch = round.AsBatch(batched);
          Arrays arrays;
          REQUIRE(specd_verify_batch(other.engine, number, &batch, &arrays.results, kTimeoutMs) ==
                  SPECD_OK);
          CHECK(arrays.results.round_id == number);
          REQUIRE(arrays.results.num_results == 4);
          for (uint32_t i = 0; i < 4; ++i) {
            INFO("round ", number, ", sequence ", i);
            CheckEqual(arrays, i, done.results[i]);
          }
        }
      }
    }
  }

  TEST_CASE("batch: refusals name index and field, and change nothing") {
    ForBothModes([](EmbeddedEngine& f) {
      const std::vector<specd_sequence> s = OpenFour(f);
      FillRows(f, 0);
      const auto said = [&](auto change) { return RefusalOf(f, s, change); };
      using Batch = specd_batch*;
      using Results = specd_batch_results*;
      CHECK(Mentions(said([](Batch b, Results) { b->num_sequences = 0; }),
                     "-1: num_sequences = 0 is outside 1 .. 4"));
      CHECK(Mentions(said([](Batch b, Results) { b->num_sequences = 5; }), "num_sequences = 5"));
      CHECK(Mentions(said([](Batch b, Results) { b->sequences = nullptr; }), "sequences is NULL"));
      CHECK(Mentions(said([](Batch b, Results) { b->struct_size = 2; }), "struct_size = 2"));
      static const uint32_t late[] = {1, 1, 1, 3, 4};
      CHECK(Mentions(said([](Batch b, Results) { b->draft_offsets = late; }),
                     "draft_offsets[0] = 1 must be 0"));
      static const uint32_t falling[] = {0, 2, 1, 3, 4};
      CHECK(Mentions(said([](Batch b, Results) { b->draft_offsets = falling; }),
                     "draft_offsets[2] - draft_offsets[1] = -1"));
      static const uint32_t wide[] = {0, 0, 0, 0, 4};
      CHECK(Mentions(said([](Batch b, Results) { b->draft_offsets = wide; }),
                     "draft_offsets[4] - draft_offsets[3] = 4"));
      CHECK(Mentions(said([](Batch b, Results) { b->tokens = nullptr; }),
                     "batch[0].tokens is NULL but num_nodes = 1"));
      static const uint8_t odd[] = {0, 0, 3, 0};
      CHECK(Mentions(said([](Batch b, Results) { b->kinds = odd; }), "batch[2].kinds[1] = 3"));
      static const uint32_t flags[] = {0, 8, 0, 0};
      CHECK(Mentions(said([](Batch b, Results) { b->flags = flags; }), "batch[1].flags = 8"));
      static const float weights[] = {1, 1, 1, 1};
      CHECK(Mentions(said([](Batch b, Results) { b->draft_weights = weights; }),
                     "batch[0].draft_weights and draft_masses"));
      static const uint32_t rows[8] = {};
      static const int32_t ids[8] = {};
      CHECK(Mentions(said([](Batch b, Results) { b->target_rows = rows, b->target_argmax = ids; }),
                     "batch[0].target_rows and target_argmax are both given"));
      static const uint32_t by_slot[] = {0, 0, 0, SPECD_DRAFTS_BY_SLOT};
      CHECK(Mentions(said([](Batch b, Results) { b->flags = by_slot; }),
                     "batch[3] needs SPECD_DRAFT_TOKENS"));
      CHECK(Mentions(said([](Batch, Results r) { r->max_results = 3; }),
                     "max_results = 3 is less than 4"));
      CHECK(Mentions(said([](Batch, Results r) { r->tokens_stride = 2; }),
                     "tokens_stride = 2 is less than 3"));
      CHECK(Mentions(said([](Batch, Results r) { r->scores_stride = 4; }),
                     "scores_stride = 4 is less than 5"));
      CHECK(Mentions(said([](Batch, Results r) { r->reserved = 1; }), "reserved must be 0"));
      CHECK(f.Stats().rounds == 0);
      specd_batch batch = BatchOf(s);
      Arrays arrays;
      CHECK(specd_verify_batch(nullptr, 1, &batch, &arrays.results, 0) < 0);
      CHECK(specd_verify_batch(f.engine, 1, nullptr, &arrays.results, 0) < 0);
      CHECK(LastErrorHas("batch is NULL"));
      CHECK(specd_verify_batch(f.engine, 1, &batch, nullptr, 0) < 0);
      CHECK(LastErrorHas("results is NULL"));
      CHECK(specd_verify_batch(f.engine, 1, &batch, &arrays.results, -2) < 0);
      CHECK(LastErrorHas("timeout_ms = -2"));
      // A row of a role that was never bound.
      specd_options options;
      specd_options_init(&options);
      options.vocab_size = EmbeddedEngine::kVocab;
      specd_engine* bare = nullptr;
      REQUIRE(specd_open("embedded:cpu", &options, &bare) == SPECD_OK);
      CHECK(specd_verify_batch(bare, 1, &batch, &arrays.results, 0) == SPECD_ERROR_STATE);
      CHECK(LastErrorHas("batch[0] needs SPECD_TARGET_ROWS"));
      specd_close(bare);
    });
  }

  TEST_CASE("batch: rounds may be submitted and taken apart, by either pair of calls") {
    ForBothModes([](EmbeddedEngine& f) {
      const specd_params params = EmbeddedEngine::Params();
      const std::vector<specd_sequence> sequences = {f.Open(params, "a"), f.Open(params, "b")};
      for (uint32_t row = 0; row < 4; ++row) EmbeddedEngine::SetRow(f.target, row, {0, 0, 0, 5});
      specd_batch batch = BatchOf(sequences);
      const uint32_t offsets[] = {0, 2, 2};
      const int32_t tokens[] = {3, 3};
      batch.draft_offsets = offsets;
      batch.tokens = tokens;
      Arrays arrays;
      CHECK(specd_poll_batch(f.engine, &arrays.results, 0) == SPECD_EMPTY);
      REQUIRE(specd_submit_batch(f.engine, 1, &batch) == SPECD_OK);
      CHECK(specd_verify_batch(f.engine, 2, &batch, &arrays.results, 0) == SPECD_ERROR_STATE);
      CHECK(LastErrorHas("1 rounds are in flight"));
      // Arrays that are too small leave the round where it is.
      arrays.results.max_results = 1;
      CHECK(specd_poll_batch(f.engine, &arrays.results, kTimeoutMs) < 0);
      CHECK(LastErrorHas("max_results = 1 is less than 2"));
      arrays.results.max_results = 4;
      arrays.results.tokens_stride = 2;
      CHECK(specd_poll_batch(f.engine, &arrays.results, kTimeoutMs) < 0);
      CHECK(LastErrorHas("tokens_stride = 2 is less than 3"));
      arrays.results.tokens_stride = kWidth;
      REQUIRE(specd_poll_batch(f.engine, &arrays.results, kTimeoutMs) == SPECD_OK);
      CHECK(arrays.results.round_id == 1);
      CHECK(arrays.Kept(0) == std::vector<int32_t>{3, 3, 3});
      // A round of a batch for specd_poll, and one of drafts for specd_poll_batch.
      REQUIRE(specd_submit_batch(f.engine, 3, &batch) == SPECD_OK);
      specd_completion done = SizedCompletion();
      REQUIRE(specd_poll(f.engine, &done, kTimeoutMs) == SPECD_OK);
      CHECK(done.round_id == 3);
      CHECK(TokensOf(done.results[0]) == std::vector<int32_t>{3, 3, 3});
      const specd_draft draft = ChainDraft(sequences[1], 0, nullptr, f.rows);
      REQUIRE(specd_submit(f.engine, 4, &draft, 1) == SPECD_OK);
      specd_batch_results few;  // no array but one
      specd_batch_results_init(&few);
      few.max_results = 1;
      few.num_kept = arrays.num_kept;
      REQUIRE(specd_poll_batch(f.engine, &few, kTimeoutMs) == SPECD_OK);
      CHECK(few.round_id == 4);
      CHECK(few.num_results == 1);
      CHECK(few.total_ns >= few.verify_ns);
      CHECK(arrays.num_kept[0] == 1);
    });
  }
}

}  // namespace
}  // namespace specd
