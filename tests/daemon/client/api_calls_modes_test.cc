// Calls of the C interface, embedded and through a daemon's rings: the same answers, the same
// refusals, and the errors without an answer.
#include <doctest/doctest.h>

#include <cstring>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/daemon/server/server_fixture.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::EngineHost;
using test::ForBothModes;
using test::TokensOf;

// The engine's answer to a call: its code, and the text of an error. The owner in a handle is left
// out, because it differs between engines.
std::string Said(int code) {
  static const std::regex handle("sequence (0x[0-9a-f]+?)[0-9a-f]{4}([0-9a-f]{4}) ");
  if (code >= 0) return std::to_string(code);
  return std::to_string(code) + ": " +
         std::regex_replace(std::string(specd_last_error()), handle, "sequence $1____$2 ");
}

specd_draft_request DraftRequest(specd_sequence sequence) {
  specd_draft_request request = Sized<specd_draft_request>();
  request.sequence = sequence;
  request.mask_row = -1;
  request.num_children = 1;
  return request;
}

struct Answers {
  std::vector<specd_draft_child> children;
  std::vector<specd_token_score> scores;
};

// Draft tokens of every kind, and scores, from rows of this test.
Answers Ask(EmbeddedEngine& f) {
  Answers answers;
  specd_params params = EmbeddedEngine::Params(0.9);
  params.draft_edits = 1;
  params.frequency_penalty = 0.5;
  params.draft_top_k = 6;
  for (uint32_t row = 0; row < 4; ++row) {
    const float x = static_cast<float>(row) * 0.3f;
    EmbeddedEngine::SetRow(f.target, row, {x, 0.2f, -x, 1.0f, 0.5f, 0.1f, 2 * x, -1.0f});
    EmbeddedEngine::SetRow(f.draft, row, {0.4f, -x, 1.5f, x, 0.25f, 0.0f, 0.9f, -0.5f});
  }
  f.mask[1] = 0xb7;
  const specd_sequence a = f.Open(params, "a");
  const specd_sequence b = f.Open(params, "b");
  const int32_t prefix[] = {2, 6};
  std::vector<specd_draft_request> requests(4, DraftRequest(a));
  requests[1].sequence = b;
  requests[1].row = 2;
  requests[1].prefix = prefix;
  requests[1].num_prefix = 2;
  requests[1].num_children = 64;
  requests[2].sampling = SPECD_WITHOUT_REPLACEMENT;
  requests[2].num_children = 5;
  requests[2].first_node = 4;
  requests[3].sampling = SPECD_TOP_K_CHILDREN;
  requests[3].num_children = 8;
  requests[3].mask_row = 1;
  std::vector<specd_draft_children> drawn(4, Sized<specd_draft_children>());
  const int drew = specd_sample_draft(f.engine, requests.data(), 4, drawn.data());
  INFO(specd_last_error());
  REQUIRE(drew == SPECD_OK);
  for (const specd_draft_children& part : drawn) {
    REQUIRE(part.status == SPECD_STATUS_OK);
    answers.children.insert(answers.children.end(), part.children,
                            part.children + part.num_children);
  }
  CHECK(drawn[1].sequence == b);
  CHECK(drawn[2].num_children == 5);

  const uint32_t rows[] = {3, 1, 0, 2};
  const int32_t ids[] = {7, 0, 3, 3};
  const int32_t chosen[] = {1};
  std::vector<specd_score_request> asked(3, Sized<specd_score_request>());
  for (uint32_t i = 0; i < 3; ++i) {
    asked[i].rows = rows + i;
    asked[i].ids = ids + i;
    asked[i].num_ids = i == 0 ? 4 : 1;
    asked[i].num_top = i;
    asked[i].chosen_ids = {chosen, i == 2 ? 1u : 0u};
  }
  std::vector<specd_score_result> scored(3, Sized<specd_score_result>());
  REQUIRE(specd_score(f.engine, asked.data(), 3, scored.data()) == SPECD_OK);
  for (const specd_score_result& part : scored) {
    REQUIRE(part.status == SPECD_STATUS_OK);
    answers.scores.insert(answers.scores.end(), part.scores,
                          part.scores + part.num_scored * part.scores_per_token);
  }
  CHECK(scored[0].num_scored == 4);
  CHECK(scored[2].scores_per_token == 4);
  return answers;
}

// Calls that may be refused, and the engine's answer to each.
std::vector<std::string> Refusals(EmbeddedEngine& f) {
  const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
  std::vector<std::string> texts;
  const auto drafts = [&](auto change, uint32_t count = 1) {
    std::vector<specd_draft_request> requests(8, DraftRequest(s));
    change(&requests[count == 0 ? 0 : count - 1]);
    std::vector<specd_draft_children> children(8, Sized<specd_draft_children>());
    texts.push_back(Said(specd_sample_draft(f.engine, requests.data(), count, children.data())));
  };
  const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 0};
  const uint32_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto scores = [&](auto change) {
    specd_score_request request = Sized<specd_score_request>();
    request.rows = rows;
    request.ids = ids;
    request.num_ids = 2;
    change(&request);
    specd_score_result result = Sized<specd_score_result>();
    texts.push_back(Said(specd_score(f.engine, &request, 1, &result)));
  };
  drafts([](auto*) {});
  drafts([](auto*) {}, 0);
  drafts([](auto*) {}, 5);
  drafts([](auto* r) { r->row = 8; }, 3);
  drafts([](auto* r) { r->num_children = 65; });
  drafts([](auto* r) { r->num_prefix = UINT32_MAX; });
  drafts([&](auto* r) { r->num_prefix = UINT32_MAX, r->prefix = ids; });
  drafts([](auto* r) { r->sampling = UINT32_MAX; });
  drafts([](auto* r) { r->mask_row = 1; }, 4);  // without draft_edits
  scores([](auto*) {});
  scores([](auto* r) { r->num_ids = 0; });
  scores([](auto* r) { r->num_ids = 5; });
  scores([](auto* r) { r->num_ids = UINT32_MAX; });
  scores([&](auto* r) { r->rows = rows + 7; });
  scores([&](auto* r) { r->mode = SPECD_PROCESSED_LOGIT; });
  scores([&](auto* r) { r->mode = UINT32_MAX; });
  scores([&](auto* r) { r->num_top = 5; });
  scores([&](auto* r) { r->chosen_ids = {ids, 65}; });
  scores([&](auto* r) { r->struct_size = 8; });
  const int32_t outside[] = {8, -1};
  scores([&](auto* r) { r->ids = outside; });
  scores([&](auto* r) { r->chosen_ids = {outside, 2}; });
  const specd_coin coins[] = {{0, 0, 0, SPECD_COIN_SAMPLE, uint64_t{1} << 53}, {0, 0, 0, 0, 0}};
  texts.push_back(Said(specd_set_coins(f.engine, s, coins, 1)));
  texts.push_back(Said(specd_set_coins(f.engine, s, coins + 1, 1)));
  texts.push_back(Said(specd_set_coins(f.engine, s + 1, nullptr, 0)));
  const std::vector<specd_coin> many(4097);
  texts.push_back(Said(specd_set_coins(f.engine, s, many.data(), 4097)));
  const specd_draft part = ChainDraft(s, 0, nullptr, rows);
  REQUIRE(specd_submit(f.engine, 1, &part, 1) == SPECD_OK);
  drafts([](auto*) {});
  scores([](auto*) {});
  texts.push_back(Said(specd_set_coins(f.engine, s, nullptr, 0)));
  return texts;
}

TEST_SUITE("unit") {
  TEST_CASE("calls: an attached engine gets what an embedded one gets, bit for bit") {
    const EngineHost host;
    EmbeddedEngine embedded;
    EmbeddedEngine attached(host.uri);
    const Answers here = Ask(embedded);
    const Answers there = Ask(attached);
    REQUIRE(here.children.size() == there.children.size());
    CHECK(std::memcmp(here.children.data(), there.children.data(),
                      here.children.size() * sizeof(specd_draft_child)) == 0);
    REQUIRE(here.scores.size() == there.scores.size());
    CHECK(std::memcmp(here.scores.data(), there.scores.data(),
                      here.scores.size() * sizeof(specd_token_score)) == 0);
  }

  TEST_CASE("calls: what is refused is refused with the same words in both modes") {
    const EngineHost host;
    EmbeddedEngine embedded;
    EmbeddedEngine attached(host.uri);
    const std::vector<std::string> here = Refusals(embedded);
    const std::vector<std::string> there = Refusals(attached);
    REQUIRE(here.size() == there.size());
    for (size_t i = 0; i < here.size(); ++i) CHECK(here[i] == there[i]);
    CHECK(here[0] == "0");
    CHECK(here[8] ==
          "-1: requests[3]: mask_row was given, but the sequence was opened without draft_edits");
    CHECK(here[9] == "0");
    for (size_t i = 25; i < 28; ++i) {
      CHECK(here[i] == "-8: 1 rounds are in flight; poll for their completions first");
    }
  }

  TEST_CASE("calls: the results of the last round stand until the next poll") {
    ForBothModes([](EmbeddedEngine& f) {
      EmbeddedEngine::SetRow(f.target, 0, {0, 0, 0, 9});
      EmbeddedEngine::SetRow(f.target, 1, {0, 5});
      specd_params params = EmbeddedEngine::Params();
      params.logprobs = 1;
      const specd_sequence s = f.Open(params);
      const specd_result result = f.Sample(s);
      const uint32_t rows[] = {1, 1, 1, 1};
      const int32_t ids[] = {5, 6, 7, 4};
      specd_score_request request = Sized<specd_score_request>();
      request.rows = rows;
      request.ids = ids;
      request.num_ids = 4;
      request.num_top = 4;
      specd_score_result scored = Sized<specd_score_result>();
      REQUIRE(specd_score(f.engine, &request, 1, &scored) == SPECD_OK);
      specd_draft_request draft = DraftRequest(s);
      draft.num_children = 64;
      specd_draft_children drawn = Sized<specd_draft_children>();
      REQUIRE(specd_sample_draft(f.engine, &draft, 1, &drawn) == SPECD_OK);
      CHECK(TokensOf(result) == std::vector<int32_t>{3});
      CHECK(result.scores[0].id == 3);
      CHECK(result.scores[1].rank == 1);
    });
  }

  TEST_CASE("calls: a sequence that is closed gives the room of its coins back") {
    ForBothModes([](EmbeddedEngine& f) {
      // A session has room for 2^20 = 256 times 4096 coins. Coins that were replaced or closed do
      // not count.
      const std::vector<specd_coin> coins(4096, {9, 9, 9, SPECD_COIN_DRAFT, 1});
      for (int i = 0; i < 300; ++i) {
        const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
        REQUIRE(specd_set_coins(f.engine, s, coins.data(), 4096) == SPECD_OK);
        REQUIRE(specd_set_coins(f.engine, s, coins.data(), 4096) == SPECD_OK);
        REQUIRE(specd_close_sequence(f.engine, s) == SPECD_OK);
      }
    });
  }

  TEST_CASE("calls: a call that was given up is answered late, and nobody takes it for a round") {
    test::ServerFixture f;  // steps by hand: no thread answers
    specd_options options = test::ServerOptions();
    options.timeout_ms = 2000;  // an attach must come within it on a loaded machine
    const test::EnginePtr engine = test::OpenBoundEngine(f.uri, options);
    const specd_sequence s = f.session.Open("r");
    specd_draft_request request = DraftRequest(s);
    specd_draft_children children = Sized<specd_draft_children>();
    CHECK(specd_set_coins(engine.get(), s, nullptr, 0) == SPECD_ERROR_TIMEOUT);
    CHECK(LastErrorHas("did not answer within 2000 ms"));
    // The call is in the request area: no other call goes there before it has been read.
    CHECK(specd_sample_draft(engine.get(), &request, 1, &children) == SPECD_ERROR_STATE);
    CHECK(LastErrorHas("given up"));
    const uint32_t row = 0;
    const specd_draft part = ChainDraft(s, 0, nullptr, &row);
    CHECK(specd_submit(engine.get(), 1, &part, 1) == SPECD_FULL);
    REQUIRE(StepSession(f.session.session));
    specd_completion done = SizedCompletion();
    CHECK(specd_poll(engine.get(), &done, 0) == SPECD_EMPTY);
    f.session.backend->script = {Confirm(0, {5})};
    REQUIRE(specd_submit(engine.get(), 2, &part, 1) == SPECD_OK);
    REQUIRE(StepSession(f.session.session));
    REQUIRE(specd_poll(engine.get(), &done, 0) == SPECD_OK);
    CHECK(done.round_id == 2);
  }

  TEST_CASE("calls: a daemon that ends in a call is gone, not busy: nobody tries again for ever") {
    test::ServerFixture f;
    specd_options options = test::ServerOptions();
    options.timeout_ms = 60000;  // only bounds how long a broken library takes to fail
    const test::EnginePtr engine = test::OpenEngine(f.uri, options);
    const specd_sequence s = f.session.Open("r");
    std::thread daemon([&f] {
      while (!f.session.session->channel().HasSubmission()) std::this_thread::yield();
      f.session.session->EndAll();
    });
    specd_draft_request request = DraftRequest(s);
    specd_draft_children children = Sized<specd_draft_children>();
    // The daemon's end is reported as "stopping" or as a hang-up.
    const auto is_over = [](int code) {
      return code == SPECD_ERROR_SHUTDOWN || code == SPECD_ERROR_DISCONNECTED;
    };
    CHECK(is_over(specd_sample_draft(engine.get(), &request, 1, &children)));
    daemon.join();
    CHECK(is_over(specd_sample_draft(engine.get(), &request, 1, &children)));
    CHECK(is_over(specd_set_coins(engine.get(), s, nullptr, 0)));
  }
}

}  // namespace
}  // namespace specd
