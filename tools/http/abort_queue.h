// AbortQueue asks a daemon to end streams, on a thread of its own: those that a client wants to
// end, and those whose clients have left.
//
// A daemon that was started just now knows a stream only once its engine has come back. As long as
// the stream's text goes on, the queue therefore asks again. Abort may be called on any thread.
// What waits at the end is dropped.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ipc/sockets/request_socket.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd::http {

// NOT_FOUND: no stream of the request runs. RESOURCE_EXHAUSTED: too many others wait.
// DEADLINE_EXCEEDED, UNAVAILABLE: the daemon has not ended it in time.
using AbortResult = std::shared_future<absl::Status>;

class AbortQueue {
 public:
  static constexpr size_t kWaitingMax = 4096;

  struct Options {
    std::string ask;  // the daemon's endpoint of asks
    // The stream of a request whose text goes on.
    std::function<std::optional<uint64_t>(const std::string& request_id)> running;
    std::function<void()> on_result;  // called on the queue's thread, whenever a result is there
    absl::Duration answer_max = absl::Seconds(1);   // that one ask waits
    absl::Duration pause = absl::Milliseconds(50);  // before the same ask is repeated
    absl::Duration keep = absl::Seconds(10);        // longer than a client waits
  };
  // The context outlives the queue, and is shut down before the queue goes.
  AbortQueue(ZmqContext* context, Options options);
  ~AbortQueue();

  // Those that wait with one request id are one.
  AbortResult Abort(const std::string& request_id);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Waiting {
    std::string request_id;
    std::optional<uint64_t> stream;  // that ran when it came
    SteadyTime due;                  // the next ask
    SteadyTime expires;
    std::promise<absl::Status> promise = {};
    AbortResult result = promise.get_future().share();
    bool was_unanswered = false;  // an ask that may have ended it
    absl::Status last = absl::DeadlineExceededError("the daemon has answered none of its asks");
  };
  void Run();
  // Nullopt at the end.
  std::optional<Waiting> Next();
  // Nullopt: ask again.
  std::optional<absl::Status> Ask(RequestSocket* asker, Waiting* one) const;
  void AskAgain(Waiting one);
  void Finish(Waiting* one, const absl::Status& status) const;

  ZmqContext* const context_;
  const Options options_;
  absl::Mutex mutex_;
  absl::CondVar news_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace specd::http
