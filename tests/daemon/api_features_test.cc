// What a round of the C interface can carry beyond logits and one-hot drafts, over the real
// backend. Expected numbers are worked out here, in double, from the definitions of docs.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/daemon/embedded_engine.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::TokensOf;

// ln softmax(logits)[id].
double LogProb(const std::vector<double>& logits, size_t id) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return logits[id] - std::log(sum);
}

TEST_SUITE("unit") {
  TEST_CASE("penalties see the prompt, the outputs given at the opening, and what was kept since") {
    EmbeddedEngine f;
    EmbeddedEngine::SetRow(f.target, 0, {2.0f, 1.75f, 1.5f, 1.25f});
    const int32_t prompt[] = {0};
    const int32_t outputs[] = {1};
    specd_params params = EmbeddedEngine::Params();
    params.repetition_penalty = 2;
    params.prompt_ids = {prompt, 1};
    params.output_ids = {outputs, 1};
    const specd_sequence s = f.Open(params);
    // 0 and 1 are halved to 1.0 and 0.875: 2 is best; then 2 is halved too, and 3 is.
    specd_result result = f.Sample(s);
    CHECK(TokensOf(result) == std::vector<int32_t>{2});
    CHECK(result.total_kept == 2);  // the one given counts
    CHECK(TokensOf(f.Sample(s)) == std::vector<int32_t>{3});
    CHECK(TokensOf(f.Sample(s)) == std::vector<int32_t>{0});  // all are halved: 1.0 is best
  }

  TEST_CASE("penalties see the draft prefix of each place") {
    EmbeddedEngine f;
    for (uint32_t row = 0; row < 3; ++row)
      EmbeddedEngine::SetRow(f.target, row, {2.0f, 1.5f, 1.0f});
    specd_params params = EmbeddedEngine::Params();
    params.presence_penalty = 1.25;
    const specd_sequence s = f.Open(params);
    // 0; after it 2.0 - 1.25 < 1.5: 1; after both 0.75, 0.25, 1.0: 2.
    const int32_t drafts[] = {0, 1};
    const specd_result result = f.Round(ChainDraft(s, 2, drafts, f.rows));
    CHECK(result.num_accepted == 2);
    CHECK(TokensOf(result) == std::vector<int32_t>{0, 1, 2});
  }

  TEST_CASE("logprobs: the token, the best ones and the chosen ones, for every kept token") {
    EmbeddedEngine f;
    const std::vector<double> logits = {0.5, 2.0, -1.0, 1.5, -10, -10, -10, -10};
    EmbeddedEngine::SetRow(f.target, 0, {0.5f, 2.0f, -1.0f, 1.5f});
    EmbeddedEngine::SetRow(f.target, 1, {0.5f, 2.0f, -1.0f, 1.5f});
    const int32_t chosen[] = {2, 7};
    specd_params params = EmbeddedEngine::Params();
    params.logprobs = 2;
    params.logprob_token_ids = {chosen, 2};
    const specd_sequence s = f.Open(params);
    const int32_t drafts[] = {1};
    const specd_result result = f.Round(ChainDraft(s, 1, drafts, f.rows));
    REQUIRE(result.num_kept == 2);
    REQUIRE(result.scores_per_token == 5);
    const int32_t ids[] = {1, 1, 3, 2, 7};
    const int32_t ranks[] = {1, 1, 2, 4, 5};  // 4 .. 7 tie: none of them is above the other
    for (int token = 0; token < 2; ++token) {
      for (int i = 0; i < 5; ++i) {
        const specd_token_score& score = result.scores[token * 5 + i];
        CHECK(score.id == ids[i]);
        CHECK(score.rank == ranks[i]);
        CHECK(score.value == doctest::Approx(LogProb(logits, ids[i])).epsilon(1e-5));
      }
    }
  }

  TEST_CASE("logprobs: more than the engine said it would ask for are refused by name") {
    EmbeddedEngine f;
    specd_params params = EmbeddedEngine::Params();
    params.logprobs = 5;  // and the token's own: 6 of 5
    specd_sequence_info info;
    CHECK(specd_open_sequence(f.engine, "r", &params, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(EmbeddedEngine::LastErrorHas("max_scores_per_token = 5"));
    params.logprobs = 4;
    CHECK(specd_open_sequence(f.engine, "r", &params, &info) == SPECD_OK);
    params.logprobs = 65;
    CHECK(specd_open_sequence(f.engine, "s", &params, &info) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(EmbeddedEngine::LastErrorHas("-1 .. 64"));
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
    // A masked draft token is rejected like any other that has no probability.
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
    specd_draft padding = {};
    padding.sequence = s;
    padding.flags = SPECD_DISCARD;
    const specd_result result = f.Round(padding);
    CHECK(result.status == SPECD_STATUS_OK);
    CHECK(result.num_kept == 0);
    CHECK(result.total_kept == 0);
    CHECK(f.Stats().discarded == 1);
    CHECK(f.Sample(s).total_kept == 1);
    padding.flags = 2;
    CHECK(specd_submit(f.engine, 1, &padding, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(EmbeddedEngine::LastErrorHas("drafts[0].flags = 2"));
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
    CHECK(refused.detail == SPECD_DETAIL_REFUSED);
    const int32_t outside[] = {4, 5, 8, 1};
    part.sequence = greedy;
    part.target_argmax = outside;
    CHECK(f.Round(part).detail == SPECD_DETAIL_ARGMAX);
    CHECK(f.Stats().invalid_records == 2);
    part.target_rows = f.rows;
    CHECK(specd_submit(f.engine, 1, &part, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(EmbeddedEngine::LastErrorHas("both given"));
  }

  TEST_CASE("block: drafts that specd drew from the target's own rows are all accepted") {
    // Where q = p every prefix is accepted for certain, whatever the coins; the side channel alone
    // says so, because the draft rows it came from are overwritten.
    EmbeddedEngine f;
    for (uint32_t row = 0; row < 4; ++row) {
      EmbeddedEngine::SetRow(f.target, row, {0.1f, 0.7f, -0.3f, 1.1f, 0.2f, -1.0f, 0.5f, 0.9f});
      EmbeddedEngine::SetRow(f.draft, row, {0.1f, 0.7f, -0.3f, 1.1f, 0.2f, -1.0f, 0.5f, 0.9f});
    }
    specd_params params = EmbeddedEngine::Params(0.75);
    params.verify = SPECD_VERIFY_BLOCK;
    params.draft_temperature = 0.75;
    const specd_sequence s = f.Open(params);
    for (int round = 0; round < 5; ++round) {
      int32_t tokens[3];
      float weights[3];
      double masses[3];
      for (uint32_t depth = 0; depth < 3; ++depth) {
        specd_draft_request request = {};
        request.sequence = s;
        request.row = depth;
        request.mask_row = -1;
        request.prefix = tokens;
        request.num_prefix = depth;
        request.num_children = 1;
        specd_draft_children children;
        REQUIRE(specd_sample_draft(f.engine, &request, 1, &children) == SPECD_OK);
        CHECK(children.status == SPECD_STATUS_OK);
        REQUIRE(children.num_children == 1);
        tokens[depth] = children.children[0].id;
        weights[depth] = children.children[0].weight;
        masses[depth] = children.children[0].mass;
        CHECK(children.children[0].count == 1);
        const double q = weights[depth] / masses[depth];
        const std::vector<double> scaled = {0.1 / 0.75, 0.7 / 0.75,  -0.3 / 0.75, 1.1 / 0.75,
                                            0.2 / 0.75, -1.0 / 0.75, 0.5 / 0.75,  0.9 / 0.75};
        CHECK(q == doctest::Approx(std::exp(LogProb(scaled, tokens[depth]))).epsilon(1e-5));
      }
      const uint8_t kinds[] = {SPECD_SAMPLED, SPECD_SAMPLED, SPECD_SAMPLED};
      specd_draft part = ChainDraft(s, 3, tokens, f.rows);
      part.kinds = kinds;
      part.draft_rows = f.rows;
      part.draft_weights = weights;
      part.draft_masses = masses;
      const specd_result result = f.Round(part);
      CHECK(result.num_accepted == 3);
      CHECK(result.num_kept == 4);
    }
    CHECK(f.Stats().accepted == 15);
    CHECK(f.Stats().drafted == 15);
    CHECK(f.Stats().rounds == 5);
  }

  TEST_CASE("scores of given ids: raw logprobs of each id in its row, without a sequence") {
    EmbeddedEngine f;
    const std::vector<double> first = {0.5, 2.0, -1.0, 1.5, 0, 0, 0, 0};
    const std::vector<double> second = {3.0, 2.0, 1.0, 0.0, 0, 0, 0, 0};
    EmbeddedEngine::SetRow(f.target, 2, {0.5f, 2.0f, -1.0f, 1.5f, 0, 0, 0, 0});
    EmbeddedEngine::SetRow(f.target, 6, {3.0f, 2.0f, 1.0f, 0.0f, 0, 0, 0, 0});
    const uint32_t rows[] = {6, 2};
    const int32_t ids[] = {2, 3};
    specd_score_request request = {};
    request.rows = rows;
    request.ids = ids;
    request.num_ids = 2;
    request.num_top = 1;
    specd_score_result result;
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
    CHECK(EmbeddedEngine::LastErrorHas("mode = 1"));
    request.mode = SPECD_RAW_LOGIT;
    request.num_top = 5;
    CHECK(specd_score(f.engine, &request, 1, &result) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(EmbeddedEngine::LastErrorHas("max_scores_per_token = 5"));
    for (const uint32_t num_top : {65u, 0x7fffffffu, 0xffffffffu}) {
      request.num_top = num_top;
      CHECK(specd_score(f.engine, &request, 1, &result) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(EmbeddedEngine::LastErrorHas("is outside 0 .. 64"));
    }
    request.num_top = 0;
    REQUIRE(specd_score(f.engine, &request, 1, &result) == SPECD_OK);
    CHECK(result.scores[1].value == 1.5f);
    const uint32_t outside[] = {6, 8};
    request.rows = outside;
    CHECK(specd_score(f.engine, &request, 1, &result) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(EmbeddedEngine::LastErrorHas("rows[1] = 8"));
  }

  TEST_CASE("draft requests: every number outside its range is refused by name") {
    EmbeddedEngine f;
    const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
    const int32_t prefix[] = {1, 1, 1};
    specd_draft_request good = {};
    good.sequence = s;
    good.mask_row = -1;
    good.prefix = prefix;
    good.num_children = 2;
    specd_draft_children children;
    CHECK(specd_sample_draft(f.engine, &good, 1, &children) == SPECD_OK);
    const auto refused = [&](auto change, const char* text) {
      specd_draft_request request = good;
      change(&request);
      CHECK(specd_sample_draft(f.engine, &request, 1, &children) == SPECD_ERROR_INVALID_ARGUMENT);
      return EmbeddedEngine::LastErrorHas(text);
    };
    CHECK(refused([](specd_draft_request* r) { r->row = 8; }, "row = 8"));
    CHECK(refused([](specd_draft_request* r) { r->mask_row = 8; }, "mask_row = 8"));
    CHECK(refused([](specd_draft_request* r) { r->mask_row = -2; }, "mask_row = -2"));
    CHECK(refused([](specd_draft_request* r) { r->num_prefix = 3; }, "num_prefix = 3"));
    CHECK(refused([](specd_draft_request* r) { r->num_prefix = UINT32_MAX; }, "num_prefix"));
    CHECK(refused([](specd_draft_request* r) { r->num_children = 0; }, "num_children = 0"));
    CHECK(refused([](specd_draft_request* r) { r->num_children = 65; }, "num_children = 65"));
    CHECK(refused([](specd_draft_request* r) { r->sampling = 3; }, "sampling = 3"));
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
  }

  TEST_CASE("coins: a test puts its own in the place of those of the seed") {
    EmbeddedEngine f;
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
  }

  TEST_CASE("draft requests: the coin is that of the token's place in the draft") {
    EmbeddedEngine f;
    EmbeddedEngine::SetRow(f.target, 0, {0, 0, 0, 0, 0, 0, 0, 0});
    EmbeddedEngine::SetRow(f.draft, 0, {0, 0, 0, 0, 0, 0, 0, 0});  // an eighth each
    const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
    (void)f.Sample(s);  // one token is kept: the round base is 1
    // A coin in the middle of an id's interval, for each place and for a node of a caller's own.
    const auto coin = [](uint32_t position, uint32_t node, uint64_t id) {
      return specd_coin{position, 1, node, SPECD_COIN_DRAFT, (2 * id + 1) << 49};
    };
    const specd_coin coins[] = {coin(1, 1, 6), coin(2, 2, 3), coin(1, 9, 4), coin(1, 10, 5)};
    REQUIRE(specd_set_coins(f.engine, s, coins, 4) == SPECD_OK);
    const int32_t prefix[] = {6};
    specd_draft_request request = {};
    request.sequence = s;
    request.mask_row = -1;
    request.prefix = prefix;
    request.num_children = 1;
    specd_draft_children drawn;
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
  }

  TEST_CASE("final probabilities are sampled from as they are; what would change them is refused") {
    EmbeddedEngine f;
    EmbeddedEngine::SetRow(f.target, 0, {0, 0, 1, 0, 0, 0, 0, 0});
    REQUIRE(f.Bind(SPECD_TARGET_ROWS, 1, SPECD_FINAL_PROBABILITIES) == SPECD_OK);
    const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
    CHECK(TokensOf(f.Sample(s)) == std::vector<int32_t>{2});
    specd_params params = EmbeddedEngine::Params(1.0);
    params.top_p = 0.5;
    specd_sequence_info info;
    CHECK(specd_open_sequence(f.engine, "s", &params, &info) < 0);
    CHECK(EmbeddedEngine::LastErrorHas("top_p"));
    EmbeddedEngine::SetRow(f.target, 0, {0, 0, 0.5f, 0, 0, 0, 0, 0});
    CHECK(f.Sample(s).status == SPECD_STATUS_BAD_DISTRIBUTION);
    CHECK(f.Stats().bad_target_rows == 1);
  }
}

}  // namespace
}  // namespace specd
