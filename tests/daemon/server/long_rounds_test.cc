// Rounds of several pieces in the verify loop: other sessions, the session's lock, hang-ups and the
// end of the loop come between two pieces.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "daemon/server/verify_loop.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/session/hooked_session.h"
#include "tests/support/eventually.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

VerifyLoop::Options QuietLoop() {
  return {0, [](std::string_view) {}, [](Session&, ChannelFault) {}};
}

// A session whose rounds have a piece for each sequence.
struct LongSession : SessionFixture {
  explicit LongSession(bool resumes = false) {
    SessionOptions options = session->options();
    options.piece_work = 1;
    options.origin.resumes = resumes;
    auto owned = std::make_unique<HookedBackend>();
    hooked = owned.get();
    backend = hooked;
    Attach(options, std::move(owned));
  }

  // Submits a round of three new sequences. Sequence i confirms the token i.
  void SubmitThree() {
    const std::vector<std::string> ids = {"x", "y", "z"};
    for (size_t i = 0; i < ids.size(); ++i) {
      sequences.push_back(Open(ids[i]));
      backend->script.push_back(Confirm(0, {static_cast<TokenId>(i)}));
    }
    REQUIRE(Submit(sequences) == PushResult::kOk);
  }
  size_t num_run() const { return backend->seen.size(); }

  HookedBackend* hooked = nullptr;
  std::vector<SequenceHandle> sequences;
};

// A verify loop that serves the sessions of these fixtures.
struct Served {
  template <class... Fixtures>
  explicit Served(const Fixtures&... fixtures) {
    (list.Add(fixtures.session), ...);
  }

  SessionList list;
  VerifyLoop loop{&list, QuietLoop()};
};

std::vector<TokenId> KeptOf(const SequenceResult& result) {
  return {result.tokens, result.tokens + result.num_kept};
}

TEST_SUITE("unit") {
  TEST_CASE("a long round stalled every other engine until it was done") {
    LongSession monster;
    SessionFixture small;
    Served served(monster, small);
    const SequenceHandle s = small.Open("small");
    monster.SubmitThree();
    CompletionView done;
    for (uint32_t piece = 1; piece <= 2; ++piece) {
      small.backend->script = {Confirm(0, {1})};
      REQUIRE(small.Submit({s}) == PushResult::kOk);
      CHECK(served.loop.Step());
      CHECK(monster.num_run() == piece);
      REQUIRE(small.engine->Poll(&done));
      CHECK(done.results[0].total_kept == piece);
      CHECK_FALSE(monster.engine->Poll(&done));
    }
    CHECK(served.loop.Step());
    REQUIRE(monster.engine->Poll(&done));
    REQUIRE(done.results.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(KeptOf(done.results[i]) == std::vector<TokenId>{static_cast<TokenId>(i)});
    }
    CHECK_FALSE(served.loop.Step());
  }

  TEST_CASE("two long rounds run in turn") {
    LongSession a;
    LongSession b;
    Served served(a, b);
    a.SubmitThree();
    b.SubmitThree();
    for (size_t piece = 1; piece <= 3; ++piece) {
      CHECK(served.loop.Step());
      CHECK(a.num_run() == piece);
      CHECK(b.num_run() == piece);
    }
  }

  TEST_CASE("a round that waits behind a long one is taken once that one is answered") {
    LongSession f;
    Served served(f);
    f.SubmitThree();
    f.backend->script.push_back(Confirm(0, {5}));
    REQUIRE(f.Submit({f.sequences[0]}, 2) == PushResult::kOk);
    CompletionView done;
    for (int piece = 0; piece < 3; ++piece) CHECK(served.loop.Step());
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.round_id == 1);
    CHECK_FALSE(f.engine->Poll(&done));
    CHECK(served.loop.Step());
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.round_id == 2);
    CHECK(done.results[0].total_kept == 2);
  }

  TEST_CASE("a reader of the counters waited until a round was done") {
    LongSession f;
    Served served(f);
    std::vector<uint64_t> rounds;
    // The session's lock is held here.
    f.hooked->hook = [&](const RoundBatch&) {
      std::thread([&] { rounds.push_back(f.session->counters().sequence_rounds); }).join();
    };
    f.SubmitThree();
    while (served.loop.Step()) {
    }
    CHECK(rounds == std::vector<uint64_t>{0, 0, 0});  // a round is counted when it is answered
    CHECK(f.session->counters().sequence_rounds == 3);
  }

  TEST_CASE("counters are read while rounds run, and none of them falls") {
    SessionFixture f;
    const SequenceHandle s = f.Open("r", 1000);
    std::atomic<bool> stop{false};
    bool has_fallen = false;
    std::thread reader([&] {
      Counters last;
      while (!stop.load()) {
        const Counters now = f.session->counters();
#define SPECD_COUNTER(name, metric, meaning) has_fallen = has_fallen || now.name < last.name;
#include "kernels/core/counter_list.inc"
        last = now;
      }
    });
    CompletionView done;
    for (uint64_t round = 1; round <= 200; ++round) {
      f.backend->script = {Confirm(2, {1, 2, 5})};
      REQUIRE(f.Submit({s}, round) == PushResult::kOk);
      REQUIRE(StepSession(f.session));
      REQUIRE(f.engine->Poll(&done));
      f.Events();
    }
    stop.store(true);
    reader.join();
    CHECK_FALSE(has_fallen);
    const Counters sums = f.session->counters();
    CHECK(sums.rounds == 200);
    CHECK(sums.drafted == 600);
    CHECK(sums.accepted == 400);
    CHECK(sums.kept == 600);
  }

  TEST_CASE("a control message waited until a long round was done") {
    LongSession f;
    Served served(f);
    std::atomic<int> num_calls{0};
    std::atomic<bool> stop{false};
    std::thread control([&] {
      while (!stop.load()) {
        (void)f.session->AbortSequence(0);  // no sequence has this handle
        ++num_calls;
      }
    });
    // The pieces are long: while each runs, the control thread comes to wait for the lock.
    int calls_before[3] = {};
    f.hooked->hook = [&](const RoundBatch&) {
      CHECK(Eventually([&] { return f.session->IsWanted(); }));
      calls_before[f.num_run()] = num_calls.load();
    };
    f.SubmitThree();
    std::thread verify([&] { served.loop.Run(); });
    CompletionView done;
    REQUIRE(Eventually([&] { return f.engine->Poll(&done); }));
    stop.store(true);
    control.join();
    served.loop.Stop();
    verify.join();
    // A call that waited in one piece was done before the next piece began.
    CHECK(calls_before[1] > calls_before[0]);
    CHECK(calls_before[2] > calls_before[1]);
    CHECK(done.results[2].total_kept == 1);
  }

  TEST_CASE("a close between two pieces gave memory back that the round still read") {
    MemoryBudget all(uint64_t{1} << 40, "memory_mib");  // Outlives the session.
    LongSession f;
    SessionOptions options = f.session->options();
    options.memory = &all;
    options.memory_bytes_max = uint64_t{1} << 30;
    auto owned = std::make_unique<HookedBackend>();
    f.backend = f.hooked = owned.get();
    f.Attach(options, std::move(owned));
    Served served(f);
    const uint64_t before = all.taken_bytes();
    f.SubmitThree();
    const uint64_t of_three = all.taken_bytes() - before;
    CHECK(served.loop.Step());
    CHECK(f.session->CloseSequence(f.sequences[1]).ok());
    CHECK(all.taken_bytes() == before + of_three);
    CHECK(served.loop.Step());
    CHECK(all.taken_bytes() == before + of_three);
    CHECK(served.loop.Step());
    CHECK(all.taken_bytes() == before + of_three / 3 * 2);
    // Without a round the bytes go back at once.
    CHECK(f.session->CloseSequence(f.sequences[0]).ok());
    CHECK(all.taken_bytes() == before + of_three / 3);
  }

  TEST_CASE("openings between two pieces leave no event of the round without room") {
    LongSession f;
    Served served(f);
    f.SubmitThree();
    CHECK(served.loop.Step());
    // Opened and closed until the queue has no room for the round's events.
    SequenceParams params;
    auto opened = f.session->OpenSequences("other", params);
    REQUIRE(opened.ok());
    do {
      REQUIRE(f.session->CloseSequence(opened->front().handle).ok());
      opened = f.session->OpenSequences("other", params);
    } while (opened.ok());
    CHECK(ErrorCodeOf(opened.status()) == SPECD_ERROR_EXHAUSTED);
    CHECK_FALSE(served.loop.Step());
    CHECK(f.num_run() == 1);
    f.Events();
    CHECK(served.loop.Step());
    CHECK(served.loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[2].total_kept == 1);
    CHECK(f.Events().size() == 3);
  }

  TEST_CASE("rows cannot be bound anew while a round is between two pieces") {
    LongSession f;
    Served served(f);
    f.SubmitThree();
    CHECK(served.loop.Step());
    TensorSpec spec;
    spec.num_rows = 1;
    const absl::Status status = f.session->Bind(TensorRole::kTargetRows, 1, spec);
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_STATE);
    CHECK(served.loop.Step());
    CHECK(served.loop.Step());
    CHECK(f.session->Bind(TensorRole::kTargetRows, 1, spec).ok());
  }

  TEST_CASE("a hang-up between two pieces ends the round, and nothing of it is kept") {
    LongSession f;
    Served served(f);
    f.SubmitThree();
    CHECK(served.loop.Step());
    f.Events();
    CHECK(f.session->EndAll());
    CHECK_FALSE(f.session->is_between_pieces());
    CHECK_FALSE(served.loop.Step());
    CHECK(f.num_run() == 1);
    const std::vector<TokenEvent> events = f.Events();
    REQUIRE(events.size() == 3);
    for (const TokenEvent& event : events) {
      CHECK(event.kind() == TokenEventKind::kEnd);
      CHECK(event.offset == 0);
      CHECK(event.end()->finish_reason == SPECD_FINISH_ABORT);
    }
  }

  TEST_CASE("a drain waited for a long round; it calls the round off") {
    LongSession monster;
    SessionFixture small;
    Served served(monster, small);
    monster.SubmitThree();
    CHECK(served.loop.Step());
    const SequenceHandle s = small.Open("small");
    small.backend->script = {Confirm(0, {1})};
    REQUIRE(small.Submit({s}) == PushResult::kOk);
    served.loop.Stop();
    served.loop.Run();
    CHECK(monster.num_run() == 2);
    CompletionView done;
    REQUIRE(monster.engine->Poll(&done));
    REQUIRE(done.results.size() == 3);
    for (const SequenceResult& result : done.results) {
      CHECK(result.status == RoundStatus::kAborted);
      CHECK(result.num_kept == 0);
      CHECK(result.total_kept == 0);
    }
    REQUIRE(small.engine->Poll(&done));
    CHECK(done.results[0].total_kept == 1);
  }

  TEST_CASE("a drain runs one piece of each long round in the ring, whatever the ring's depth") {
    LongSession f;
    Served served(f);
    f.SubmitThree();
    REQUIRE(f.Submit(f.sequences, 2) == PushResult::kOk);
    served.loop.Stop();
    served.loop.Run();
    CHECK(f.num_run() == 2);
    CompletionView done;
    for (const uint64_t round_id : {1, 2}) {
      REQUIRE(f.engine->Poll(&done));
      CHECK(done.round_id == round_id);
      CHECK(done.results[0].status == RoundStatus::kAborted);
    }
  }

  TEST_CASE("behind a round that is left to the next daemon a drain took another, and aborted") {
    LongSession left(/*resumes=*/true);
    SessionFixture other;
    Served served(left, other);
    left.SubmitThree();
    REQUIRE(left.Submit({left.sequences[0]}, 2) == PushResult::kOk);  // of one piece
    const SequenceHandle s = other.Open("other");
    other.backend->script = {Confirm(0, {1})};
    REQUIRE(other.Submit({s}) == PushResult::kOk);
    left.session->Drain();
    served.loop.Stop();
    served.loop.Run();
    CompletionView done;
    CHECK_FALSE(left.engine->Poll(&done));
    CHECK(left.num_run() == 1);
    CHECK(left.session->ended());
    CHECK(left.engine->ReadState(SlotOf(left.sequences[0])).finish_reason == SPECD_FINISH_NONE);
    CHECK(other.engine->Poll(&done));
  }
}

}  // namespace
}  // namespace specd
