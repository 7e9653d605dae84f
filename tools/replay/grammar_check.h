// GrammarCheck compares the masks of constraints in a trace with the recorded states, for verify.
//
// A state of one sequence's constraint allows the same ids whenever it comes again, so two masks of
// one state are a difference. The check needs hashes: levels hashes and rows. It keeps a few words
// for each state of the open sequences, up to a bound; further states are counted. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

class GrammarCheck {
 public:
  // Some 4 MiB. A smaller number is for tests.
  static constexpr size_t kStatesMax = size_t{1} << 16;

  explicit GrammarCheck(size_t states_max = kStatesMax) : states_max_(states_max) {}

  // The tasks of this round follow.
  void Begin(const TraceRound& round);
  // The differences in a task of the round, as sentences.
  std::vector<std::string> Check(const TraceTask& task, SequenceHandle sequence);
  // Masks that were not compared, because their states found no room.
  uint64_t num_not_compared() const { return num_not_compared_; }
  // The sequence was closed.
  void Forget(SequenceHandle sequence);

 private:
  struct Seen {
    uint64_t mask_hash = 0;
    uint64_t round = 0;
  };
  using States = std::unordered_map<uint64_t, Seen>;

  uint64_t MaskHash(int32_t row) const;
  // Null: the state has not come yet, or found no room.
  const Seen* Find(SequenceHandle sequence, uint64_t state) const;
  void Keep(SequenceHandle sequence, uint64_t state, uint64_t mask_hash);

  const size_t states_max_;
  uint64_t round_ = 0;
  std::unordered_map<uint32_t, uint64_t> mask_hashes_;  // of the round, by row
  std::unordered_map<SequenceHandle, States> sequences_;
  size_t num_states_ = 0;
  uint64_t num_not_compared_ = 0;
};

}  // namespace specd::replay
