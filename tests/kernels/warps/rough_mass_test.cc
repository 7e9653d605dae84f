// A GPU judges a one-hot draft token by a rough mass of its row, and the verdict is that of the
// mass.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "tests/kernels/bodies/one_task.h"
#include "tests/kernels/bodies/row_law.h"

namespace specd {
namespace {

// Whether the draft token of place 0 stands, by the launches of a round or by one worker.
bool StandsInRound(const Task& task, const TensorView& target) {
  OneTask round(task, target);
  round.Run({.num_threads = 32});
  return round.outcome.num_accepted > 0;
}
bool StandsForOneWorker(const Task& task, const TensorView& target) {
  const KeyedCoins coins(task.seed, task.coins, task.num_coins);
  return RunScalar(task, target, TensorView{}, coins).outcome.num_accepted > 0;
}

TEST_SUITE("unit") {
  // Catches a verdict by the rough mass alone.
  TEST_CASE("the first coin at which a one-hot draft token falls is the same for every processor") {
    std::mt19937_64 random(81);
    for (int32_t n = 0; n < 8; ++n) {
      CAPTURE(n);
      const FourRows rows;
      for (int32_t id = 0; id < kVocabSize; ++id) {
        rows.row(0)[id] = static_cast<float>(random() % 1000) * 1e-2f;
      }
      const auto likely = static_cast<TokenId>(random() % kVocabSize);
      rows.row(0)[likely] = 24.0f;  // its probability is between .2 and .8
      ChainCase chain(VerifyMethod::kToken, {likely}, DraftKind::kOneHot);
      InjectedCoin coin{.key = {.node = 1, .purpose = Purpose::kAccept}};
      chain.task.coins = &coin;
      chain.task.num_coins = 1;
      uint64_t stands = 0;
      for (uint64_t falls = kCoinEnd; falls - stands > 1;) {
        coin.coin = stands + (falls - stands) / 2;
        (StandsForOneWorker(chain.task, rows.view()) ? stands : falls) = coin.coin;
      }
      CHECK(stands > 0);
      CHECK(stands < kCoinEnd - 1);
      for (const uint64_t near : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20}) {
        CAPTURE(near);
        coin.coin = stands - near;
        CHECK(StandsInRound(chain.task, rows.view()));
        coin.coin = stands + 1 + near;
        CHECK(!StandsInRound(chain.task, rows.view()));
      }
    }
  }
}

}  // namespace
}  // namespace specd
