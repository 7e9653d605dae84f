// FlightLog keeps the last rounds of a session in memory, with the openings and ends between them.
//
// It is the flight recorder of a trace: nothing is written before something goes wrong. Its memory
// is bounded by a number of rounds and by bytes; the oldest are forgotten first. One thread: the
// writer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd {

// A round with the bytes of its rows, if it has rows.
struct FlightRound {
  TraceRound round;
  std::vector<std::byte> bytes;       // of all rows, one after the other
  std::vector<uint64_t> row_offsets;  // into `bytes`; empty: there are none
  std::vector<uint64_t> row_sizes;
  bool is_left_out = false;  // no file takes it, and it is counted as lost
};

class FlightLog {
 public:
  using Entry = std::variant<FlightRound, TraceOpening, TraceEnd>;

  FlightLog(uint32_t max_rounds, uint64_t max_bytes)
      : max_rounds_(max_rounds), max_bytes_(max_bytes) {}

  void Add(FlightRound round);
  void Add(TraceOpening opening);
  void Add(const TraceEnd& end);

  std::deque<Entry>& entries() { return entries_; }
  uint32_t num_rounds() const { return num_rounds_; }
  uint64_t num_bytes() const { return num_bytes_; }
  // The sequences whose opening is in the log.
  std::unordered_set<SequenceHandle> OpenedHere() const;
  // The sequences that the rounds of the log name.
  std::unordered_set<SequenceHandle> Named() const;
  // For each sequence whose rounds are in the log, the tokens kept before the first of them.
  std::unordered_map<SequenceHandle, uint32_t> KeptBefore() const;

 private:
  static uint64_t SizeOf(const Entry& entry);
  void Push(Entry entry);
  void DropOldest();

  const uint32_t max_rounds_;
  const uint64_t max_bytes_;
  std::deque<Entry> entries_;
  uint32_t num_rounds_ = 0;
  uint64_t num_bytes_ = 0;  // of all entries
};

}  // namespace specd
