#include "ipc/segment/round_words.h"

namespace specd {
namespace {

constexpr uint64_t NumberOf(uint64_t status) { return status >> 8; }

// A correct peer changes a word once meanwhile, or twice. A hostile peer must not keep us here.
constexpr int kTriesMax = 1000;

bool IsLowHalf(uint64_t word, uint64_t number) {
  return static_cast<uint32_t>(word) == static_cast<uint32_t>(number);
}

}  // namespace

bool AreRowsReady(const RoundWords& words, uint64_t number) {
  // Pairs with the CUDA stream's write, before which all its earlier work is visible to the whole
  // system; or with the store in MarkReady. Acquire keeps our reads of the rows from moving before
  // this load.
  return IsLowHalf(words.ready.load(std::memory_order_acquire), number);
}

bool AreDraftsMarked(const RoundWords& words, uint64_t number) {
  // Pairs with the CUDA stream's write, or with MarkDrafts. Acquire keeps our reads of the draft
  // tokens from moving before this load.
  return IsLowHalf(words.drafts.load(std::memory_order_acquire), number);
}

void MarkReady(RoundWords* words, uint64_t number) {
  words->ready.store(number, std::memory_order_release);
}

void MarkPassed(RoundWords* words, uint64_t number) {
  words->passed.store(number, std::memory_order_release);
}

void MarkDrafts(RoundWords* words, uint64_t number) {
  words->drafts.store(number, std::memory_order_release);
}

void TakeBackMark(RoundWords* words, uint64_t number) {
  words->drafts.store(number - 1, std::memory_order_relaxed);
}

void TakeBackPassed(RoundWords* words, uint64_t found, uint64_t number) {
  words->passed.compare_exchange_strong(found, number - 1, std::memory_order_relaxed);
}

RoundEnd Decide(RoundWords* words, uint64_t number, RoundEnd wish) {
  uint64_t found = words->status.load(std::memory_order_acquire);
  for (int i = 0; i < kTriesMax && NumberOf(found) < number; ++i) {
    // Pairs with the other side's Decide. Release keeps our reads of the rows from moving after
    // this exchange, when the engine may write the rows again. Acquire keeps the loser's later work
    // from moving before it.
    if (words->status.compare_exchange_weak(found, PackRoundEnd(number, wish),
                                            std::memory_order_acq_rel, std::memory_order_acquire)) {
      return wish;
    }
  }
  if (found == PackRoundEnd(number, RoundEnd::kAnswered)) return RoundEnd::kAnswered;
  if (found == PackRoundEnd(number, RoundEnd::kFailed)) return RoundEnd::kFailed;
  return RoundEnd::kAborted;
}

void Withdraw(RoundWords* words, uint64_t number) {
  // Any other value than our own claim is left as it is. The call of Release that follows orders
  // this store.
  uint64_t claimed = PackRoundEnd(number, RoundEnd::kAnswered);
  words->status.compare_exchange_strong(claimed, PackRoundEnd(number, RoundEnd::kFailed),
                                        std::memory_order_relaxed);
}

bool IsAborted(const RoundWords& words, uint64_t number) {
  // Pairs with the exchange in Decide. Acquire keeps work that depends on the answer from moving
  // before this load.
  return words.status.load(std::memory_order_acquire) == PackRoundEnd(number, RoundEnd::kAborted);
}

void Release(RoundWords* words, uint64_t number) {
  // A daemon that was late for round n must not undo that the library released n + depth.
  uint64_t found = words->done.load(std::memory_order_relaxed);
  for (int i = 0; i < kTriesMax && found < number; ++i) {
    // Pairs with the CUDA stream's wait. Release keeps the status, the completion and the daemon's
    // writes for the device from moving after this exchange.
    if (words->done.compare_exchange_weak(found, number, std::memory_order_release,
                                          std::memory_order_relaxed)) {
      return;
    }
  }
}

bool IsReleased(const RoundWords& words, uint64_t number) {
  // Pairs with the release in Release: a thread that sees the value finds the round decided.
  return words.done.load(std::memory_order_acquire) >= number;
}

bool HasPassed(const RoundWords& words, uint64_t number) {
  // Pairs with the CUDA stream's write, or with MarkPassed. Acquire keeps the unmapping of these
  // words from moving before this load.
  return IsLowHalf(words.passed.load(std::memory_order_acquire), number);
}

}  // namespace specd
