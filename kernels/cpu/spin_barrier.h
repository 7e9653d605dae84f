// SpinBarrier: where the groups of a team wait for one another, many times in a row of logits.
//
// A pass over a row takes microseconds, so a group spins first and sleeps only if the others take
// longer. A group that is through leaves, and the others go on without it: groups that disagreed
// (they may, if a row changes while it is read) can never wait for ever. Everything written before
// Wait() or Leave() is seen by every group after the Wait() that it completes.
//
// Nothing is inlined: the teams of newer processors include this.
#pragma once

#include <atomic>
#include <cstdint>

namespace specd {

class SpinBarrier {
 public:
  // Only while nobody is inside.
  void Reset(int32_t num_participants);

  void Wait();
  void Leave();

 private:
  void Release(uint32_t arrived);

  // Participants in the low half, those of them that have arrived in the high half. Each fetch_add
  // of it is a release of what the group wrote, and the last one's acquires all of that.
  std::atomic<uint32_t> state_{0};
  // Raised by the last to arrive (release), awaited by the others (acquire).
  std::atomic<uint32_t> phase_{0};
};

// Where a worker sits in a team; alone, unless told otherwise.
struct TeamSeat {
  int32_t group = 0;
  int32_t num_groups = 1;
  SpinBarrier* barrier = nullptr;  // of the team, if it has several groups
};

// Returns as soon as `word` is not `value`: spins for some microseconds, then sleeps. Whoever
// changes the word calls its notify_all().
void AwaitChange(const std::atomic<uint32_t>& word, uint32_t value);

}  // namespace specd
