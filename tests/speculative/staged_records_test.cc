// Staged rounds that are recorded: each brings the decisions that the device wrote for it.
#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/speculative/verifier_fixture.h"

namespace specd {
namespace {

// Keeps the coin of the first decision of each round that it is shown.
struct CoinObserver : RoundObserver {
  void Begin(RoundBatch*) override {}
  void Ran(const RanRound& round) override {
    REQUIRE(round.batch.decisions != nullptr);
    CHECK(round.batch.decisions_stride == 4);
    coins.push_back(round.batch.decisions[0].accept_coin);
  }
  void Committed(std::span<const SequenceResult>, std::span<const uint32_t>) override {}

  std::vector<uint64_t> coins;
};

TEST_SUITE("unit") {
  TEST_CASE("an observer is shown the decisions that the device wrote for each staged round") {
    CoinObserver observer;
    VerifierFixture f;
    auto backend = std::make_unique<ScriptedBackend>();
    f.backend = backend.get();
    VerifierOptions options;
    options.limits = {8, 4, 3};
    options.limits.records_staged = true;
    options.max_sequences = 4;
    f.verifier = *Verifier::Create(options, std::move(backend));
    REQUIRE(f.verifier->BindTarget(f.View()).ok());
    f.verifier->Observe(&observer);
    REQUIRE(f.verifier->EnqueueStaged(nullptr, 1).ok());
    f.backend->script = {Confirm(0, {1}), Confirm(0, {2})};
    uint64_t coin = 70;
    f.backend->inspect = [&](const RoundBatch& batch) {
      REQUIRE(batch.decisions != nullptr);
      CHECK(batch.decisions_stride == 4);  // one place more than drafts
      batch.decisions[0].accept_coin = ++coin;
    };
    const SequenceInput input = f.Input(f.Open());
    for (int round = 0; round < 2; ++round) f.verifier->StageRound({&input, 1});
    for (int round = 0; round < 2; ++round) {
      f.backend->num_run = 1;
      SequenceResult result;
      REQUIRE(f.verifier->CollectRound({&result, 1}));
    }
    CHECK(observer.coins == std::vector<uint64_t>{71, 72});
  }
}

}  // namespace
}  // namespace specd
