// PeerSet accepts the peers of an endpoint and reads what they send, for Broadcaster, PullSocket
// and ReplySocket.
//
// It speaks ZMTP 3 (zmtp.h). A peer costs this process its connection and the beginning of one
// frame. A peer that breaks the rules, or does not complete its handshake in time, is disconnected,
// counted and told of. One thread uses it; any thread may call Ring and num_disconnected.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ipc/base/unique_fd.h"
#include "ipc/sockets/accept_gate.h"
#include "ipc/sockets/socket_listener.h"
#include "ipc/sockets/zmtp.h"

namespace specd {

// One connection. The owner of a PeerSet derives its own from it.
struct ZmtpPeer {
  explicit ZmtpPeer(ZmtpRole role) : reader(role) {}
  virtual ~ZmtpPeer() = default;

  UniqueFd fd;
  std::string name;  // for the log
  ZmtpReader reader;
  absl::Time accepted_at = absl::InfinitePast();
};

class PeerSet {
 public:
  struct Options {
    ZmtpRole role = ZmtpRole::kPublisher;
    AcceptRules accept = {};
    absl::Duration handshake_max = absl::Seconds(30);
    absl::Duration inspection_interval = absl::Seconds(1);
    int turns_max = 64;  // peers that one Step serves
    // Called with a sentence about a peer.
    std::function<void(std::string_view what)> on_trouble = [](std::string_view) {};
  };
  // What the owner does with its peers, called in Step and by Disconnect and Close.
  struct Handlers {
    std::function<std::unique_ptr<ZmtpPeer>()> make;
    // If the input is refused, the peer is disconnected.
    std::function<absl::Status(ZmtpPeer*, ZmtpInput, std::string_view body)> take;
    std::function<void(ZmtpPeer*)> send = [](ZmtpPeer*) {};  // the socket takes bytes again
    // Regularly, and never within another of these.
    std::function<void(ZmtpPeer*, absl::Time now)> inspect = [](ZmtpPeer*, absl::Time) {};
    std::function<void(ZmtpPeer*)> leave = [](ZmtpPeer*) {};  // the connection is closed
  };

  static absl::StatusOr<std::unique_ptr<PeerSet>> Listen(const std::string& endpoint,
                                                         const Options& options, Handlers handlers);
  ~PeerSet();
  PeerSet(const PeerSet&) = delete;
  PeerSet& operator=(const PeerSet&) = delete;

  // Waits until a peer says something, may be sent something or comes, or Ring is called; then
  // serves it. Afterwards closed peers are still there, until Sweep.
  void Step(absl::Duration timeout);
  // Destroys closed peers, and looks at the others if it is time.
  void Sweep();
  void Ring();
  // Readable while Step would find something.
  int fd() const { return poller_.get(); }

  // Chooses whether Handlers::send is called for the peer.
  void WatchRoom(bool wanted, ZmtpPeer* peer);
  void Disconnect(std::string_view why, ZmtpPeer* peer);
  void Close(ZmtpPeer* peer);

  const std::string& endpoint() const { return listener_.endpoint(); }
  const std::vector<std::unique_ptr<ZmtpPeer>>& peers() const { return peers_; }
  uint64_t num_disconnected() const { return num_disconnected_.load(std::memory_order_relaxed); }

  // A set clock or a suspended machine ends no peer.
  static absl::Time Now();

 private:
  PeerSet(SocketListener listener, UniqueFd poller, UniqueFd bell, const Options& options,
          Handlers handlers);

  void Admit();
  void Read(ZmtpPeer* peer);

  const Options options_;
  const Handlers handlers_;
  SocketListener listener_;
  const UniqueFd poller_;
  const UniqueFd bell_;
  std::vector<std::unique_ptr<ZmtpPeer>> peers_;
  std::vector<std::unique_ptr<ZmtpPeer>> closed_;  // until events of this step name them no more
  absl::Time next_inspection_ = absl::InfinitePast();
  std::atomic<uint64_t> num_disconnected_{0};
};

}  // namespace specd
