// Segment is one session's shared memory, mapped into this process.
//
// The daemon creates it and sends fd() to the engine. The engine attaches to the descriptor and
// says that it has mapped the segment; then the daemon calls SealFutureWrites. Either side may die:
// each holds its own mapping, and the kernel frees the memory at the last unmap. The channels
// (ipc/segment/engine_channel.h, ipc/segment/daemon_channel.h) use the contents.
//
// A Segment never changes after it is made, and any thread may read it. The words inside have rules
// of their own.
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
  // For the daemon. All pages are taken here, so a full machine is an error now and never a SIGBUS
  // later.
  static absl::StatusOr<Segment> Create(const SessionLimits& limits,
                                        const SessionIdentity& identity);

  // For the engine. Refuses a descriptor that is no sealed segment of this layout version, or whose
  // numbers do not fit each other.
  static absl::StatusOr<Segment> Attach(UniqueFd fd);

  // Forbids new writable mappings, holes and further seals. Existing mappings are not affected, so
  // call it only after the engine has mapped.
  absl::Status SealFutureWrites();

  // The same memory, without its descriptor. It stays mapped until both are gone.
  Segment Share() const { return Segment(UniqueFd(), mapping_.Share(), limits_, identity_); }

  int fd() const { return fd_.get(); }
  const SessionLimits& limits() const { return limits_; }
  const SegmentLayout& layout() const { return layout_; }
  const SessionIdentity& identity() const { return identity_; }

  SegmentPage* page() const { return static_cast<SegmentPage*>(mapping_.data()); }
  SubmissionEntry* submission_entries() const {
    return reinterpret_cast<SubmissionEntry*>(at(layout_.submission_ring_offset));
  }
  CompletionEntry* completion_entries() const {
    return reinterpret_cast<CompletionEntry*>(at(layout_.completion_ring_offset));
  }
  SequenceLine* sequence_table() const {
    return reinterpret_cast<SequenceLine*>(at(layout_.sequence_table_offset));
  }
  // The words of round `number`, which has ring entry (number - 1) % ring_depth.
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
