// PullSocket takes messages of a topic and a payload from PUSH sockets, of this process's own
// threads and of other processes.
//
// The twin of PublishSocket. Threads of this process push over inproc://, which libzmq serves.
// Other processes push over ipc:// and tcp://, which a PeerSet serves. What a peer has sent stays
// in its connection until Receive, so it costs no memory here. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/sockets/peer_set.h"
#include "ipc/sockets/wait_set.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd {

struct PullOptions {
  AcceptRules accept = {};
  // Called in Receive with a sentence about a peer that is disconnected.
  std::function<void(std::string_view what)> on_trouble = [](std::string_view) {};
};

class PullSocket {
 public:
  // If it refuses the message, the process that sent it is disconnected.
  using Take = absl::FunctionRef<absl::Status(std::string_view topic, std::string_view payload)>;

  static absl::StatusOr<PullSocket> Make(ZmqContext* context, const PullOptions& options);

  absl::Status Bind(const std::string& endpoint);

  // What a thread waits for that calls Receive. REQUIRES: all endpoints are bound.
  void AddTo(WaitSet* waits) const;

  // Takes no more than a few messages of each peer; false if none was complete. Never blocks.
  bool Receive(Take take);

 private:
  PullSocket(ZmqSocket inside, const PullOptions& options);

  PullOptions options_;
  ZmqSocket inside_;
  std::vector<std::string> frames_;
  struct Call {  // of Receive
    const Take* take = nullptr;
    int received = 0;
  };
  std::unique_ptr<Call> call_;  // at one address: the handlers name it
  std::vector<std::unique_ptr<PeerSet>> outside_;
};

}  // namespace specd
