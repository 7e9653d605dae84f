// Rounds of the C interface with more than logits and one-hot drafts, over the real backend.
// Expected numbers are worked out here, in double, from the definitions of docs.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::TokensOf;

TEST_SUITE("unit") {
  TEST_CASE("logprobs: more than the engine said it would ask for are refused by name") {
    EmbeddedEngine f;
    specd_params params = EmbeddedEngine::Params();
    params.logprobs = 5;  // and the token's own: 6 of 5
    specd_sequence_info info = Sized<specd_sequence_info>();
    CHECK(specd_open_sequence(f.engine, "r", &params, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("max_scores_per_token = 5"));
    params.logprobs = 4;
    CHECK(specd_open_sequence(f.engine, "r", &params, &info) == SPECD_OK);
    params.logprobs = 65;
    CHECK(specd_open_sequence(f.engine, "s", &params, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("-1 .. 64"));
  }

  TEST_CASE("masks: each place has its own, -1 is none") {
    EmbeddedEngine f;
    for (uint32_t row = 0; row < 3; ++row)
      EmbeddedEngine::SetRow(f.target, row, {2.0f, 1.5f, 1.0f});
    f.mask[4] = 0b0110;
    f.mask[5] = 0b0100;
    const specd_sequence s = f.Open(EmbeddedEngine::Params());
    const int32_t drafts[] = {1, 0};
    const int32_t masks[] = {4, -1, 5};
    specd_draft part = ChainDraft(s, 2, drafts, f.rows);
    part.mask_rows = masks;
    const specd_result result = f.Round(part);
    CHECK(result.num_accepted == 2);
    CHECK(TokensOf(result) == std::vector<int32_t>{1, 0, 2});
    // A masked draft token is rejected, as any other token without probability.
    const int32_t masked[] = {0};
    specd_draft other = ChainDraft(s, 1, masked, f.rows);
    other.mask_rows = masks;
    CHECK(TokensOf(f.Round(other)) == std::vector<int32_t>{1});
    CHECK(f.Stats().invalid_drafts == 1);
    const int32_t outside[] = {8, -1};
    other.mask_rows = outside;
    const specd_result refused = f.Round(other);
    CHECK(refused.status == SPECD_STATUS_INVALID);
    CHECK(refused.detail == SPECD_DETAIL_MASK_ROW);
    CHECK(std::string(specd_detail_text(refused.detail)).find("mask_rows") == 0);
  }

  TEST_CASE("discard: nothing is sampled and nothing changes") {
    EmbeddedEngine f;
    EmbeddedEngine::SetRow(f.target, 0, {1.0f, 2.0f});
    const specd_sequence s = f.Open(EmbeddedEngine::Params());
    specd_draft padding = Sized<specd_draft>();
    padding.sequence = s;
    padding.flags = SPECD_DISCARD;
    const specd_result result = f.Round(padding);
    CHECK(result.status == SPECD_STATUS_OK);
    CHECK(result.num_kept == 0);
    CHECK(result.total_kept == 0);
    CHECK(f.Stats().discarded == 1);
    CHECK(f.Sample(s).total_kept == 1);
    padding.flags = 8;
    CHECK(specd_submit(f.engine, 1, &padding, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("drafts[0].flags = 8"));
  }

  TEST_CASE("target_argmax stands for the rows of a greedy sequence, and of no other") {
    EmbeddedEngine f;
    const specd_sequence greedy = f.Open(EmbeddedEngine::Params(), "greedy");
    const int32_t drafts[] = {4, 5, 6};
    const int32_t argmax[] = {4, 5, 7, 1};
    specd_draft part = ChainDraft(greedy, 3, drafts, nullptr);
    part.target_argmax = argmax;
    const specd_result result = f.Round(part);
    CHECK(result.num_accepted == 2);
    CHECK(TokensOf(result) == std::vector<int32_t>{4, 5, 7});

    const specd_sequence sampled = f.Open(EmbeddedEngine::Params(1.0), "sampled");
    part.sequence = sampled;
    const specd_result refused = f.Round(part);
    CHECK(refused.status == SPECD_STATUS_INVALID);
    CHECK(refused.detail == SPECD_DETAIL_ARGMAX_SAMPLED);
    const int32_t outside[] = {4, 5, 8, 1};
    part.sequence = greedy;
    part.target_argmax = outside;
    CHECK(f.Round(part).detail == SPECD_DETAIL_ARGMAX);
    CHECK(f.Stats().invalid_records == 2);
    part.target_rows = f.rows;
    CHECK(specd_submit(f.engine, 1, &part, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("both given"));
  }
}

}  // namespace
}  // namespace specd
