// PublishSocket publishes messages under topics, to this process's own threads and to other
// processes.
//
// Threads of this process subscribe over inproc://, which libzmq serves. Other processes subscribe
// over ipc:// and tcp://, which a Broadcaster serves for each endpoint. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/sockets/broadcaster.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd {

class PublishSocket {
 public:
  static absl::StatusOr<PublishSocket> Make(ZmqContext* context, const BroadcastOptions& options);

  absl::Status Bind(const std::string& endpoint);

  // Waits for no subscriber. An error is one of libzmq. A message that more follow at once may wait
  // for the last of them.
  absl::Status Send(std::string_view topic, std::string_view payload, bool more_follow = false);

  // Messages that late subscribers of other processes have lost, each one's own.
  uint64_t num_lost_messages() const;

 private:
  PublishSocket(ZmqSocket inside, const BroadcastOptions& options);

  BroadcastOptions options_;
  ZmqSocket inside_;
  bool has_inside_ = false;  // threads may subscribe
  std::vector<std::unique_ptr<Broadcaster>> broadcasters_;
};

}  // namespace specd
