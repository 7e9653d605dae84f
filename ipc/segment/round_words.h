// The words through which a CUDA stream of an engine and specd wait for each other.
//
//   engine's stream                          daemon
//   ... writes the rows of round n
//   ready[s] = n                             takes round n once ready[s] is n
//   wait until done[s] >= n                  verifies, then Decide(n, kAnswered)
//                                            writes next tokens, commits,
//                                            publishes the completion, Release(n)
//   passed[s] = n
//   ... the next forward
//
// Nothing in CUDA times out, so the engine's library may release a stream as well: Decide(n,
// kAborted), Release(n). Whoever decides first decides for good. So a round is confirmed only while
// its stream stands still and its rows cannot change, and one whose stream was released without an
// answer confirms nothing and writes no next tokens, however late the daemon is.
//
// Words of both sides are atomics in shared memory; any thread. The other side is not trusted: a
// word that no correct peer writes aborts rounds of that session and does no more.
#pragma once

#include <cstdint>

#include "ipc/segment/layout.h"

namespace specd {

enum class RoundVerdict : uint8_t {
  kAnswered = 0,  // the completion says what was confirmed
  kAborted = 1,   // the stream was released without an answer: nothing is confirmed
  kFailed = 2,    // the daemon could not read or run the round: nothing is confirmed
};

constexpr uint64_t PackVerdict(uint64_t number, RoundVerdict verdict) {
  return number << 8 | static_cast<uint64_t>(verdict);
}

// Has the engine's stream reached the end of the rows of this round? Only the low halves are
// compared, because a device may have words of 32 bits only, and for equality, because nothing but
// this round's number and the one of a lap ago can stand there.
bool AreRowsReady(const RoundWords& words, uint64_t number);

// What a stream writes itself wherever it can.
void MarkReady(RoundWords* words, uint64_t number);
void MarkPassed(RoundWords* words, uint64_t number);
// The round has not passed, whatever was left in its slot, `found`. What a stream has written since
// stands.
void TakeBackPassed(RoundWords* words, uint64_t found, uint64_t number);

// Decides how the round ended unless that is decided; returns what stands.
RoundVerdict Decide(RoundWords* words, uint64_t number, RoundVerdict wish);

// The daemon takes back that it has answered, which no stream has seen yet: the round has failed.
void Withdraw(RoundWords* words, uint64_t number);

bool IsAborted(const RoundWords& words, uint64_t number);

// Lets streams go on that wait for this round or an earlier one of its slot.
void Release(RoundWords* words, uint64_t number);
bool IsReleased(const RoundWords& words, uint64_t number);

// Nothing that was enqueued for this round will touch the words any more.
bool HasPassed(const RoundWords& words, uint64_t number);

}  // namespace specd
