// PeerMember is a rank for the other process of gpu_peer.h. It joins the session of an engine in
// yet another process, and its next tokens lie in fake device memory of its own.
#pragma once

#include "ipc/include/specd/specd.h"
#include "tests/support/gpu_peer.h"

namespace specd {

class PeerMember {
 public:
  PeerMember() = default;
  ~PeerMember() { specd_leave(member_); }
  PeerMember(const PeerMember&) = delete;
  PeerMember& operator=(const PeerMember&) = delete;

  // Does an operation from PeerOp::kJoin on; returns a SPECD_ERROR_* or SPECD_OK.
  int Do(const PeerRequest& request);

 private:
  specd_member* member_ = nullptr;
};

}  // namespace specd
