// Masks that take many slices: other sessions, and the end of the loop, come between two of them.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "daemon/server/verify_loop.h"
#include "tests/daemon/server/constrained_session.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;
using test::ConstrainedSession;
using test::Quiet;

constexpr TokenId kLong = 4;  // 24 times "a"

ModelProfile LongTokens() {
  ModelProfile profile = ConstrainedSession::Profile();
  Vocabulary::Builder builder;
  builder.Set(0, "</s>", {.added = true, .special = true});
  TokenId id = 1;
  for (const std::string& piece :
       {std::string("a"), std::string("b"), std::string("aa"), std::string(24, 'a')}) {
    builder.Set(id++, piece, {});
  }
  profile.vocabulary = std::move(builder).Build();
  return profile;
}

// Each text of n letters can be read in as many ways as there are trees of n nodes with up to two
// children.
grammar::GrammarRequest ManyWays() {
  return {.kind = grammar::GrammarKind::kEbnf, .text = "root ::= [ab] root? root?"};
}

// A session whose masks take long.
struct HostileSession : ConstrainedSession {
  HostileSession() : ConstrainedSession(LongTokens(), ManyWays()) {}

  // A round with a draft of three long tokens, which every row likes best.
  void SubmitLong(SequenceHandle sequence) {
    for (size_t i = 0; i < 4 * size_t{kLimits.vocab_size}; ++i) {
      logits[i] = i % kLimits.vocab_size == kLong ? 9.0f : 0.0f;
    }
    SequenceInput input;
    input.sequence = sequence;
    input.draft = {.num_nodes = 3, .tokens = long_drafts, .target_rows = rows};
    REQUIRE(engine->Submit(++number, {&input, 1}, 0) == PushResult::kOk);
  }
  // A call that draws the token after most of that draft.
  void CallLong(SequenceHandle sequence) {
    TensorSpec spec;
    spec.num_rows = 4;
    REQUIRE(session->Bind(TensorRole::kDraftRows, region, spec).ok());
    FillRows();
    DraftInput input;
    input.sequence = sequence;
    input.prefix = long_drafts;
    input.num_prefix = 2;
    input.mask_row = -1;
    input.num_children = 1;
    REQUIRE(engine->Call(std::span<const DraftInput>(&input, 1), 0) == PushResult::kOk);
  }
  TokenId Drawn() {
    CompletionView done;
    REQUIRE(engine->Poll(&done));
    REQUIRE(done.children.size() == 1);
    CHECK_MESSAGE(done.children[0].status == RoundStatus::kOk, done.children[0].reason);
    REQUIRE(done.children[0].children.size() == 1);
    return done.children[0].children[0].id;
  }
  Ids Answer(RoundStatus status = RoundStatus::kOk) {
    CompletionView done;
    REQUIRE(engine->Poll(&done));
    CHECK(done.results[0].status == status);
    return {done.results[0].tokens, done.results[0].tokens + done.results[0].num_kept};
  }

  const TokenId long_drafts[3] = {kLong, kLong, kLong};
};

TEST_SUITE("unit") {
  TEST_CASE("the masks of one hostile draft stalled every other engine until they were built") {
    HostileSession hostile;
    SessionFixture small;
    SessionList list;
    list.Add(hostile.session);
    list.Add(small.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle s = small.Open("small");
    hostile.SubmitLong(hostile.OpenConstrained("h"));
    uint32_t num_small = 0;
    CompletionView done;
    do {
      small.backend->script = {Confirm(0, {1})};
      REQUIRE(small.Submit({s}) == PushResult::kOk);
      REQUIRE(loop.Step());
      REQUIRE(small.engine->Poll(&done));
      CHECK(done.results[0].total_kept == ++num_small);
      REQUIRE(num_small < 100);
    } while (hostile.session->is_between_pieces());
    CHECK(num_small >= 4);
    // The same round, in one go.
    HostileSession alone;
    alone.SubmitLong(alone.OpenConstrained("h"));
    REQUIRE(StepSession(alone.session));
    const Ids expected = alone.Answer();
    CHECK(expected.size() == 4);
    CHECK(hostile.Answer() == expected);
  }

  TEST_CASE("the masks of one draft call stalled every other engine until they were built") {
    HostileSession hostile;
    hostile.CallLong(hostile.OpenConstrained("h", true));
    size_t num_steps = 0;
    do {
      REQUIRE(hostile.session->StepPiece());
      REQUIRE(++num_steps < 100);
    } while (hostile.session->is_between_pieces());
    CHECK(num_steps >= 2);
    HostileSession alone;
    alone.CallLong(alone.OpenConstrained("h", true));
    REQUIRE(StepSession(alone.session));
    CHECK(hostile.Drawn() == alone.Drawn());
  }

  TEST_CASE("a round that is called off among its masks changes nothing") {
    HostileSession f;
    const SequenceHandle h = f.OpenConstrained("h");
    f.SubmitLong(h);
    REQUIRE(f.session->StepPiece());
    REQUIRE(f.session->is_between_pieces());
    f.session->CallOffRound();
    CHECK(f.Answer(RoundStatus::kAborted).empty());
    f.SubmitLong(h);
    REQUIRE(StepSession(f.session));
    HostileSession undisturbed;
    undisturbed.SubmitLong(undisturbed.OpenConstrained("h"));
    REQUIRE(StepSession(undisturbed.session));
    CHECK(f.Answer() == undisturbed.Answer());
  }

  TEST_CASE("a sequence that ends among the masks of its round keeps nothing of the round") {
    HostileSession f;
    const SequenceHandle h = f.OpenConstrained("h");
    f.SubmitLong(h);
    REQUIRE(f.session->StepPiece());
    REQUIRE(f.session->is_between_pieces());
    CHECK(f.session->CloseSequence(h).ok());
    while (f.session->is_between_pieces()) f.session->StepPiece();
    CHECK(f.Answer(RoundStatus::kUnknownSequence).empty());
  }
}

}  // namespace
}  // namespace specd
