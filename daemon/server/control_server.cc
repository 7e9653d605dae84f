#include "daemon/server/control_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/base/logging.h"
#include "daemon/base/mps.h"
#include "ipc/base/descriptors.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr mode_t kSocketMode = 0660;
// Time in which the server looked. An idle server looks once a second.
constexpr int64_t kHelloNs = 5'000'000'000;
constexpr absl::Duration kSendTimeout = absl::Milliseconds(100);
// Connections without a hello that may exist beside the sessions.
constexpr size_t kStrangersMax = 16;
// The descriptors that are polled before those of the connections.
constexpr size_t kOwnFds = 3;

// A constraint such as json_object has no text, and its first use still takes long.
bool NamesConstraint(const ControlHeader& header, std::span<const uint8_t> message) {
  const absl::StatusOr<Request> request = DecodeRequest(header, message);
  if (!request.ok()) return false;
  const auto* const opening = std::get_if<OpenSequenceRequest>(&*request);
  return opening != nullptr &&
         std::any_of(opening->numbers.begin(), opening->numbers.end(),
                     [](const auto& number) { return number.first == "grammar_kind"; });
}

// Tells whether a thread of its own handles the message. A prompt and the text of a constraint
// travel in a file beside the message; an opening without one and without a constraint is short. A
// trace waits for the disk. The session is asked for because only a Hello and a Join change a
// service, and the control thread looks at it while the other thread handles.
bool IsLong(const ControlService& service, std::span<const uint8_t> message,
            const std::vector<UniqueFd>& fds) {
  if (service.session() == nullptr) return false;
  const absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kDaemon);
  if (!header.ok()) return false;
  return header->type == ControlType::kDumpTrace || header->type == ControlType::kOpenSequences ||
         (header->type == ControlType::kOpenSequence &&
          (!fds.empty() || NamesConstraint(*header, message)));
}

// Readable once the process has ended. None for a process that this one cannot see.
UniqueFd OpenProcess(int32_t pid) {
  return UniqueFd(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Create(const Options& options) {
  absl::StatusOr<InstanceLock> lock = InstanceLock::Take(options.path, "listen");
  if (!lock.ok()) return lock.status();
  absl::StatusOr<UnixListener> listener = UnixListener::Bind(options.path, kSocketMode);
  if (!listener.ok()) return listener.status();
  absl::StatusOr<std::unique_ptr<OpeningThreads>> openings = OpeningThreads::Create();
  if (!openings.ok()) return openings.status();
  return std::unique_ptr<ControlServer>(
      new ControlServer(options, *std::move(lock), *std::move(listener), *std::move(openings)));
}

ControlServer::ControlServer(const Options& options, InstanceLock lock, UnixListener listener,
                             std::unique_ptr<OpeningThreads> openings)
    : options_(options),
      awake_(kHelloNs / 4),
      lock_(std::move(lock)),
      listener_(std::move(listener)),
      openings_(std::move(openings)),
      buffer_(kControlBytesMax) {}

ControlServer::~ControlServer() { Close(); }

void ControlServer::Close() {
  openings_->Stop();  // from here on no thread uses a service
  for (const auto& connection : connections_) {
    if (!connection->dropped) Drop(*connection);
  }
  connections_.clear();
  listener_.reset();
}

void ControlServer::Run(int wake_fd) {
  std::vector<pollfd> polled;
  while (true) {
    polled.assign({{wake_fd, POLLIN, 0},
                   {accepting_ ? listener_->fd() : -1, POLLIN, 0},
                   {openings_->fd(), POLLIN, 0}});
    accepting_ = true;
    for (const auto& connection : connections_) {
      // A busy engine's next message waits in the socket, but its hang-up is seen.
      const short events = connection->busy ? POLLRDHUP : POLLIN;
      polled.push_back({connection->dropped ? -1 : connection->socket.fd(), events, 0});
    }
    for (const auto& connection : connections_) {
      polled.push_back({connection->dropped ? -1 : connection->process.get(), POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), 1000) < 0 && errno != EINTR) {
      Log("attach").error("poll: {}", std::strerror(errno));
      return;
    }
    awake_.Step(options_.clock->NowNs());
    if (polled[0].revents != 0) return;
    if (polled[2].revents != 0) AnswerOpenings();
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = *connections_[i];
      if (connection.dropped) continue;  // with its session, or while it was busy
      const bool is_quiet = polled[i + kOwnFds].revents == 0;
      const bool has_ended = polled[i + kOwnFds + connections_.size()].revents != 0;
      const bool keep = !has_ended && IsWelcome(connection) &&
                        (is_quiet || (!connection.busy && ServeOne(connection)));
      if (!keep) Drop(connection);
    }
    std::erase_if(connections_,
                  [](const auto& connection) { return connection->dropped && !connection->busy; });
    if (polled[1].revents != 0) AcceptOne();
  }
}

// False for a connection that takes too long with its hello. False for a connection whose session
// has ended, for example because the engine broke its rings.
bool ControlServer::IsWelcome(const Connection& connection) const {
  const std::shared_ptr<Session>& session = connection.service->session();
  if (session != nullptr) return !session->ended();
  const MemberSession* const member = connection.service->member();
  if (member != nullptr) return !member->session().ended();
  return awake_.now_ns() <= connection.deadline_ns;
}

void ControlServer::AcceptOne() {
  absl::StatusOr<std::optional<UnixConnection>> accepted = listener_->Accept(absl::ZeroDuration());
  if (!accepted.ok()) {
    // The connection stays in the queue and the listener stays readable, so the next look does not
    // accept.
    LogOfPeer({"attach", spdlog::level::err, "accept"}, "accept: {}",
              std::string(accepted.status().message()));
    accepting_ = false;
    return;
  }
  if (!accepted->has_value()) return;
  // Users who may not attach get an answer too. They have places of their own, and cannot take
  // those of allowed users.
  const bool allowed = IsAllowed((*accepted)->peer());
  // Ranks that have joined are few for each session. The session counts them.
  const auto alike =
      std::count_if(connections_.begin(), connections_.end(), [this, allowed](const auto& other) {
        return other->service->member() == nullptr && IsAllowed(other->socket.peer()) == allowed;
      });
  if (static_cast<size_t>(alike) >= (allowed ? options_.max_sessions : 0) + kStrangersMax ||
      IsReservedFrom(Peer::kEngine, (*accepted)->fd())) {
    LogOfPeer({"attach", spdlog::level::warn, "crowd", (*accepted)->peer().uid},
              "{} connections: one more is turned away", alike);
    return;
  }
  std::unique_ptr<ControlService> service = MakeService((*accepted)->peer());
  UniqueFd process = OpenProcess((*accepted)->peer().pid);
  connections_.push_back(
      std::make_unique<Connection>(Connection{.socket = **std::move(accepted),
                                              .process = std::move(process),
                                              .service = std::move(service),
                                              .deadline_ns = awake_.now_ns() + kHelloNs}));
}

bool ControlServer::IsAllowed(const PeerCredentials& peer) const {
  const std::vector<uint32_t>& allowed = options_.allowed_uids;
  return peer.uid == geteuid() ||
         std::find(allowed.begin(), allowed.end(), peer.uid) != allowed.end();
}

absl::Status ControlServer::CheckAllowed(const PeerCredentials& peer) const {
  if (IsAllowed(peer)) return absl::OkStatus();
  LogOfPeer({"attach", spdlog::level::warn, "uid", peer.uid}, "user {} (pid {}) is not allowed",
            peer.uid, peer.pid);
  return MakeError(SPECD_ERROR_PERMISSION, "uid",
                   fmt::format("uid {} may not attach; this daemon serves uid {} and those of "
                               "--allow_uid",
                               peer.uid, geteuid()));
}

absl::StatusOr<std::unique_ptr<MemberSession>> ControlServer::Join(const JoinRequest& request,
                                                                   const PeerCredentials& peer) {
  if (absl::Status status = CheckAllowed(peer); !status.ok()) return status;
  const std::optional<JoinToken> token = ParseJoinToken(request.token);
  if (!token.has_value()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "token",
                     fmt::format("token has {} bytes and is not of the form of one; pass what "
                                 "specd_get_group gives to the engine, unchanged",
                                 request.token.size()));
  }
  for (const auto& connection : connections_) {
    const std::shared_ptr<Session>& session = connection->service->session();
    if (session != nullptr && session->options().identity.session_id == token->session_id) {
      return MemberSession::Join(session, *token, request.rank);
    }
  }
  return MakeError(SPECD_ERROR_NOT_FOUND, "token",
                   fmt::format("token is of session {}, which is not here: it has ended, or is one "
                               "of another daemon; join the engine's new session with the token of "
                               "that one",
                               token->session_id));
}

std::unique_ptr<ControlService> ControlServer::MakeService(const PeerCredentials& peer) {
  ControlHost host;
  host.hello = options_.hello;
  host.serve = options_.serve;
  host.peer_pid = peer.pid;
  host.join = [this, peer](const JoinRequest& request) {
    absl::StatusOr<std::unique_ptr<MemberSession>> member = Join(request, peer);
    if (member.ok()) {
      Log("attach").info("session {}: rank {} joined, \"{}\" (pid {}, uid {}, library {})",
                         (*member)->session().options().identity.session_id, request.rank,
                         Printable(request.name), peer.pid, peer.uid, Printable(request.version));
    } else {
      // The token is not logged: it is as good as a key.
      LogOfPeer({"attach", spdlog::level::warn, "rank refused", peer.uid},
                "rank {}, \"{}\" (pid {}) refused: {}", request.rank, Printable(request.name),
                peer.pid, std::string(member.status().message()));
    }
    return member;
  };
  host.open_session =
      [this, peer](const HelloRequest& request) -> absl::StatusOr<std::shared_ptr<Session>> {
    if (absl::Status status = CheckAllowed(peer); !status.ok()) return status;
    size_t attached = 0;
    for (const auto& connection : connections_) {
      attached += !connection->dropped && connection->service->session() != nullptr ? 1 : 0;
    }
    if (attached >= options_.max_sessions) {
      return MakeError(
          SPECD_ERROR_EXHAUSTED, "max_sessions",
          fmt::format("{} engines are attached, as many as --max_sessions allows", attached));
    }
    absl::StatusOr<std::shared_ptr<Session>> session = options_.open_session(request);
    if (session.ok()) {
      Log("attach").info(
          "session {}: \"{}\" (pid {}, uid {}, library {}), profile \"{}\", vocab {}, batch {}, "
          "draft {}",
          (*session)->options().identity.session_id, Printable(request.name), peer.pid, peer.uid,
          Printable(request.version), Printable(request.profile), request.limits.vocab_size,
          request.limits.max_batch, request.limits.max_draft);
      if (!options_.hello.device_uuid.empty()) {
        const Sharing sharing = ForeseeSharing(options_.hello.mps);
        Log("attach").log(
            sharing.mode == SPECD_SHARING_MPS ? spdlog::level::info : spdlog::level::warn,
            "session {}: {}", (*session)->options().identity.session_id, sharing.text);
      }
    } else {
      LogOfPeer({"attach", spdlog::level::warn, "refused", peer.uid}, "\"{}\" (pid {}) refused: {}",
                Printable(request.name), peer.pid, std::string(session.status().message()));
    }
    return session;
  };
  return std::make_unique<ControlService>(std::move(host));
}

bool ControlServer::ServeOne(Connection& connection) {
  std::vector<UniqueFd> fds;
  absl::StatusOr<Received> received =
      connection.socket.Receive(buffer_, &fds, absl::ZeroDuration());
  if (!received.ok()) {
    const PeerCredentials& peer = connection.socket.peer();
    LogOfPeer({"attach", spdlog::level::warn, "unreadable", peer.uid}, "pid {}: {}", peer.pid,
              std::string(received.status().message()));
    return false;
  }
  if (received->result == ReceiveResult::kTimeout) return true;
  if (received->result == ReceiveResult::kHangup) return false;
  const std::span<const uint8_t> message(buffer_.data(), received->size_bytes);
  ControlService& service = *connection.service;
  if (IsLong(service, message, fds)) {
    connection.busy = true;
    openings_->Begin(
        {.service = &service, .message = {message.begin(), message.end()}, .fds = std::move(fds)});
    return true;
  }
  return Send(connection, service.Handle(message, std::move(fds)));
}

void ControlServer::AnswerOpenings() {
  for (const OpeningThreads::Handled& handled : openings_->TakeHandled()) {
    const auto found = std::find_if(
        connections_.begin(), connections_.end(),
        [&handled](const auto& other) { return other->service.get() == handled.service; });
    SPECD_CHECK(found != connections_.end());
    Connection& connection = **found;
    connection.busy = false;
    if (!connection.dropped && !Send(connection, handled.answer)) Drop(connection);
  }
}

bool ControlServer::Send(Connection& connection, const ControlService::Answer& answer) {
  const std::span<const int> answer_fds(&answer.fd, answer.fd >= 0 ? 1 : 0);
  return connection.socket.Send(answer.message, answer_fds, kSendTimeout).ok() && !answer.close &&
         IsAllowed(connection.socket.peer());
}

void ControlServer::DropMember(const Connection& connection) {
  MemberSession& member = *connection.service->member();
  member.Leave();
  if (member.session().ended()) return;
  Log("attach").info(
      "session {}: rank {} (pid {}) is gone; its slot outputs are not written any more, and the "
      "session goes on",
      member.session().options().identity.session_id, member.rank(), connection.socket.peer().pid);
}

void ControlServer::Drop(Connection& connection) {
  connection.dropped = true;
  if (connection.service->member() != nullptr) return DropMember(connection);
  const std::shared_ptr<Session>& session = connection.service->session();
  if (session == nullptr) return;
  session->EndAll();
  // A busy connection stays until its opening is done, and its engine may wait for the hang-up.
  if (connection.busy) connection.socket.FinishSending();
  // The session's ranks go now; they must not wait for the next look.
  for (const auto& other : connections_) {
    const MemberSession* const member = other->service->member();
    if (!other->dropped && member != nullptr && &member->session() == session.get()) Drop(*other);
  }
  const VerifierCounters sums = session->counters();
  const double per_round =
      sums.sequence_rounds == 0
          ? 0.0
          : static_cast<double>(sums.accepted) / static_cast<double>(sums.sequence_rounds);
  Log("attach").info(
      "session {} ended: {} rounds, {} tokens, {} drafts of which {} accepted ({:.2f} per sequence "
      "and round), bad rows {}, empty residuals {}, invalid drafts {}, point masses {}, invalid "
      "records {}",
      session->options().identity.session_id, sums.rounds, sums.kept, sums.drafted, sums.accepted,
      per_round, sums.bad_target_rows + sums.bad_draft_rows, sums.empty_residuals,
      sums.invalid_drafts, sums.point_masses, sums.invalid_records);
}

}  // namespace specd
