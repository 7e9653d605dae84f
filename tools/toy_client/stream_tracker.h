// Decides what each text event is: new text, something seen already, or proof that text was lost.
//
//   absl::StatusOr<Novelty> novelty = tracker.Take(&event);
//
// Offsets in events are absolute, so a loss inside a stream shows as a hole in its bytes. Whoever
// receives all streams also sees every sequence number, and so the loss of a first or a last event;
// the heartbeat shows it when nothing else follows (docs/PROTOCOL.md).
//
// No I/O. Not safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/events/token_event.h"

namespace specd::toy {

enum class Novelty {
  kNothing,  // all of it was known
  kNew,
  kJoinedLate,  // new, but the stream had begun before the first event that was seen of it
};

class StreamTracker {
 public:
  // sees_all: the subscription covers every stream, so sequence numbers have no holes.
  explicit StreamTracker(bool sees_all) : sees_all_(sees_all) {}

  // Text that is already known is cut off the event's front. DATA_LOSS if something is missing
  // before it; ABORTED if it comes from another run of the daemon.
  absl::StatusOr<Novelty> Take(TextEvent* event);
  absl::Status Take(const Heartbeat& heartbeat);

  size_t num_ended() const { return num_ended_; }

 private:
  absl::Status CheckEpoch(uint64_t epoch);
  absl::Status CheckSequence(uint64_t seq);

  bool sees_all_;
  size_t num_ended_ = 0;
  std::optional<uint64_t> epoch_;
  std::optional<uint64_t> last_seq_;
  absl::flat_hash_map<uint64_t, uint64_t> bytes_;  // received of each open stream, by its number
};

}  // namespace specd::toy
