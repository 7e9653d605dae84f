// AbortQueue asks a daemon to end streams, on a thread of its own: those that a client wants to
// end, and those whose clients have left.
//
// Abort may be called on any thread. What waits at the end is dropped.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd::http {

// NOT_FOUND: no stream of the request runs. RESOURCE_EXHAUSTED: too many others wait.
using AbortResult = std::shared_future<absl::Status>;

class AbortQueue {
 public:
  // `ask` is the daemon's endpoint of asks. The context outlives the queue, and is shut down before
  // the queue goes. The queue's thread calls `on_result` whenever a result is there.
  AbortQueue(ZmqContext* context, std::string ask, std::function<void()> on_result);
  ~AbortQueue();

  AbortResult Abort(const std::string& request_id);

 private:
  static constexpr size_t kWaitingMax = 4096;
  struct Waiting {
    std::string request_id;
    std::promise<absl::Status> result = {};
  };
  void Run();

  ZmqContext* const context_;
  const std::string ask_;
  const std::function<void()> on_result_;
  absl::Mutex mutex_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace specd::http
