#include "ipc/sockets/reply_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace specd {
namespace {

// One Step answers so many peers, so that peers which ask without end delay the caller by little.
constexpr int kTurnsMax = 4;
constexpr int kThreadAnswersMax = 4;

// The user of a connection; all those without one are the user -1.
uint32_t UserOf(int fd) {
  ucred peer = {.pid = 0, .uid = ReplySocket::kNoUser, .gid = 0};
  socklen_t size = sizeof(peer);
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer.uid;
}

}  // namespace

struct ReplySocket::Asker : ZmtpPeer {
  Asker() : ZmtpPeer(ZmtpRole::kReplier) {}
  uint32_t uid = kNoUser;
  uint64_t answered_step = 0;
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
    if (now - static_cast<Asker*>(peer)->waits_since < state->options.answer_max) return;
    state->outside[index]->Disconnect(fmt::format("it asked and has not read the answer within {}",
                                                  absl::FormatDuration(state->options.answer_max)),
                                      peer);
  };
  const auto leave = [state](ZmtpPeer* peer) {
    const auto& asker = *static_cast<Asker*>(peer);
    Remove(asker.waiting.size(), state, asker);
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
  if (kind == ZmtpInput::kReady) asker->uid = UserOf(asker->fd.get());
  if (kind == ZmtpInput::kPing && !asker->waiting.empty()) return absl::OkStatus();
  if (kind == ZmtpInput::kPing) {
    asker->waiting = ZmtpPong(body);
  } else if (kind == ZmtpInput::kPayload) {
    // A Step reads each connection once, so the second request of a Step was sent before the answer
    // to the first.
    if (!asker->waiting.empty() || asker->answered_step == state->step) {
      return absl::ResourceExhaustedError("it asks again before it has read its answer");
    }
    asker->answered_step = state->step;
    state->has_answered = true;
    const bool has_room = state->waiting_bytes <= state->options.waiting_bytes_max ||
                          !state->waiting_of.contains(asker->uid);
    asker->waiting =
        ZmtpMessage({}, has_room ? (*state->answer)(body, asker->uid) : state->options.busy);
  } else {
    return absl::OkStatus();
  }
  Add(asker->waiting.size(), state, *asker);
  if (Send(state, asker)) return absl::OkStatus();
  return absl::UnavailableError("its connection broke");
}

bool ReplySocket::Send(State* state, Asker* asker) {
  if (asker->waiting.empty()) return true;
  const ssize_t sent =
      send(asker->fd.get(), asker->waiting.data(), asker->waiting.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
  if (sent > 0) {
    Remove(static_cast<size_t>(sent), state, *asker);
    asker->waiting.erase(0, static_cast<size_t>(sent));
  }
  if (asker->waiting.empty()) {
    // A peer that has its answer holds no memory for another.
    std::string().swap(asker->waiting);
    asker->waits_since = absl::InfiniteFuture();
  } else if (asker->waits_since == absl::InfiniteFuture()) {
    asker->waits_since = PeerSet::Now();
  }
  return true;
}

void ReplySocket::Add(size_t bytes, State* state, const Asker& asker) {
  state->waiting_bytes += bytes;
  state->waiting_of[asker.uid] += bytes;
}

void ReplySocket::Remove(size_t bytes, State* state, const Asker& asker) {
  const auto of_user = state->waiting_of.find(asker.uid);
  if (of_user == state->waiting_of.end()) return;
  state->waiting_bytes -= bytes;
  of_user->second -= bytes;
  if (of_user->second == 0) state->waiting_of.erase(of_user);
}

void ReplySocket::AddTo(WaitSet* waits) const {
  waits->Add(&inside_);
  for (const auto& peers : state_->outside) waits->Add(peers->fd());
}

bool ReplySocket::Step(Answer answer) {
  state_->answer = &answer;
  state_->has_answered = false;
  ++state_->step;
  for (const auto& peers : state_->outside) {
    peers->Step(absl::ZeroDuration());
    peers->Sweep();
  }
  for (int i = 0; i < kThreadAnswersMax; ++i) {
    const absl::StatusOr<bool> any = inside_.Receive(&frames_, absl::ZeroDuration());
    if (!any.ok() || !*any) break;
    state_->has_answered = true;
    const std::string reply = answer(frames_.size() == 1 ? frames_[0] : std::string(), kNoUser);
    const std::string_view frames[] = {reply};
    if (!inside_.Send(frames).ok()) break;
  }
  return state_->has_answered;
}

}  // namespace specd
