#include "ipc/sockets/reply_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace specd {
namespace {

// What one Step answers, so that peers which ask without end delay the caller by little.
constexpr int kTurnsMax = 4;
constexpr int kThreadAnswersMax = 4;

}  // namespace

struct ReplySocket::Asker : ZmtpPeer {
  Asker() : ZmtpPeer(ZmtpRole::kReplier) {}
  std::string waiting = {};  // the rest of its answer
  absl::Time waits_since = absl::InfiniteFuture();
  bool watches_room = false;
};

absl::StatusOr<ReplySocket> ReplySocket::Make(ZmqContext* context, const ReplyOptions& options) {
  absl::StatusOr<ZmqSocket> inside = ZmqSocket::Make(context, ZmqKind::kReply, {});
  if (!inside.ok()) return inside.status();
  return ReplySocket(*std::move(inside), options);
}

ReplySocket::ReplySocket(ZmqSocket inside, const ReplyOptions& options)
    : state_(std::make_unique<State>(State{.options = options})), inside_(std::move(inside)) {}

absl::Status ReplySocket::Bind(const std::string& endpoint) {
  if (endpoint.starts_with("inproc://")) return inside_.Bind(endpoint);
  if (absl::Status status = ValidateEndpoint("endpoint", endpoint); !status.ok()) return status;
  // The handlers run in Step, when the set is there.
  State* const state = state_.get();
  const size_t index = state->outside.size();
  const auto watch = [state, index](Asker* asker) {
    const bool wanted = !asker->waiting.empty();
    if (wanted == std::exchange(asker->watches_room, wanted)) return;
    state->outside[index]->WatchRoom(wanted, asker);
  };
  const auto take = [state, watch](ZmtpPeer* peer, ZmtpInput kind, std::string_view body) {
    auto* const asker = static_cast<Asker*>(peer);
    absl::Status taken = Take(kind, body, state, asker);
    if (taken.ok()) watch(asker);
    return taken;
  };
  const auto send = [state, watch, index](ZmtpPeer* peer) {
    auto* const asker = static_cast<Asker*>(peer);
    if (!Send(state, asker)) return state->outside[index]->Close(peer);
    watch(asker);
  };
  const auto inspect = [state, index](ZmtpPeer* peer, absl::Time now) {
    if (now - static_cast<Asker*>(peer)->waits_since < state->options.deaf_max) return;
    state->outside[index]->Disconnect("it asked and does not read the answer", peer);
  };
  const auto leave = [state](ZmtpPeer* peer) {
    state->waiting_bytes -= static_cast<Asker*>(peer)->waiting.size();
  };
  absl::StatusOr<std::unique_ptr<PeerSet>> peers =
      PeerSet::Listen(endpoint,
                      {.role = ZmtpRole::kReplier,
                       .accept = state->options.accept,
                       .turns_max = kTurnsMax,
                       .on_trouble = state->options.on_trouble},
                      {.make = [] { return std::make_unique<Asker>(); },
                       .take = take,
                       .send = send,
                       .inspect = inspect,
                       .leave = leave});
  if (peers.ok()) state->outside.push_back(*std::move(peers));
  return peers.status();
}

absl::Status ReplySocket::Take(ZmtpInput kind, std::string_view body, State* state, Asker* asker) {
  if (kind == ZmtpInput::kPing && !asker->waiting.empty()) return absl::OkStatus();
  if (kind == ZmtpInput::kPing) {
    asker->waiting = ZmtpPong(body);
  } else if (kind == ZmtpInput::kPayload) {
    if (!asker->waiting.empty()) {
      return absl::ResourceExhaustedError("it asks again before it has read its answer");
    }
    ++state->answered;
    const bool has_room = state->waiting_bytes <= state->options.waiting_bytes_max;
    asker->waiting = ZmtpMessage({}, has_room ? (*state->answer)(body) : state->options.busy);
  } else {
    return absl::OkStatus();
  }
  state->waiting_bytes += asker->waiting.size();
  if (Send(state, asker)) return absl::OkStatus();
  return absl::UnavailableError("its connection broke");
}

bool ReplySocket::Send(State* state, Asker* asker) {
  if (asker->waiting.empty()) return true;
  const ssize_t sent =
      send(asker->fd.get(), asker->waiting.data(), asker->waiting.size(), MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno != EAGAIN && errno != EINTR) return false;
    if (asker->waits_since == absl::InfiniteFuture()) asker->waits_since = PeerSet::Now();
    return true;
  }
  state->waiting_bytes -= static_cast<size_t>(sent);
  asker->waiting.erase(0, static_cast<size_t>(sent));
  // A peer that has its answer holds no memory for another.
  if (asker->waiting.empty()) std::string().swap(asker->waiting);
  asker->waits_since = asker->waiting.empty() ? absl::InfiniteFuture() : PeerSet::Now();
  return true;
}

bool ReplySocket::Step(Answer answer) {
  state_->answer = &answer;
  state_->answered = 0;
  for (const auto& peers : state_->outside) {
    peers->Step(absl::ZeroDuration());
    peers->Sweep();
  }
  for (int i = 0; i < kThreadAnswersMax; ++i) {
    const absl::StatusOr<bool> any = inside_.Receive(&frames_, absl::ZeroDuration());
    if (!any.ok() || !*any) break;
    ++state_->answered;
    const std::string reply = answer(frames_.size() == 1 ? frames_[0] : std::string());
    const std::string_view frames[] = {reply};
    if (!inside_.Send(frames).ok()) break;
  }
  return state_->answered > 0;
}

}  // namespace specd
