// TraceOptions says what a recorder keeps and when, for the daemon and for embedded engines.
//
// Both spell it alike: a directory, and "level=rows,every=100,flight=64". Plain data and pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/trace/trace_record.h"

namespace specd {

// Causes for which a flight recorder writes what it has, as bits.
enum TraceTrigger : uint32_t {
  kTriggerBadRow = 1,    // a round found a bad row
  kTriggerAbort = 2,     // a sequence was aborted
  kTriggerMismatch = 4,  // a checked round came out differently
  kTriggerSignal = 8,    // SIGUSR1
  kTriggerRequest = 16,  // dump_trace
};
inline constexpr uint32_t kAllTriggers = 31;

// "bad_row", "abort", "mismatch", "signal" or "request".
std::string_view TriggerName(TraceTrigger trigger);

struct TraceOptions {
  std::string directory;  // empty: nothing is recorded
  std::string text;       // the options as they were given
  TraceLevel level = TraceLevel::kRounds;
  uint32_t every = 1;  // 1 round in `every` has hashes and rows; all have decisions
  // Rows of all places of a draft, also of those that no method read; a what-if needs them.
  bool all_places = false;
  std::string request;  // only sequences of this request; empty: all
  uint32_t flight = 0;  // rounds that are kept in memory until a trigger; 0: all are written
  uint32_t triggers = kAllTriggers;
  uint64_t file_bytes = uint64_t{256} << 20;    // a larger file is followed by another
  uint64_t total_bytes = uint64_t{4096} << 20;  // of all files; then the oldest are deleted
  uint32_t total_files = 1000;                  // the same for their number
  uint64_t buffer_bytes = uint64_t{64} << 20;   // of each session, between rounds and the writer
  uint32_t check = 0;         // 1 of `check` rounds with rows is computed again; 0: none
  uint32_t check_drafts = 0;  // 1 of so many has its drafts held against their q; 0: none

  bool enabled() const { return !directory.empty(); }
};

// Refuses an unknown key with the nearest one, and a bad value with its range. Options without a
// directory are refused. An error names the field "trace" or "trace_options".
absl::StatusOr<TraceOptions> ParseTraceOptions(std::string_view directory,
                                               std::string_view options);

}  // namespace specd
