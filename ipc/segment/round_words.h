// RoundWords let a CUDA stream of an engine and specd wait for each other.
//
//   engine's CUDA stream                     daemon
//   ... writes draft tokens by slot
//   drafts[s] = n  (if marked)             copies them, and builds masks
//   ... writes the rows of round n
//   ready[s] = n                             takes round n once ready[s] is n
//   wait until done[s] >= n                  verifies, then Decide(n, kAnswered)
//                                            writes slot outputs, commits,
//                                            publishes the completion, Release(n)
//   passed[s] = n
//   ... the next forward
//
// Nothing in CUDA times out, so the engine's library may release a CUDA stream as well: Decide(n,
// kAborted), Release(n). The first decision is final. A round is therefore confirmed only while its
// CUDA stream waits and its rows cannot change. A round whose CUDA stream was released without an
// answer confirms nothing and writes no slot outputs, however late the daemon is.
//
// The word `drafts` is a hint. The daemon may read draft tokens early because of it, and verifies
// those that it reads once the rows are ready. A word that comes too early therefore costs time and
// changes no answer.
//
// The words of both sides are atomics in shared memory; any thread may use them. The other side is
// not trusted: a word that no correct peer writes aborts rounds of that session and does no more.
#pragma once

#include <cstdint>

#include "ipc/segment/layout.h"

namespace specd {

enum class RoundEnd : uint8_t {
  kAnswered = 0,  // the completion says what was confirmed
  kAborted = 1,   // the CUDA stream was released without an answer: nothing is confirmed
  kFailed = 2,    // the daemon could not read or run the round: nothing is confirmed
};

constexpr uint64_t PackRoundEnd(uint64_t number, RoundEnd end) {
  return number << 8 | static_cast<uint64_t>(end);
}

// Tells whether the engine's CUDA stream has written all rows of this round. It compares only the
// low halves, because a device may have words of 32 bits only. It compares for equality, because
// the word holds either this round's number or that of the round a lap ago.
bool AreRowsReady(const RoundWords& words, uint64_t number);

// Tells whether a CUDA stream has marked the draft tokens of this round as written. Compares as
// AreRowsReady does.
bool AreDraftsMarked(const RoundWords& words, uint64_t number);

// The host writes these three words if the CUDA stream cannot write them itself.
void MarkReady(RoundWords* words, uint64_t number);
void MarkPassed(RoundWords* words, uint64_t number);
void MarkDrafts(RoundWords* words, uint64_t number);
// Takes back a mark of this round that a CUDA stream has written. No CUDA stream may be about to
// write the word.
void TakeBackMark(RoundWords* words, uint64_t number);
// Marks the round as not passed, unless the CUDA stream has written since. `found` is the value
// that the ring entry held before.
void TakeBackPassed(RoundWords* words, uint64_t found, uint64_t number);

// Decides how the round ended, unless that is decided already; returns the decision that holds.
RoundEnd Decide(RoundWords* words, uint64_t number, RoundEnd wish);

// Changes the daemon's own decision that it has answered, which no CUDA stream has seen yet, into
// kFailed.
void Withdraw(RoundWords* words, uint64_t number);

bool IsAborted(const RoundWords& words, uint64_t number);

// Lets CUDA streams continue that wait for this round or an earlier one of its ring entry.
void Release(RoundWords* words, uint64_t number);
bool IsReleased(const RoundWords& words, uint64_t number);

// Tells whether all work that was enqueued for this round is done with the words.
bool HasPassed(const RoundWords& words, uint64_t number);

}  // namespace specd
