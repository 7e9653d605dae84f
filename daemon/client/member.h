// Member is the rank's side of its place in an engine's session, for the C functions of
// specd_member.
//
// A member has a link to the daemon and the memory in which its slot outputs are written. With
// reconnect_ms it has a thread too, which joins again at the next daemon and binds the same memory:
// while the daemon is away, rank 0 waits for this rank, and the rank's own thread may wait for rank
// 0 in a collective. member_api.cc wraps every method for C; errors are made with ipc/base/error.h.
// One thread at a time, besides the member's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/base/mutex.h"
#include "daemon/client/engine_link.h"
#include "daemon/client/library_thread.h"
#include "ipc/base/unique_fd.h"
#include "ipc/include/specd/specd.h"

namespace specd {

class Member {
 public:
  static absl::StatusOr<std::unique_ptr<Member>> Join(const std::string& uri,
                                                      const std::string& token,
                                                      const specd_join_options& options);

  // Binds the slot output with this role of the first replica. The tensor has no region.
  absl::Status BindDevice(uint32_t role, uint64_t address, uint64_t size_bytes,
                          const specd_tensor& tensor);
  absl::Status BindFd(uint32_t role, int fd, uint64_t size_bytes, const specd_tensor& tensor);
  // An error if the membership has ended. Waits for nothing.
  absl::Status Check();
  absl::Status Leave();

 private:
  // The memory of a slot output.
  struct Bound {
    specd_tensor tensor = {};
    UniqueFd fd = {};  // invalid: device memory
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    uint32_t region = 0;  // the daemon's number
  };

  Member(std::string uri, JoinRequest request, const specd_join_options& options);

  bool resumes() const { return request_.resumes; }
  // Connects, joins, and binds what was bound before.
  absl::Status Attach() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Attaches if it can. Zero: the rank is attached; else the pause before the next try. An error:
  // no daemon will take the rank.
  absl::StatusOr<absl::Duration> Try() ABSL_LOCKS_EXCLUDED(mutex_);
  // The pause after a try that has failed, or the error.
  absl::StatusOr<absl::Duration> WaitOrGiveUp(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the thread does: it waits until the daemon is gone, and joins again at the next one.
  void Follow() ABSL_LOCKS_EXCLUDED(mutex_);
  // False: the thread is stopped, or there is no way on (failure_).
  bool JoinAgain() ABSL_LOCKS_EXCLUDED(mutex_);
  // Binds at this daemon, or at one of the next if this one is gone meanwhile.
  absl::Status Bind(uint32_t role, Bound bound) ABSL_LOCKS_EXCLUDED(mutex_);
  // Registers the memory, and unregisters it if the binding is refused.
  absl::Status BindHere(uint32_t role, Bound* bound) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the membership, whose daemon may still write to the memory.
  absl::Status Fail(absl::Status status) ABSL_LOCKS_EXCLUDED(failure_mutex_);
  absl::StatusOr<EngineLink::Registration> Register(const Bound& bound)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Reply> Call(const Request& request, int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string uri_;
  const JoinRequest request_;
  const absl::Duration timeout_;
  const int64_t reconnect_ns_;

  Mutex mutex_;                                               // held while a request is under way
  std::unique_ptr<EngineLink> link_ ABSL_GUARDED_BY(mutex_);  // null before the first Attach
  std::map<uint32_t, Bound> bound_ ABSL_GUARDED_BY(mutex_);   // by role
  bool has_joined_ ABSL_GUARDED_BY(mutex_) = false;           // once
  uint32_t owner_uid_ ABSL_GUARDED_BY(mutex_) = 0;            // of the engine that it has joined
  // What the rank lacks: the further it has come, the higher. Each is waited for anew.
  enum class Lacks { kNothing, kDaemon, kSession, kPlace };
  Lacks lacks_ ABSL_GUARDED_BY(mutex_) = Lacks::kNothing;
  int64_t lacks_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;

  Mutex failure_mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(failure_mutex_);  // why the membership has ended

  LibraryThread thread_;
};

}  // namespace specd
