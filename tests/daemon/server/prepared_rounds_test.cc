// Masks are built while the target model runs: the loop prepares a round whose rows are not ready,
// serves others meanwhile, and the answers are the same.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/server/verify_loop.h"
#include "ipc/segment/round_words.h"
#include "tests/daemon/server/constrained_session.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;
using test::ConstrainedSession;
using test::Quiet;

// Runs rounds to the sequence's end, and returns its tokens.
template <class Step>
Ids Generate(ConstrainedSession& f, Step step) {
  const SequenceHandle sequence = f.OpenConstrained("r");
  Ids ids;
  for (FinishReason reason = FinishReason::kNone; reason == FinishReason::kNone;) {
    f.SubmitOnStream(sequence);
    step();
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    REQUIRE(done.results[0].status == RoundStatus::kOk);
    ids.insert(ids.end(), done.results[0].tokens,
               done.results[0].tokens + done.results[0].num_kept);
    reason = done.results[0].finish_reason;
  }
  REQUIRE(f.session->CloseSequence(sequence).ok());
  return ids;
}

TEST_SUITE("unit") {
  TEST_CASE("masks are built before the rows are ready, and the round builds none") {
    ConstrainedSession f;
    SessionList list;
    list.Add(f.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle sequence = f.OpenConstrained("r");
    const size_t before = f.StateBytes();
    // "b", "c", "b": places that the opening has not met.
    f.FillRows();
    for (int i = 0; i < 3; ++i) f.drafts[i] = i == 1 ? 3 : 2;
    f.Submit(sequence, false);
    // The first look builds the masks; the second finds them built, and the loop may sleep.
    CHECK_FALSE(loop.Step());
    CHECK_FALSE(loop.Step());
    const size_t prepared = f.StateBytes();
    CHECK(prepared > before);
    CompletionView done;
    CHECK_FALSE(f.engine->Poll(&done));
    f.MakeReady();
    CHECK(loop.Step());
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kOk);
    CHECK(f.StateBytes() == prepared);
  }

  TEST_CASE("prepared rounds have the same tokens as rounds that were not prepared") {
    ConstrainedSession prepared;
    ConstrainedSession plain;
    SessionList list;
    list.Add(prepared.session);
    VerifyLoop loop(&list, Quiet());
    size_t num_tokens = 0;
    for (int text = 0; text < 20; ++text) {
      const Ids expected = Generate(plain, [&plain] {
        plain.MakeReady();
        REQUIRE(StepSession(plain.session));
      });
      const Ids found = Generate(prepared, [&prepared, &loop] {
        loop.Step();
        prepared.MakeReady();
        REQUIRE(loop.Step());
      });
      REQUIRE(found == expected);
      num_tokens += found.size();
    }
    CHECK(num_tokens > 60);
  }

  TEST_CASE("others are served while a round waits, and only the oldest round is prepared") {
    ConstrainedSession f;
    SessionFixture other;
    SessionList list;
    list.Add(f.session);
    list.Add(other.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle first = f.OpenConstrained("first");
    const SequenceHandle second = f.OpenConstrained("second");
    f.SubmitOnStream(first);
    other.backend->script = {Confirm(0, {1})};
    REQUIRE(other.Submit({other.Open("other")}) == PushResult::kOk);
    CHECK(loop.Step());
    CHECK(other.backend->seen.size() == 1);
    CHECK_FALSE(loop.Step());
    const size_t prepared = f.StateBytes();
    f.SubmitOnStream(second);
    CHECK_FALSE(loop.Step());
    CHECK(f.StateBytes() == prepared);
    f.segment->round_words(1)->ready.store(1);
    CHECK(loop.Step());
    CHECK_FALSE(loop.Step());
    f.MakeReady();
    CHECK(loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.round_id == 1);
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.round_id == 2);
    CHECK(done.results[0].sequence == second);
  }

  TEST_CASE("between preparation and run a sequence may be closed, or aborted, and rows unbound") {
    for (int event = 0; event < 4; ++event) {
      CAPTURE(event);
      ConstrainedSession f;
      SessionList list;
      list.Add(f.session);
      VerifyLoop loop(&list, Quiet());
      const SequenceHandle sequence = f.OpenConstrained("r");
      f.SubmitOnStream(sequence);
      CHECK_FALSE(loop.Step());
      SequenceHandle reopened = 0;
      if (event == 0) {
        REQUIRE(f.session->CloseSequence(sequence).ok());
      } else if (event == 1) {
        REQUIRE(f.session->CloseSequence(sequence).ok());
        reopened = f.OpenConstrained("again");  // in the same slot
      } else if (event == 2) {
        REQUIRE(f.session->AbortSequence(sequence).ok());
      } else {
        f.Bind(2);  // the round names rows 0 to 3
      }
      CHECK_FALSE(loop.Step());
      f.MakeReady();
      CHECK(loop.Step());
      CompletionView done;
      REQUIRE(f.engine->Poll(&done));
      const SequenceResult& result = done.results[0];
      CHECK(result.sequence == sequence);
      CHECK(result.num_kept == 0);
      if (event <= 1) CHECK(result.status == RoundStatus::kUnknownSequence);
      if (event == 2) CHECK(result.status == RoundStatus::kFinished);
      if (event == 3) CHECK(result.refusal == Refusal::kTargetRow);
      if (reopened != 0) CHECK(f.engine->ReadState(SlotOf(reopened)).kept_tokens == 0);
    }
  }

  TEST_CASE("a prepared round whose stream is released confirms nothing, and can come again") {
    ConstrainedSession f;
    SessionList list;
    list.Add(f.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle sequence = f.OpenConstrained("r");
    f.SubmitOnStream(sequence);
    CHECK_FALSE(loop.Step());
    Decide(f.segment->round_words(1), 1, RoundEnd::kAborted);
    Release(f.segment->round_words(1), 1);
    f.MakeReady();
    CHECK(loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kAborted);
    f.SubmitOnStream(sequence);
    f.MakeReady();
    while (!f.engine->Poll(&done)) REQUIRE(loop.Step());
    CHECK(done.results[0].status == RoundStatus::kOk);
    CHECK(done.results[0].num_kept > 0);
  }

  TEST_CASE("an engine that changes a round while it waits gets the changed round") {
    ConstrainedSession f;
    SessionList list;
    list.Add(f.session);
    VerifyLoop loop(&list, Quiet());
    f.SubmitOnStream(f.OpenConstrained("r"));
    CHECK_FALSE(loop.Step());
    SubmissionEntry& entry = f.segment->submission_entries()[0];
    entry.payload_bytes += 8;
    f.MakeReady();
    CHECK(loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.malformed);
    // A ring entry that names no records is not prepared either.
    f.SubmitOnStream(f.OpenConstrained("s"));
    f.segment->submission_entries()[1].payload_offset = 1;
    CHECK_FALSE(loop.Step());
    f.MakeReady();
    CHECK(loop.Step());
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.malformed);
  }
}

}  // namespace
}  // namespace specd
