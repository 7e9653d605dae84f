// An engine is killed at arbitrary moments; the daemon never takes a torn round.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <random>

#include "tests/ipc/segment/ipc_test_support.h"

namespace specd {
namespace {

constexpr SessionLimits kLimits{32000, 8, 8, 16, 8};
constexpr uint32_t kRows = 1 << 20;

uint32_t Mix(uint64_t round_id, uint32_t i) {
  return static_cast<uint32_t>((round_id * 0x9e3779b97f4a7c15 + i * 0xbf58476d1ce4e5b9) >> 40);
}

// Rounds of a size and content that follow from their number.
[[noreturn]] void SubmitForever(Segment* segment) {
  EngineChannel engine(segment);
  CompletionView completion;
  TokenId tokens[16];
  uint32_t rows[17];
  SequenceInput drafts[8];
  for (uint64_t round_id = 1;; ++round_id) {
    for (uint32_t i = 0; i < 16; ++i) tokens[i] = static_cast<TokenId>(Mix(round_id, i));
    for (uint32_t i = 0; i < 17; ++i) rows[i] = Mix(round_id, 100 + i) % kRows;
    const uint32_t batch = 1 + Mix(round_id, 200) % 8;
    for (uint32_t i = 0; i < batch; ++i) {
      drafts[i].sequence = uint64_t{1} << 32 | i;
      drafts[i].draft = {.num_nodes = static_cast<int32_t>(Mix(round_id, 300 + i) % 17),
                         .tokens = tokens,
                         .target_rows = rows};
    }
    while (engine.Submit(round_id, {drafts, batch}, round_id + 1) == PushResult::kFull) {
      engine.Poll(&completion);
    }
  }
}

bool IsWhole(const SubmissionCopy& copy) {
  const uint64_t round_id = copy.round_id();
  if (copy.malformed() || copy.submit_ns() != round_id + 1) return false;
  if (copy.records().size() != 1 + Mix(round_id, 200) % 8) return false;
  for (uint32_t s = 0; s < copy.records().size(); ++s) {
    const SequenceInput& record = copy.records()[s];
    if (record.refusal != Refusal::kNone || record.sequence != (uint64_t{1} << 32 | s)) {
      return false;
    }
    const auto num_drafts = static_cast<uint32_t>(record.draft.num_nodes);
    if (num_drafts != Mix(round_id, 300 + s) % 17) return false;
    for (uint32_t i = 0; i < num_drafts; ++i) {
      if (record.draft.tokens[i] != static_cast<TokenId>(Mix(round_id, i))) return false;
    }
    for (uint32_t i = 0; i <= num_drafts; ++i) {
      if (record.draft.target_rows[i] != Mix(round_id, 100 + i) % kRows) return false;
    }
  }
  return true;
}

TEST_SUITE("unit") {
  TEST_CASE("crash: an engine killed anywhere leaves only whole rounds, in order") {
    std::minstd_rand random(20240611);
    uint64_t torn = 0;
    uint64_t disorder = 0;
    uint64_t taken = 0;
    for (int trial = 0; trial < 60; ++trial) {
      Segment segment = test::MakeSegment(kLimits);
      DaemonChannel daemon(&segment);
      daemon.SetRowLimits({kRows, 0});
      SubmissionCopy copy(kLimits);
      const std::vector<SequenceResult> results(kLimits.max_batch);
      uint64_t expected_round = 1;
      const auto take_one = [&] {
        if (!daemon.Take(&copy, 0)) return false;
        ++taken;
        if (!IsWhole(copy)) ++torn;
        if (copy.round_id() != expected_round++) ++disorder;
        daemon.Complete(copy, {results.data(), copy.records().size()}, 0);
        return true;
      };

      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) SubmitForever(&segment);
      // The number of rounds before the kill is random; where in its round the child then is, is
      // up to the scheduler.
      const uint64_t rounds = 1 + random() % 400;
      while (expected_round <= rounds && daemon.fault() == ChannelFault::kNone) take_one();
      kill(child, SIGKILL);
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      REQUIRE(WIFSIGNALED(status));
      while (take_one()) {
      }
      CHECK(daemon.fault() == ChannelFault::kNone);
    }
    CHECK(torn == 0);
    CHECK(disorder == 0);
    CHECK(taken >= 60);
  }
}

}  // namespace
}  // namespace specd
