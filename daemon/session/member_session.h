// MemberSession keeps a joined rank's place and memory for the daemon.
//
// The rank is a process of its own. Its place in the session, and the memory that its process has
// registered, end with the connection of that process. Leaving has an order: first the rounds stop
// writing there, then the memory is unmapped. Control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/regions.h"
#include "daemon/session/session.h"

namespace specd {

class MemberSession {
 public:
  static absl::StatusOr<std::unique_ptr<MemberSession>> Join(std::shared_ptr<Session> session,
                                                             const RankClaim& claim);
  ~MemberSession() { Leave(); }
  MemberSession(const MemberSession&) = delete;
  MemberSession& operator=(const MemberSession&) = delete;

  Regions& regions() { return regions_; }
  // Works as Session's functions do. A rank binds its own slot outputs and nothing else.
  absl::Status UnregisterRegion(uint32_t region);
  absl::Status Bind(TensorRole role, uint32_t region, const TensorSpec& spec);
  // May be called more than once.
  void Leave();

  Session& session() const { return *session_; }
  uint32_t rank() const { return rank_; }

 private:
  MemberSession(std::shared_ptr<Session> session, uint32_t rank)
      : session_(std::move(session)), rank_(rank), regions_(session_->regions_host()) {}

  const std::shared_ptr<Session> session_;
  const uint32_t rank_;
  Regions regions_;
  std::map<TensorRole, uint32_t> bound_;  // regions
  bool has_place_ = false;
};

}  // namespace specd
