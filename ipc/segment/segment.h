// Segment: one session's shared memory, mapped into this process.
//
// The daemon creates it, sends fd() to the engine, and calls SealFutureWrites once the engine says
// that it has mapped it. The engine attaches to the received descriptor. Either side may die: each
// holds its own mapping, and the kernel frees the memory at the last unmap. What lies inside is
// used through ipc/segment/round_channel.h.
//
// A Segment is immutable after it is made and may be read by any thread; the words inside have
// their own rules.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/base/mapping.h"
#include "ipc/base/unique_fd.h"
#include "ipc/segment/layout.h"

namespace specd {

struct SessionIdentity {
  uint64_t session_id = 0;
  uint64_t daemon_epoch = 0;

  friend bool operator==(const SessionIdentity&, const SessionIdentity&) = default;
};

class Segment {
 public:
  // Daemon side. All pages are taken here, so that a full machine is an error now and never a
  // SIGBUS later.
  static absl::StatusOr<Segment> Create(const SessionLimits& limits,
                                        const SessionIdentity& identity);

  // Engine side: refuses a descriptor that is no sealed segment of this layout version or whose
  // numbers do not fit each other.
  static absl::StatusOr<Segment> Attach(UniqueFd fd);

  // After this no new writable mapping can be made, no hole punched, no seal added. Existing
  // mappings are not affected, so call it only after the engine has mapped.
  absl::Status SealFutureWrites();

  int fd() const { return fd_.get(); }
  const SessionLimits& limits() const { return limits_; }
  const SegmentLayout& layout() const { return layout_; }
  const SessionIdentity& identity() const { return identity_; }

  SegmentPage* page() const { return static_cast<SegmentPage*>(mapping_.data()); }
  SubmissionSlot* submission_slots() const {
    return reinterpret_cast<SubmissionSlot*>(at(layout_.submission_ring_offset));
  }
  CompletionSlot* completion_slots() const {
    return reinterpret_cast<CompletionSlot*>(at(layout_.completion_ring_offset));
  }
  SequenceLine* sequence_table() const {
    return reinterpret_cast<SequenceLine*>(at(layout_.sequence_table_offset));
  }
  // Of the slots, by number: round n has slot (n - 1) % ring_depth.
  RoundWords* round_words(uint64_t number) const {
    return reinterpret_cast<RoundWords*>(at(layout_.round_words_offset)) +
           ((number - 1) & (limits_.ring_depth - 1));
  }
  // REQUIRES: offset <= layout().segment_bytes.
  char* at(uint64_t offset) const { return static_cast<char*>(mapping_.data()) + offset; }

 private:
  Segment(UniqueFd fd, Mapping mapping, const SessionLimits& limits,
          const SessionIdentity& identity);

  UniqueFd fd_;
  Mapping mapping_;
  SessionLimits limits_;
  SegmentLayout layout_;
  SessionIdentity identity_;
};

}  // namespace specd
