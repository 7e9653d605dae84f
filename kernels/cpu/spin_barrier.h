// SpinBarrier lets the groups of a team wait for each other, many times in a row of logits.
//
// A pass over a row takes microseconds, so a group spins first, and sleeps only if the others take
// longer. A group that has finished leaves, and the others continue without it. If a row changes
// while it is read, groups may disagree, but they can never wait for ever. A group that completes a
// Wait() sees all writes before the other groups' Wait() or Leave().
//
// No function is inlined, because the teams of newer processors include this header.
#pragma once

#include <atomic>
#include <cstdint>

namespace specd {

class SpinBarrier {
 public:
  // REQUIRES: no thread is inside.
  void Reset(int32_t num_participants);

  void Wait();
  void Leave();

 private:
  void Release(uint32_t arrived);

  // The low half counts the participants, and the high half those that have arrived. Each fetch_add
  // releases the group's writes, and the fetch_add of the last group acquires all of them.
  std::atomic<uint32_t> state_{0};
  // Raised by the last to arrive (release), awaited by the others (acquire).
  std::atomic<uint32_t> phase_{0};
};

// The seat of a worker in a team; by default the worker is alone.
struct TeamSeat {
  int32_t group = 0;
  int32_t num_groups = 1;
  SpinBarrier* barrier = nullptr;  // the team's, if it has several groups
};

// Returns as soon as `word` is not `value`: spins for some microseconds, then sleeps. The thread
// that changes the word calls its notify_all().
void AwaitChange(const std::atomic<uint32_t>& word, uint32_t value);

}  // namespace specd
