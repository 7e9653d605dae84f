// WaitSet lets one thread wait for several sockets at once, and be woken by other threads.
//
// The owner adds what it waits for and calls Wait; the sockets stay where they are meanwhile. Any
// thread may call Ring, which costs one atomic operation while the owner does not wait, and a
// system call while it does.
//
//   waits.Add(&socket);
//   while (!stopped) {
//     if (!HandleWhatIsThere()) waits.Wait(absl::Milliseconds(20), [&] { return !queue.empty(); });
//   }
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ipc/base/unique_fd.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd {

class WaitSet {
 public:
  static absl::StatusOr<std::unique_ptr<WaitSet>> Make();

  void Add(const ZmqSocket* socket) { sockets_.push_back(socket); }
  // Waits until the descriptor can be read.
  void Add(int fd) { fds_.push_back(fd); }

  // Returns once a socket or descriptor may have something, after a Ring, or when the timeout has
  // passed. It does not wait if `ready` says that what a ringer has written is there already.
  void Wait(absl::Duration timeout, absl::FunctionRef<bool()> ready);

  // REQUIRES: the caller has written what `ready` reads.
  void Ring();

 private:
  explicit WaitSet(UniqueFd bell);

  const UniqueFd bell_;
  std::vector<const ZmqSocket*> sockets_;
  std::vector<int> fds_;
  std::atomic<bool> is_waiting_{false};
};

}  // namespace specd
