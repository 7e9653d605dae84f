// The calls of the C interface over the real backend: drafts drawn by specd, scores of given ids,
// injected coins. They run embedded and through the rings of a daemon. Expected numbers are worked
// out here, in double, from the definitions of docs.
#include <doctest/doctest.h>

#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::ForBothModes;
using test::LogProb;
using test::TokensOf;

TEST_SUITE("unit") {
  TEST_CASE("scores of given ids: raw logprobs of each id in its row, without a sequence") {
    ForBothModes([](EmbeddedEngine& f) {
      const std::vector<double> first = {0.5, 2.0, -1.0, 1.5, 0, 0, 0, 0};
      const std::vector<double> second = {3.0, 2.0, 1.0, 0.0, 0, 0, 0, 0};
      EmbeddedEngine::SetRow(f.target, 2, {0.5f, 2.0f, -1.0f, 1.5f, 0, 0, 0, 0});
      EmbeddedEngine::SetRow(f.target, 6, {3.0f, 2.0f, 1.0f, 0.0f, 0, 0, 0, 0});
      const uint32_t rows[] = {6, 2};
      const int32_t ids[] = {2, 3};
      specd_score_request request = Sized<specd_score_request>();
      request.rows = rows;
      request.ids = ids;
      request.num_ids = 2;
      request.num_top = 1;
      specd_score_result result = Sized<specd_score_result>();
      REQUIRE(specd_score(f.engine, &request, 1, &result) == SPECD_OK);
      CHECK(result.status == SPECD_STATUS_OK);
      CHECK(result.num_scored == 2);
      REQUIRE(result.scores_per_token == 2);
      CHECK(result.scores[0].id == 2);
      CHECK(result.scores[0].rank == 3);
      CHECK(result.scores[0].value == doctest::Approx(LogProb(second, 2)).epsilon(1e-5));
      CHECK(result.scores[1].id == 0);
      CHECK(result.scores[2].id == 3);
      CHECK(result.scores[2].rank == 2);
      CHECK(result.scores[2].value == doctest::Approx(LogProb(first, 3)).epsilon(1e-5));
      CHECK(result.scores[3].id == 1);

      request.mode = SPECD_PROCESSED_LOGPROB;
      CHECK(specd_score(f.engine, &request, 1, &result) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("mode = 1"));
      request.mode = SPECD_RAW_LOGIT;
      request.num_top = 5;
      CHECK(specd_score(f.engine, &request, 1, &result) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("max_scores_per_token = 5"));
      for (const uint32_t num_top : {65u, 0x7fffffffu, 0xffffffffu}) {
        request.num_top = num_top;
        CHECK(specd_score(f.engine, &request, 1, &result) == SPECD_ERROR_INVALID_ARGUMENT);
        CHECK(LastErrorHas("is outside 0 .. 64"));
      }
      request.num_top = 0;
      REQUIRE(specd_score(f.engine, &request, 1, &result) == SPECD_OK);
      CHECK(result.scores[1].value == 1.5f);
      const uint32_t outside[] = {6, 8};
      request.rows = outside;
      CHECK(specd_score(f.engine, &request, 1, &result) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("rows[1] = 8"));
    });
  }

  TEST_CASE("draft requests: every number outside its range is refused by name") {
    ForBothModes([](EmbeddedEngine& f) {
      const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
      const int32_t prefix[] = {1, 1, 1};
      specd_draft_request good = Sized<specd_draft_request>();
      good.sequence = s;
      good.mask_row = -1;
      good.prefix = prefix;
      good.num_children = 2;
      specd_draft_children children = Sized<specd_draft_children>();
      CHECK(specd_sample_draft(f.engine, &good, 1, &children) == SPECD_OK);
      const auto refused = [&](auto change, const char* text) {
        specd_draft_request request = good;
        change(&request);
        CHECK(specd_sample_draft(f.engine, &request, 1, &children) == SPECD_ERROR_INVALID_ARGUMENT);
        return LastErrorHas(text);
      };
      CHECK(refused([](specd_draft_request* r) { r->row = 8; }, "row = 8"));
      CHECK(refused([](specd_draft_request* r) { r->mask_row = 8; }, "mask_row = 8"));
      CHECK(refused([](specd_draft_request* r) { r->mask_row = -2; }, "mask_row = -2"));
      CHECK(refused([](specd_draft_request* r) { r->num_prefix = 3; }, "num_prefix = 3"));
      CHECK(refused([](specd_draft_request* r) { r->num_prefix = UINT32_MAX; }, "num_prefix"));
      CHECK(refused([](specd_draft_request* r) { r->num_children = 0; }, "num_children = 0"));
      CHECK(refused([](specd_draft_request* r) { r->num_children = 65; }, "num_children = 65"));
      CHECK(refused([](specd_draft_request* r) { r->sampling = 4; }, "sampling = 4"));
      CHECK(refused(
          [](specd_draft_request* r) {
            r->prefix = nullptr;
            r->num_prefix = 1;
          },
          "prefix is NULL"));
      CHECK(specd_sample_draft(f.engine, &good, 0, &children) == SPECD_ERROR_INVALID_ARGUMENT);
      const uint32_t row = 0;
      const specd_draft part = ChainDraft(s, 0, nullptr, &row);
      REQUIRE(specd_submit(f.engine, 1, &part, 1) == SPECD_OK);
      CHECK(specd_sample_draft(f.engine, &good, 1, &children) == SPECD_ERROR_STATE);
    });
  }

  TEST_CASE("coins: a test puts its own in the place of those of the seed") {
    ForBothModes([](EmbeddedEngine& f) {
      EmbeddedEngine::SetRow(f.target, 0, {0, 0, 0, 0, 0, 0, 0, 0});  // an eighth each
      const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
      std::vector<specd_coin> coins;
      // Position i gets a coin in the middle of id 7 - i's interval.
      for (uint32_t i = 0; i < 8; ++i) {
        coins.push_back({i, 0, 0, SPECD_COIN_SAMPLE, (uint64_t{2} * (7 - i) + 1) << 49});
      }
      REQUIRE(specd_set_coins(f.engine, s, coins.data(), 8) == SPECD_OK);
      for (int32_t i = 0; i < 8; ++i) CHECK(TokensOf(f.Sample(s)) == std::vector<int32_t>{7 - i});
      coins[0].value = uint64_t{1} << 53;
      CHECK(specd_set_coins(f.engine, s, coins.data(), 1) == SPECD_ERROR_INVALID_ARGUMENT);
      coins[0] = {0, 0, 0, 5, 0};
      CHECK(specd_set_coins(f.engine, s, coins.data(), 1) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(specd_set_coins(f.engine, s + 1, nullptr, 0) == SPECD_ERROR_NOT_FOUND);
      CHECK(specd_set_coins(f.engine, s, nullptr, 0) == SPECD_OK);
    });
  }

  TEST_CASE("draft requests: the coin is that of the token's place in the draft") {
    ForBothModes([](EmbeddedEngine& f) {
      EmbeddedEngine::SetRow(f.target, 0, {0, 0, 0, 0, 0, 0, 0, 0});
      EmbeddedEngine::SetRow(f.draft, 0, {0, 0, 0, 0, 0, 0, 0, 0});  // an eighth each
      const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
      (void)f.Sample(s);  // one token is kept: the round base is 1
      // A coin in the middle of an id's interval, for each place and for a node that the caller
      // chose.
      const auto coin = [](uint32_t position, uint32_t node, uint64_t id) {
        return specd_coin{position, 1, node, SPECD_COIN_DRAFT, (2 * id + 1) << 49};
      };
      const specd_coin coins[] = {coin(1, 1, 6), coin(2, 2, 3), coin(1, 9, 4), coin(1, 10, 5)};
      REQUIRE(specd_set_coins(f.engine, s, coins, 4) == SPECD_OK);
      const int32_t prefix[] = {6};
      specd_draft_request request = Sized<specd_draft_request>();
      request.sequence = s;
      request.mask_row = -1;
      request.prefix = prefix;
      request.num_children = 1;
      specd_draft_children drawn = Sized<specd_draft_children>();
      REQUIRE(specd_sample_draft(f.engine, &request, 1, &drawn) == SPECD_OK);
      CHECK(drawn.children[0].id == 6);
      request.num_prefix = 1;
      REQUIRE(specd_sample_draft(f.engine, &request, 1, &drawn) == SPECD_OK);
      CHECK(drawn.children[0].id == 3);
      request.num_prefix = 0;
      request.first_node = 9;
      request.num_children = 2;
      REQUIRE(specd_sample_draft(f.engine, &request, 1, &drawn) == SPECD_OK);
      REQUIRE(drawn.num_children == 2);
      CHECK(drawn.children[0].id == 4);
      CHECK(drawn.children[1].id == 5);
    });
  }
}

}  // namespace
}  // namespace specd
