// The part of the other process (gpu_peer.h) that is a rank: it joins the session of an engine in
// yet another process, and has its next tokens written to pretended device memory of its own.
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

  // An operation from PeerOp::kJoin on; the answer is a SPECD_ERROR_* or SPECD_OK.
  int Do(const PeerRequest& request);

 private:
  specd_member* member_ = nullptr;
};

}  // namespace specd
