// SessionMemory: the memory of one session: which regions are registered, and which rows the rounds
// read.
//
// Rounds read under the session's lock only. So a role that is bound anew, and a region that no
// role is bound to, are in no round: nothing else is needed before memory is unmapped. The control
// thread calls the public functions; those that say so need the lock.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/regions.h"
#include "daemon/session/session_state.h"
#include "daemon/session/tensor_role.h"

namespace specd {

// The region that a role is bound to, and where it lies.
struct BoundRegion {
  uint32_t id = 0;
  MemorySpace space = MemorySpace::kHost;
};

class SessionMemory {
 public:
  explicit SessionMemory(SessionState* state);

  absl::StatusOr<uint32_t> Register(UniqueFd fd, uint64_t size_bytes);
  // Refused while a role is bound to it. After success the session touches the memory no more.
  absl::Status Unregister(uint32_t region);
  Regions& regions() { return regions_; }

  // The memory that a role is to be bound to, or why it cannot be.
  absl::StatusOr<RowMemory> Find(TensorRole role, uint32_t region, Regions& regions);

  // Binds the role in the verifier.
  absl::Status Bind(TensorRole role, const RowMemory& memory, const TensorSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // The same for memory of the engine, and remembers the region.
  absl::Status BindOwn(TensorRole role, uint32_t region, const RowMemory& memory,
                       const TensorSpec& spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  const std::map<TensorRole, BoundRegion>& bound() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    return bound_;
  }
  const RowLimits& row_limits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    return row_limits_;
  }

 private:
  SessionState& state_;
  Regions regions_;
  std::map<TensorRole, BoundRegion> bound_ ABSL_GUARDED_BY(state_.mutex);
  RowLimits row_limits_ ABSL_GUARDED_BY(state_.mutex);
};

}  // namespace specd
