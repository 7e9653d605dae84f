// SessionMemory holds the registered regions of one session and the rows that its rounds read.
//
// Rounds read under the session's lock only. After a role is bound anew under the lock, no round
// reads the old memory. A region that no role is bound to can therefore be unmapped without further
// waiting. The control thread calls the public functions; some of them need the lock and say so.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/regions.h"
#include "daemon/session/session_state.h"
#include "daemon/session/tensor_role.h"

namespace specd {

// The region that a role is bound to, and the kind of its memory.
struct BoundRegion {
  uint32_t id = 0;
  MemorySpace space = MemorySpace::kHost;
};

class SessionMemory {
 public:
  explicit SessionMemory(SessionState* state);

  absl::StatusOr<uint32_t> Register(UniqueFd fd, uint64_t size_bytes);
  // Refused while a role is bound to the region. After success the session no longer touches the
  // memory.
  absl::Status Unregister(uint32_t region);
  Regions& regions() { return regions_; }

  // Finds the memory for a role, or explains why the role cannot be bound to it.
  absl::StatusOr<RowMemory> Find(TensorRole role, uint32_t region, Regions& regions);

  // Binds the role in the verifier.
  absl::Status Bind(TensorRole role, const RowMemory& memory, const TensorSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Binds memory of the engine, and remembers the region.
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
  // Copies the map, so its memory is not needed afterwards, and unbinds the draft rows.
  // One of the three roles of trees by slot.
  absl::Status BindTree(TensorRole role, const RowMemory& memory, const TensorSpec& spec);
  absl::Status BindMap(const RowMemory& memory, const TensorSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status BindRows(bool is_target, const RowMemory& memory, const TensorSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  SessionState& state_;
  Regions regions_;
  std::map<TensorRole, BoundRegion> bound_ ABSL_GUARDED_BY(state_.mutex);
  RowLimits row_limits_ ABSL_GUARDED_BY(state_.mutex);
};

}  // namespace specd
