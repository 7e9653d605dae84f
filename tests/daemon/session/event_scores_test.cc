// Scores on their way from a round to the publisher: all of them, exactly, and in bounded room.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "daemon/session/event_queue.h"
#include "daemon/session/memory_cost.h"
#include "daemon/session/session.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

// A score that no other token of a test has.
TokenScore Numbered(size_t number) {
  return {static_cast<TokenId>(number), -static_cast<float>(number) / 8,
          static_cast<int32_t>(number % 7)};
}

void CheckNumbered(const std::vector<TokenScore>& scores, size_t first, size_t count) {
  REQUIRE(scores.size() == count);
  for (size_t i = 0; i < count; ++i) {
    REQUIRE(scores[i].id == Numbered(first + i).id);
    REQUIRE(scores[i].value == Numbered(first + i).value);
    REQUIRE(scores[i].rank == Numbered(first + i).rank);
  }
}

SequenceHandle OpenWithScores(SessionFixture* f, const std::string& name, ScoreMode mode) {
  SequenceParams params;
  params.max_tokens = 1'000'000;
  params.logprobs = 3;
  params.logprobs_mode = mode;
  auto info = f->session->OpenSequences(name, params);
  REQUIRE(info.ok());
  return info->front().handle;
}

// A round of four tokens with four scores each. The numbers of the scores begin at `first`.
ScriptedOutcome Scored(size_t first) {
  ScriptedOutcome outcome = Confirm(3, {1, 2, 3, 5});
  for (size_t i = 0; i < 4; ++i) {
    outcome.scores.push_back({});
    for (size_t k = 0; k < 4; ++k) outcome.scores.back().push_back(Numbered(first + 4 * i + k));
  }
  return outcome;
}

TEST_SUITE("unit") {
  TEST_CASE("a queue gives each event its own scores, over many laps of its rings") {
    EventQueue queue({.events = 4, .tokens = 8, .scores = 13});
    RoundTokens pushed;
    TokenEvent popped;
    SequenceHandle sequence = 0;
    size_t next_pushed = 0;
    size_t next_popped = 0;
    for (size_t lap = 0; lap < 200; ++lap) {
      for (const size_t num_scores : {lap % 3, size_t{0}, 2 * (lap % 4)}) {
        pushed.ids.assign(2, static_cast<TokenId>(num_scores));
        pushed.scores.clear();
        for (size_t i = 0; i < num_scores; ++i) pushed.scores.push_back(Numbered(next_pushed++));
        REQUIRE(queue.HasRoom({.events = 1, .tokens = 2, .scores = num_scores}));
        queue.Push({.sequence = 7}, pushed.ids, pushed.scores);
      }
      while (queue.Pop(&sequence, &popped)) {
        const RoundTokens& tokens = *popped.tokens();
        CheckNumbered(tokens.scores, next_popped, static_cast<size_t>(tokens.ids[0]));
        next_popped += tokens.scores.size();
      }
    }
    CHECK(next_popped == next_pushed);
    CHECK(next_pushed > 500);
  }

  TEST_CASE("a queue has room for as many scores as it was made for, and not for one more") {
    EventQueue queue({.events = 4, .tokens = 8, .scores = 12});
    const std::vector<TokenId> ids = {1};
    queue.Push({.sequence = 7}, ids, std::vector<TokenScore>(5, Numbered(0)));
    CHECK(queue.HasRoom({.events = 1, .tokens = 1, .scores = 7}));
    CHECK_FALSE(queue.HasRoom({.events = 1, .tokens = 1, .scores = 8}));
    SequenceHandle sequence = 0;
    TokenEvent event;
    REQUIRE(queue.Pop(&sequence, &event));
    CHECK(queue.HasRoom({.events = 4, .tokens = 8, .scores = 12}));
    // A session without scores takes no room for them.
    CHECK(EventQueue({.events = 4, .tokens = 8}).HasRoom({.events = 4, .tokens = 8}));
  }

  TEST_CASE("an event has the scores of its round's result, in the modes of logits too") {
    SessionFixture f;
    for (const ScoreMode mode :
         {ScoreMode::kRawLogprob, ScoreMode::kProcessedLogit, ScoreMode::kUnfilteredLogprob}) {
      const SequenceHandle scored = OpenWithScores(&f, "scored", mode);
      const SequenceHandle plain = f.Open("plain");
      f.Events();
      f.backend->script = {Scored(100), Confirm(1, {1, 4})};
      REQUIRE(f.Submit({scored, plain}) == PushResult::kOk);
      REQUIRE(StepSession(f.session));
      CompletionView done;
      REQUIRE(f.engine->Poll(&done));
      REQUIRE(done.results[0].scores_per_token == 4);
      const std::vector<TokenEvent> events = f.Events();
      REQUIRE(events.size() == 2);
      CheckNumbered(events[0].tokens()->scores, 100, 16);
      CHECK(events[0].tokens()->ids.size() == 4);
      CHECK(events[0].tokens()->logprobs.empty() == (mode == ScoreMode::kProcessedLogit));
      CHECK(events[1].tokens()->ids.size() == 2);
      CHECK(events[1].tokens()->scores.empty());
      for (const SequenceHandle sequence : {scored, plain}) {
        CHECK(f.session->CloseSequence(sequence).ok());
      }
      f.Events();
    }
  }

  TEST_CASE("scores that wait for the publisher slow the engine, and none is lost") {
    SessionFixture f;
    const SequenceHandle s = OpenWithScores(&f, "r", ScoreMode::kRawLogprob);
    size_t taken = 0;
    for (;; ++taken) {
      f.backend->script = {Scored(16 * taken)};
      if (f.Submit({s}) == PushResult::kFull) break;
      if (!StepSession(f.session)) break;
      CompletionView done;
      REQUIRE(f.engine->Poll(&done));
      REQUIRE(taken < 100'000);
    }
    // Sixteen scores for each round that was taken. The next one might bring 4 x 4 x 4.
    const size_t room = EventCapacityOf(SessionFixture::kLimits).scores;
    CHECK(room - 16 * taken < 64);
    CHECK(room - 16 * (taken - 1) >= 64);
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == taken + 1);
    for (size_t i = 0; i < taken; ++i) CheckNumbered(events[1 + i].tokens()->scores, 16 * i, 16);
    f.backend->script = {Scored(0)};
    CHECK(StepSession(f.session));  // there is room again
  }

  TEST_CASE("the room for scores is that of two of the largest rounds, or of 4,096 tokens") {
    const auto room = [](const SessionLimits& limits) { return EventCapacityOf(limits).scores; };
    CHECK(room({8, 1, 1, 0, 1, 0}) == 0);
    CHECK(room({8, 1, 1, 3, 1, 21}) == 4096 * 21);
    CHECK(room({8, 256, 256, 64, 1, 129}) == size_t{2} * 256 * 65 * 129);
  }
}

}  // namespace
}  // namespace specd
