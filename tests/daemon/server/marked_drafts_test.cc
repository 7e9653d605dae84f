// Draft tokens by slot that a CUDA stream marks before the target model runs: the masks of all
// places are built while it runs, and the answers are those of the draft tokens that the round has.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/daemon/server/constrained_session.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

using test::ConstrainedSession;
using test::Quiet;

// "b", "c", "b": every place has a state that no place before it has.
constexpr TokenId kPath[] = {2, 3, 2};

struct MarkedSession : ConstrainedSession {
  MarkedSession() {
    list.Add(session);
    sequence = OpenConstrained("r");
    FillRows();
  }
  void Write(const TokenId (&ids)[3]) { std::copy_n(ids, 3, &slot_ids[3 * SlotOf(sequence)]); }
  void Mark() { MarkDrafts(segment->round_words(number), number); }
  SequenceResult Answer() {
    MakeReady();
    CHECK(loop.Step());
    REQUIRE(engine->Poll(&done));
    return done.results[0];
  }

  SessionList list;
  VerifyLoop loop{&list, Quiet()};
  SequenceHandle sequence = 0;
  CompletionView done;
};

TEST_SUITE("unit") {
  TEST_CASE("with a mark, every place has its mask before the rows are ready; without, the first") {
    size_t prepared[2] = {};
    for (const bool is_marked : {false, true}) {
      CAPTURE(is_marked);
      MarkedSession f;
      f.Write(kPath);
      f.Submit(f.sequence, true);
      if (is_marked) f.Mark();
      CHECK_FALSE(f.loop.Step());
      CHECK_FALSE(f.loop.Step());
      prepared[is_marked ? 1 : 0] = f.StateBytes();
      CHECK(f.Answer().status == RoundStatus::kOk);
      if (is_marked) {
        CHECK(f.StateBytes() == prepared[1]);
      } else {
        CHECK(f.StateBytes() > prepared[0]);
      }
    }
    CHECK(prepared[1] > prepared[0]);
  }

  TEST_CASE("a mark that comes after the masks of the first places is seen, once") {
    MarkedSession f;
    f.Submit(f.sequence, true);
    CHECK_FALSE(f.loop.Step());
    CHECK_FALSE(f.loop.Step());
    const size_t first = f.StateBytes();
    f.Write(kPath);
    f.Mark();
    CHECK_FALSE(f.loop.Step());
    const size_t all = f.StateBytes();
    CHECK(all > first);
    // The masks of other draft tokens would be new ones, and nothing asks for them again.
    f.Write({3, 3, 4});
    CHECK_FALSE(f.loop.Step());
    CHECK(f.StateBytes() == all);
    f.Write(kPath);
    CHECK(f.Answer().status == RoundStatus::kOk);
    CHECK(f.StateBytes() == all);
  }

  TEST_CASE("draft tokens that change after the mark: the answer is that of the last ones") {
    MarkedSession marked;
    ConstrainedSession given;
    const SequenceHandle expected_sequence = given.OpenConstrained("r");
    std::mt19937 random(3);
    uint32_t num_kept = 0;
    bool is_over = false;
    for (int round = 0; round < 100 && !is_over; ++round) {
      CAPTURE(round);
      given.FillRows();
      std::copy_n(given.logits, 4 * ConstrainedSession::kLimits.vocab_size, marked.logits);
      // Ids of the vocabulary, none, and others.
      TokenId early[3];
      for (TokenId& id : early) id = static_cast<TokenId>(random() % 10) - 1;
      given.Submit(expected_sequence, false);
      given.MakeReady();
      REQUIRE(StepSession(given.session));
      CompletionView expected;
      REQUIRE(given.engine->Poll(&expected));

      marked.Write(early);
      marked.Submit(marked.sequence, true);
      marked.Mark();
      marked.loop.Step();
      marked.Write(given.drafts);
      const SequenceResult found = marked.Answer();
      REQUIRE(found.status == RoundStatus::kOk);
      REQUIRE(found.num_accepted == expected.results[0].num_accepted);
      REQUIRE(std::equal(found.tokens, found.tokens + found.num_kept, expected.results[0].tokens,
                         expected.results[0].tokens + expected.results[0].num_kept));
      num_kept += found.num_kept;
      is_over = found.finish_reason != FinishReason::kNone;
      REQUIRE(found.finish_reason == expected.results[0].finish_reason);
    }
    CHECK(is_over);
    CHECK(num_kept > 2);
  }

  TEST_CASE("a mark without a round, and the mark of an older round, change no answer") {
    MarkedSession f;
    MarkedSession unmarked;
    std::copy_n(unmarked.logits, 4 * ConstrainedSession::kLimits.vocab_size, f.logits);
    f.Write(kPath);
    // The mark of round 1 comes, and the engine submits that round much later, with other drafts.
    MarkDrafts(f.segment->round_words(1), 1);
    CHECK_FALSE(f.loop.Step());
    for (MarkedSession* session : {&f, &unmarked}) {
      session->Write({3, 3, 4});
      session->Submit(session->sequence, true);
      CHECK_FALSE(session->loop.Step());
    }
    const SequenceResult found = f.Answer();
    const SequenceResult expected = unmarked.Answer();
    CHECK(found.status == RoundStatus::kOk);
    CHECK(found.num_accepted == expected.num_accepted);
    CHECK(std::equal(found.tokens, found.tokens + found.num_kept, expected.tokens,
                     expected.tokens + expected.num_kept));
    // Round 3 has the words of round 1, whose mark is no mark of it: only the first place is built.
    f.Submit(f.sequence, true);
    CHECK(f.Answer().status == RoundStatus::kOk);
    f.Submit(f.sequence, true);
    CHECK_FALSE(f.session->channel().AreDraftsMarked());
    f.Mark();
    CHECK(f.session->channel().AreDraftsMarked());
  }

  TEST_CASE("a page that is missing when marked draft tokens are read ends the session at once") {
    // It waited for rows that might never come.
    MarkedSession f;
    f.Write(kPath);
    f.Submit(f.sequence, true);
    f.Mark();
    f.session->regions_host().has_faulted->store(true);  // as the handler of SIGBUS does
    f.loop.Step();
    CHECK(f.session->ended());
  }
}

}  // namespace
}  // namespace specd
