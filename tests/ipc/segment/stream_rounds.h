// Drives rounds on CUDA streams over a Pair, one step at a time, as the CUDA stream, the library
// and the session do. As thread-safe as the Pair.
#pragma once

#include <cstdint>

#include "ipc/segment/round_words.h"
#include "tests/ipc/segment/ipc_test_support.h"

namespace specd::test {

inline RoundWords* WordsOf(const Pair& pair, uint64_t number) {
  return pair.segment.round_words(number);
}

inline PushResult SubmitOnStream(Pair* pair, uint64_t round_id) {
  const DraftBuffers draft = TwoTokens();
  const SequenceInput drafts[] = {draft.View(kSequence0), draft.View(kSequence0 + 1)};
  pair->engine.ArmWords();
  return pair->engine.SubmitOnStream(round_id, drafts, 5);
}

inline void MakeReady(const Pair& pair, uint64_t number) {
  WordsOf(pair, number)->ready.store(number);
}

// Takes a round and answers it as the session does; false if there is none.
inline bool TakeAndAnswer(Pair* pair) {
  if (!pair->daemon.Take(&pair->copy, 2)) return false;
  pair->daemon.Claim(pair->copy);
  pair->CompleteEmpty();
  return true;
}

// Releases a round as the library does for a CUDA stream that has waited long enough.
inline void ReleaseStream(const Pair& pair, uint64_t number) {
  Decide(WordsOf(pair, number), number, RoundEnd::kAborted);
  Release(WordsOf(pair, number), number);
}

}  // namespace specd::test
