#include "ipc/sockets/pull_socket.h"

#include <sys/socket.h>

#include <utility>

namespace specd {
namespace {

// What one Receive takes, so that a peer that sends without end delays the caller by little: 16 KiB
// of four connections (peer_set.cc), and these messages of threads.
constexpr int kTurnsMax = 4;
constexpr int kReceivedMax = 1024;

absl::Status AnswerPing(std::string_view ping, const ZmtpPeer& peer) {
  const std::string pong = ZmtpPong(ping);
  const ssize_t sent = send(peer.fd.get(), pong.data(), pong.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(pong.size())) return absl::OkStatus();
  return absl::ResourceExhaustedError("it does not read the answers to its pings");
}

struct Pusher : ZmtpPeer {
  Pusher() : ZmtpPeer(ZmtpRole::kPuller) {}
  std::string topic;  // of a message whose payload comes next
};

}  // namespace

absl::StatusOr<PullSocket> PullSocket::Make(ZmqContext* context, const PullOptions& options) {
  absl::StatusOr<ZmqSocket> inside = ZmqSocket::Make(context, ZmqKind::kPull, {});
  if (!inside.ok()) return inside.status();
  return PullSocket(*std::move(inside), options);
}

PullSocket::PullSocket(ZmqSocket inside, const PullOptions& options)
    : options_(options), inside_(std::move(inside)), call_(std::make_unique<Call>()) {}

absl::Status PullSocket::Bind(const std::string& endpoint) {
  if (endpoint.starts_with("inproc://")) return inside_.Bind(endpoint);
  if (absl::Status status = ValidateEndpoint("endpoint", endpoint); !status.ok()) return status;
  const auto take = [call = call_.get()](ZmtpPeer* peer, ZmtpInput kind, std::string_view body) {
    std::string& topic = static_cast<Pusher*>(peer)->topic;
    if (kind == ZmtpInput::kPing) return AnswerPing(body, *peer);
    if (kind == ZmtpInput::kTopic) topic = body;
    if (kind != ZmtpInput::kPayload) return absl::OkStatus();
    ++call->received;
    return (*call->take)(topic, body);
  };
  absl::StatusOr<std::unique_ptr<PeerSet>> peers =
      PeerSet::Listen(endpoint,
                      {.role = ZmtpRole::kPuller,
                       .accept = options_.accept,
                       .turns_max = kTurnsMax,
                       .on_trouble = options_.on_trouble},
                      {.make = [] { return std::make_unique<Pusher>(); }, .take = take});
  if (peers.ok()) outside_.push_back(*std::move(peers));
  return peers.status();
}

void PullSocket::AddTo(WaitSet* waits) const {
  waits->Add(&inside_);
  for (const auto& peers : outside_) waits->Add(peers->fd());
}

bool PullSocket::Receive(Take take) {
  *call_ = {.take = &take};
  for (const auto& peers : outside_) {
    peers->Step(absl::ZeroDuration());
    peers->Sweep();
  }
  for (int i = 0; i < kReceivedMax; ++i) {
    const absl::StatusOr<bool> any = inside_.Receive(&frames_, absl::ZeroDuration());
    if (!any.ok() || !*any) break;
    ++call_->received;
    if (frames_.size() == 2) take(frames_[0], frames_[1]).IgnoreError();
  }
  return call_->received > 0;
}

}  // namespace specd
