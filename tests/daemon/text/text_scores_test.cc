// Scores in text events: each token's once, in order, with the event that has the token.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/publisher_fixture.h"
#include "tests/daemon/text/text_streams_fixture.h"

namespace specd {
namespace {

// Two scores of the token at this place of its stream.
std::vector<TokenScore> ScoresOf(uint64_t place) {
  return {{static_cast<TokenId>(place), -static_cast<float>(place), 1},
          {static_cast<TokenId>(100 + place), -0.5f, 2}};
}

struct Fixture : TextStreamsFixture {
  void Scored(uint64_t offset, std::vector<TokenId> ids, TokenId stop_token = kNoToken) {
    RoundTokens tokens = {.ids = std::move(ids), .stop_token = stop_token};
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      for (const TokenScore& score : ScoresOf(offset + i)) tokens.scores.push_back(score);
    }
    Apply({.stream = 1, .offset = offset, .what = std::move(tokens)});
  }

  // The events' scores are those of the tokens from token_offset up to tokens, of all tokens in
  // order, up to `num_tokens`.
  void CheckScores(uint64_t num_tokens) const {
    uint64_t next = 0;
    for (const TextEvent& event : texts) {
      if (event.scores.empty()) continue;
      REQUIRE(event.token_offset == next);
      REQUIRE(event.scores.size() == 2 * (event.tokens - event.token_offset));
      for (size_t i = 0; i < event.scores.size(); ++i) {
        const TokenScore wanted = ScoresOf(next + i / 2)[i % 2];
        REQUIRE(event.scores[i].id == wanted.id);
        REQUIRE(event.scores[i].value == wanted.value);
        REQUIRE(event.scores[i].rank == wanted.rank);
        // A letter, or nothing for an id beyond the vocabulary.
        REQUIRE(event.score_bytes.size() == event.scores.size());
        const bool is_letter = wanted.id < 26;
        REQUIRE(event.score_bytes[i] ==
                (is_letter ? std::string(1, static_cast<char>('a' + wanted.id)) : ""));
      }
      next = event.tokens;
    }
    CHECK(next == num_tokens);
  }
};

TEST_SUITE("unit") {
  TEST_CASE("scores come with their tokens, while the text is held back") {
    Fixture f;
    f.Open(1, {"cde"});
    f.Scored(0, {0, 1});   // "ab"
    f.Scored(2, {2});      // "c" may begin the stop string
    f.Scored(3, {3});      // "d" too
    f.Scored(4, {27});     // two bytes of three, and "cd" is text
    f.Scored(5, {28, 0});  // the euro sign and "a"
    REQUIRE(f.texts.size() == 6);
    CHECK(f.texts[2].text.empty());
    CHECK(f.texts[2].spans.empty());
    CHECK(f.texts[3].text.empty());
    CHECK(f.texts[3].byte_offset == 2);
    CHECK(f.Text(1) ==
          "abcd\xe2\x82\xac"
          "a");
    f.CheckScores(7);
    f.End(1, 7, SPECD_FINISH_LENGTH);
    CHECK(f.texts.back().scores.empty());
  }

  TEST_CASE("a stream without scores has no event without text, as before") {
    Fixture f;
    f.Open(1, {"cde"});
    f.Tokens(1, 0, {2, 3});
    CHECK(f.texts.size() == 1);
    f.Tokens(1, 2, {0});
    CHECK(f.texts.size() == 2);
    CHECK(f.texts[1].scores.empty());
  }

  TEST_CASE("the end at a stop string has the scores of the tokens that are kept, and no later") {
    Fixture f;
    f.Open(1, {"cd"});
    f.Scored(0, {0, 2});
    f.Scored(2, {3, 4, 5});
    REQUIRE(f.texts.back().kind == TextEventKind::kEnd);
    CHECK(f.texts.back().stop_string == "cd");
    CHECK(f.texts.back().tokens == 3);
    CHECK(f.Text(1) == "a");
    f.CheckScores(3);
  }

  TEST_CASE(
      "a token whose text is withheld has scores, and tokens that come twice have them once") {
    Fixture f;
    f.Open(1);
    f.Scored(0, {0, 1});
    f.Scored(0, {0, 1, 2});  // two of them again
    f.Scored(0, {0, 1});     // nothing new
    f.Scored(3, {Fixture::kEos}, Fixture::kEos);
    CHECK(f.Text(1) == "abc");
    CHECK(f.texts.size() == 4);
    f.CheckScores(4);
  }

  TEST_CASE("scores of many tokens come in messages of a bounded size, and all of them come") {
    PublisherFixture f;
    SessionOptions options;
    options.identity = {1, 77};
    options.limits = SessionFixture::kLimits;
    options.limits.max_scores = 129;
    options.profile = &f.session.profile;
    options.clock = &f.session.clock;
    options.names = &f.session.names;
    options.publish_events = true;
    auto owned = std::make_unique<ScriptedBackend>();
    f.session.backend = owned.get();
    f.session.Attach(options, std::move(owned));
    f.list.Add(f.session.session);
    SequenceParams params;
    params.max_tokens = 1'000'000;
    params.logprobs = 64;
    params.logprob_token_ids.assign(64, 1);
    auto info = f.session.session->OpenSequences("r", params);
    REQUIRE(info.ok());
    constexpr size_t kRounds = 300;
    for (size_t round = 0; round < kRounds; ++round) {
      ScriptedOutcome outcome = Confirm(3, {1, 2, 3, 5});
      outcome.scores.assign(4, std::vector<TokenScore>(129, {1 << 20, -0.5f, 1 << 20}));
      outcome.scores[3][128].rank = static_cast<int32_t>(round);
      f.RunRound(info->front().handle, std::move(outcome));
    }
    f.publisher->Step();
    size_t num_messages = 0;
    size_t round = 0;
    for (; round < kRounds; ++num_messages) {
      const TokenBatch batch = f.Receive();
      std::string bytes;
      AppendTokenBatch(batch, &bytes);
      CHECK(bytes.size() < (size_t{1} << 20) + 65536);
      for (const TokenEvent& event : batch.events) {
        if (event.tokens() == nullptr) continue;
        REQUIRE(event.tokens()->scores.size() == 4 * 129);
        REQUIRE(event.tokens()->scores.back().rank == static_cast<int32_t>(round++));
      }
    }
    // 300 events of 4 x 129 scores of 16 bytes are 2.4 MB.
    CHECK(num_messages == 3);
  }
}

}  // namespace
}  // namespace specd
