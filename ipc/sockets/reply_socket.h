// ReplySocket answers requests of REQ sockets, of this process's own threads and of other
// processes.
//
// The twin of PullSocket. Threads of this process ask over inproc://, which libzmq serves. Other
// processes ask over ipc:// and tcp://, which a PeerSet serves. A peer asks again once it has read
// its answer. A peer whose next request is there before, or that has not read an answer after
// `answer_max`, is disconnected. So a Step answers each peer once. The answers that wait are
// bounded in bytes. Beyond the bound a peer gets `busy`, unless no answer waits for its user: slow
// peers of one user keep no other user waiting. All peers over TCP are one user. One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ipc/sockets/peer_set.h"
#include "ipc/sockets/wait_set.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd {

struct ReplyOptions {
  AcceptRules accept = {};
  size_t waiting_bytes_max = size_t{4} << 20;     // answers that no peer has read yet
  std::string busy = {};                          // the answer where there is no room for another
  absl::Duration answer_max = absl::Seconds(10);  // to read an answer in, whatever its size
  // Called in Step with a sentence about a peer that is disconnected.
  std::function<void(std::string_view what)> on_trouble = [](std::string_view) {};
};

class ReplySocket {
 public:
  // Those that the kernel names no user for: this process's threads, and peers over TCP.
  static constexpr uint32_t kNoUser = UINT32_MAX;
  using Answer = absl::FunctionRef<std::string(std::string_view request, uint32_t uid)>;

  static absl::StatusOr<ReplySocket> Make(ZmqContext* context, const ReplyOptions& options);

  absl::Status Bind(const std::string& endpoint);

  // What a thread waits for that calls Step. REQUIRES: all endpoints are bound.
  void AddTo(WaitSet* waits) const;

  // Answers a few of the requests that are there; true if there were any. Never blocks.
  bool Step(Answer answer);

  // Of the answers that wait.
  size_t waiting_bytes() const { return state_->waiting_bytes; }

 private:
  struct Asker;
  struct State {  // at one address: the handlers name it
    ReplyOptions options;
    const Answer* answer = nullptr;  // of Step
    uint64_t step = 0;
    bool has_answered = false;  // in it
    size_t waiting_bytes = 0;
    std::map<uint32_t, size_t> waiting_of = {};  // by user; those with an answer that waits
    std::vector<std::unique_ptr<PeerSet>> outside = {};
  };
  ReplySocket(ZmqSocket inside, const ReplyOptions& options);

  static absl::Status Take(ZmtpInput kind, std::string_view body, State* state, Asker* asker);
  // Sends what waits for the peer, as far as its connection takes it. False: the connection broke.
  static bool Send(State* state, Asker* asker);
  // So many bytes more, or fewer, wait for the peer.
  static void Add(size_t bytes, State* state, const Asker& asker);
  static void Remove(size_t bytes, State* state, const Asker& asker);

  std::unique_ptr<State> state_;
  ZmqSocket inside_;
  std::vector<std::string> frames_;
};

}  // namespace specd
