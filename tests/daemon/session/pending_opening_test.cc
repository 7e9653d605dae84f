// Pending openings of a session: a stop of the daemon fails none, and what needs no long work to be
// found is refused at once.
#include "daemon/session/pending_opening.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "speculative/grammar/base/compile_cancel.h"
#include "tests/daemon/server/constrained_session.h"
#include "tests/support/grid_size.h"

namespace specd {
namespace {

// A sequence that is pending in the session, with a constraint that compiles for many looks.
PendingOpening OpenPending(Session& session) {
  PendingOpening opening = {
      .request_id = "name", .open = {}, .sequences = {}, .memory = {}, .refusal = {}};
  SequenceParams& params = opening.open.params;
  params.max_tokens = 100;
  params.grammar_kind = grammar::GrammarKind::kEbnf;
  params.grammar_text = "root ::= \"x\"";
  // A compile that is watched may take longer than a compile may.
  const int num_parts = GridSize({.full = 2600, .sanitized = 1300});
  for (int i = 0; i < num_parts; ++i) params.grammar_text += " [a]?";
  PreparedSequences prepared;
  REQUIRE(session.opening_builder()
              .PreparePending("name", opening.open.history(), &params, &prepared)
              .ok());
  size_t refused = 0;
  const auto infos = session.OpenPrepared(std::move(prepared), &refused);
  REQUIRE(infos.ok());
  opening.sequences = {infos->front().handle};
  return opening;
}

uint64_t StateOf(test::ConstrainedSession& f, SequenceHandle sequence) {
  return f.engine->ReadState(SlotOf(sequence)).finish_reason;
}

TEST_SUITE("unit") {
  TEST_CASE("pending opening: a compile that a stop ends leaves the sequence to the next daemon") {
    test::ConstrainedSession f;
    const PendingOpening opening = OpenPending(*f.session);
    {
      const grammar::CompileCancel cancel;
      f.session->BuildPending(opening);
      CHECK(StateOf(f, opening.sequences[0]) == SequenceState::kPending);
    }
    f.session->BuildPending(opening);
    CHECK(StateOf(f, opening.sequences[0]) == SPECD_FINISH_NONE);
  }

  // Bug: after an abort it was as one that had begun, so the next daemon gave it a stream.
  TEST_CASE("pending opening: one that is aborted is withdrawn, here and at the next daemon") {
    test::ConstrainedSession f;
    const PendingOpening opening = OpenPending(*f.session);
    const SequenceHandle handle = opening.sequences[0];
    REQUIRE(f.session->AbortSequence(handle).ok());
    CHECK(StateOf(f, handle) == SequenceState::kWithdrawn);
    f.session->BuildPending(opening);
    CHECK(StateOf(f, handle) == SequenceState::kWithdrawn);
    REQUIRE(f.session->CloseSequence(handle).ok());

    // The client asks the next daemon for it as for a pending one, with its end.
    PreparedSequences prepared;
    OpenRequest open;
    open.resumed.finish_reason = FinishReason::kAbort;
    REQUIRE(f.session->opening_builder()
                .PreparePending("name", open.history(), &open.params, &prepared)
                .ok());
    size_t refused = 0;
    const auto infos = f.session->OpenPrepared(std::move(prepared), &refused);
    REQUIRE(infos.ok());
    const SequenceHandle there = infos->front().handle;
    CHECK(StateOf(f, there) == SequenceState::kWithdrawn);
    CHECK(f.session->FindOpened(there).ok());
    const auto listed = f.session->ListSequences({}, 0, 2);
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].stream == 0);
    CHECK(listed[0].finish_reason == FinishReason::kAbort);
    SequenceHandle announced = 0;
    TokenEvent event;
    CHECK_FALSE(f.session->PopEvent(&announced, &event));
  }

  TEST_CASE("pending opening: a history that no sequence can have is refused at once") {
    test::ConstrainedSession f;
    PreparedSequences prepared;
    OpenRequest open;
    const auto prepare = [&] {
      return std::string(f.session->opening_builder()
                             .PreparePending("name", open.history(), &open.params, &prepared)
                             .message());
    };
    open.prompt = {1, 8};
    CHECK(prepare().starts_with("prompt[1] = 8 is outside 0 .. 7"));
    open.prompt = {};
    open.params.rng = Rng::kSglang;
    CHECK(prepare().starts_with("prompt_ids: rng = sglang"));
    open.prompt = {1};
    CHECK(prepare().empty());
  }

  TEST_CASE("opening: a sequence that has ended needs no prompt for a generator") {
    test::ConstrainedSession f;
    SequenceParams params;
    params.rng = Rng::kSglang;
    SequenceHistory history;
    history.finish_reason = FinishReason::kAbort;
    const auto opened = f.session->OpenSequences("name", params, history);
    CHECK_MESSAGE(opened.ok(), opened.status().ToString());
  }
}

}  // namespace
}  // namespace specd
