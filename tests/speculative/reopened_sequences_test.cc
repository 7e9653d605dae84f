// Sequences that begin with tokens: reopened ones, and forks.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/speculative/verifier_fixture.h"

namespace specd {
namespace {

using Fixture = VerifierFixture;
using Ids = std::vector<TokenId>;

// The statuses of an Open, told in words.
std::string WhyRefused(Fixture& f, const SequenceParams& params,
                       const SequenceHistory& history = {}) {
  const auto info = f.verifier->Open(params, history);
  return info.ok() ? "" : std::string(info.status().message());
}

TEST_SUITE("unit") {
  TEST_CASE("a reopened sequence goes on where it was (CONTRACT 2)") {
    Fixture f;
    SequenceParams params;
    params.frequency_penalty = 1;
    params.max_tokens = 5;
    const Ids prompt = {6};
    const Ids outputs = {2, 2, 4};
    const SequenceHandle s = f.Open(params, {prompt, outputs});
    f.backend->script = {Confirm(3, {1, 3, 5, 6})};
    f.backend->inspect = [](const RoundBatch& batch) {
      const Task& task = batch.tasks[0];
      CHECK(task.first_position == 3);
      CHECK(task.round_base == 3);
      REQUIRE(task.edits.num_edits == 2);
      CHECK(task.edits.edits[0].id == 2);
      CHECK(task.edits.edits[0].count == 2);
      CHECK(task.edits.edits[1].id == 4);
    };
    const SequenceResult result = f.Round(s);
    CHECK(result.num_kept == 2);
    CHECK(result.total_kept == 5);
    CHECK(result.finish_reason == FinishReason::kLength);
  }

  TEST_CASE("given ids outside the vocabulary, or nothing left to do, are refused") {
    Fixture f;
    const Ids bad = {1, 8};
    const Ids two = {1, 2};
    SequenceParams params;
    params.max_tokens = 2;
    CHECK(WhyRefused(f, params, {bad, {}}).find("prompt[1] = 8 is outside 0 .. 7") !=
          std::string::npos);
    CHECK(WhyRefused(f, params, {{}, bad}).find("outputs[1] = 8") != std::string::npos);
    CHECK(WhyRefused(f, params, {Ids{-1, 8}, {}}).find("prompt[0] = -1") != std::string::npos);
    CHECK(WhyRefused(f, params, {{}, two}).find("max_tokens = 2") != std::string::npos);
    CHECK(f.verifier->sequences().num_taken() == 0);
  }

  TEST_CASE("a fork goes on from where its parent stands, with coins of its own") {
    Fixture f;
    SequenceParams params;
    params.presence_penalty = 1;
    params.logprobs = 0;
    params.logprob_token_ids = {2};
    params.bad_words = {{3, 4}};
    params.seed = 5;
    params.has_seed = true;
    const SequenceHandle parent = f.Open(params);
    f.backend->script = {Confirm(1, {1, 3}), Confirm(0, {6}), Confirm(0, {6})};
    f.Round(parent);
    const auto child = f.verifier->Fork(parent, 77);
    REQUIRE(child.ok());
    CHECK(child->seed == 77);
    CHECK(child->handle != parent);
    const uint64_t first = f.verifier->Fork(parent, std::nullopt)->seed;
    const uint64_t second = f.verifier->Fork(parent, std::nullopt)->seed;
    CHECK(first != second);

    REQUIRE(f.verifier->Close(parent));  // the child must not live on its parent's memory
    f.backend->inspect = [](const RoundBatch& batch) {
      const Task& task = batch.tasks[0];
      CHECK(task.seed == 77);
      CHECK(task.round_base == 2);
      CHECK(task.scores.chosen[0] == 2);
      CHECK(task.edits.num_edits == 2);
      REQUIRE(task.places != nullptr);
      REQUIRE(task.places[0].num_overrides == 1);
      CHECK(task.places[0].overrides[0].id == 4);  // 3 was the last token
    };
    CHECK(f.Round(child->handle).total_kept == 3);
  }

  TEST_CASE("only an open sequence that goes on can be forked") {
    Fixture f;
    CHECK(f.verifier->Fork(99, 1).status().code() == absl::StatusCode::kNotFound);
    const SequenceHandle s = f.Open();
    f.verifier->Finish(s, FinishReason::kAbort, 0);
    CHECK(f.verifier->Fork(s, 1).status().code() == absl::StatusCode::kFailedPrecondition);
    const SequenceHandle other = f.Open();
    f.Open();
    f.Open();
    CHECK(f.verifier->Fork(other, 1).status().code() == absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace specd
