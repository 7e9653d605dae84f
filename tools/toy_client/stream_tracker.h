// StreamTracker decides for the toy client whether a text event is new text, known text, or proof
// that text was lost.
//
//   absl::StatusOr<Novelty> novelty = tracker.Take(&event);
//
// Offsets in events are absolute, so a loss inside a stream shows as a gap in its bytes. A
// subscriber to all streams also sees every sequence number, and so the loss of a first or a last
// event. If no event follows, the heartbeat shows the loss (docs/PROTOCOL.md).
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
  kJoinedLate,  // new, but the stream began before its first event that was seen
};

class StreamTracker {
 public:
  // sees_all: the subscription covers every stream, so sequence numbers have no holes.
  explicit StreamTracker(bool sees_all) : sees_all_(sees_all) {}

  // Cuts known text off the event's front. DATA_LOSS if text before the event is missing; ABORTED
  // if the event comes from another run of the daemon.
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
  // The parts of a stream that have come.
  struct Received {
    uint64_t bytes = 0;
    uint64_t tokens = 0;
  };
  absl::flat_hash_map<uint64_t, Received> streams_;  // the open ones, by their numbers
};

}  // namespace specd::toy
