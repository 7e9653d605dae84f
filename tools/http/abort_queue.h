// AbortQueue asks a daemon to end the streams of clients that have left, on a thread of its own.
//
// Abort may be called on any thread. What waits at the end is dropped.
#pragma once

#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd::http {

class AbortQueue {
 public:
  // `ask` is the daemon's endpoint of asks. The context outlives the queue, and is shut down before
  // the queue goes.
  AbortQueue(ZmqContext* context, std::string ask);
  ~AbortQueue();

  void Abort(const std::string& request_id);

 private:
  static constexpr size_t kWaitingMax = 4096;
  void Run();

  ZmqContext* const context_;
  const std::string ask_;
  absl::Mutex mutex_;
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace specd::http
