#include "daemon/server/control_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/base/logging.h"
#include "daemon/server/user_places.h"
#include "ipc/base/descriptors.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/grammar/base/compile_cancel.h"

namespace specd {
namespace {

constexpr mode_t kSocketMode = 0660;
// An idle server looks this often.
constexpr int kLookMs = 500;
// Time in which the server looked.
constexpr int64_t kHelloNs = 5'000'000'000;
// Connections without a hello that may exist beside the sessions.
constexpr size_t kStrangersMax = 16;
// Connections that are accepted between two looks at the others.
constexpr int kAcceptsMax = 16;
// The descriptors that are polled before those of the connections.
constexpr size_t kOwnFds = 3;

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Create(const Options& options,
                                                                     UniqueFd listening) {
  const bool binds = !listening.valid();
  absl::StatusOr<InstanceLock> lock = InstanceLock::Take(options.path, "listen", binds);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<UnixListener> listener = binds ? UnixListener::Bind(options.path, kSocketMode)
                                                : UnixListener::Adopt(std::move(listening));
  if (!listener.ok()) return listener.status();
  absl::StatusOr<std::unique_ptr<OpeningThreads>> openings = OpeningThreads::Create();
  if (!openings.ok()) return openings.status();
  return std::unique_ptr<ControlServer>(
      new ControlServer(options, *std::move(lock), *std::move(listener), *std::move(openings)));
}

ControlServer::ControlServer(const Options& options, InstanceLock lock, UnixListener listener,
                             std::unique_ptr<OpeningThreads> openings)
    : options_(options),
      meters_(options.meters == nullptr ? own_meters_ : *options.meters),
      awake_(kHelloNs / 4),
      lock_(std::move(lock)),
      listener_(std::move(listener)),
      openings_(std::move(openings)),
      operator_(
          {.sessions = options_.sessions, .clock = options_.clock, .on_drain = options_.on_drain}),
      attachments_({.options = &options_,
                    .meters = &meters_,
                    .connections = &connections_,
                    .pending = &pending_,
                    .operators = &operator_}),
      buffer_(kControlBytesMax) {}

ControlServer::~ControlServer() { Close(); }

void ControlServer::Close() {
  // From here on no thread uses a service. A compile that gives up leaves its sequence pending.
  openings_->Stop();
  // Ranks that have left since the last look are not awaited at the next daemon.
  for (const auto& connection : connections_) {
    const bool is_rank = connection->service->member() != nullptr;
    if (!connection->dropped && is_rank && connection->socket.PeerGone()) Drop(*connection);
  }
  // Sessions go before their ranks, which the next daemon awaits if they are here to the end.
  for (const bool is_engine : {true, false}) {
    for (const auto& connection : connections_) {
      const bool has_session = connection->service->session() != nullptr;
      if (!connection->dropped && has_session == is_engine) Drop(*connection);
    }
  }
  {
    const grammar::CompileCancel cancel;
    pending_.Stop();
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
      polled.push_back(
          {connection->dropped ? -1 : connection->socket.fd(), connection->events(), 0});
    }
    for (const auto& connection : connections_) {
      polled.push_back({connection->dropped ? -1 : connection->process.get(), POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), kLookMs) < 0 && errno != EINTR) {
      Log("attach").error("poll: {}", std::strerror(errno));
      return;
    }
    awake_.Step(options_.clock->NowNs());
    ++meters_.beats;
    if (polled[0].revents != 0 || IsDrained()) return;
    if (polled[2].revents != 0) AnswerOpenings();
    for (size_t i = 0; i < connections_.size(); ++i) {
      ControlConnection& connection = *connections_[i];
      if (connection.dropped) continue;  // with its session, or while it was busy
      const short events = polled[i + kOwnFds].revents;
      const bool has_ended = polled[i + kOwnFds + connections_.size()].revents != 0;
      const bool keep =
          !has_ended && IsWelcome(connection) && (events == 0 || ServeOne(connection, events));
      if (!keep) Drop(connection);
    }
    std::erase_if(connections_,
                  [](const auto& connection) { return connection->dropped && !connection->busy; });
    CountSessions();
    if (polled[1].revents == 0) continue;
    for (int i = 0; i < kAcceptsMax && AcceptOne(); ++i) continue;
  }
}

// An opening under way has no sequence yet.
bool ControlServer::IsDrained() const {
  return operator_.IsDrained() &&
         std::none_of(connections_.begin(), connections_.end(),
                      [](const auto& connection) { return connection->busy; });
}

void ControlServer::CountSessions() {
  const auto attached = std::count_if(
      connections_.begin(), connections_.end(),
      [](const auto& each) { return !each->dropped && each->service->session() != nullptr; });
  meters_.sessions.Set(static_cast<uint64_t>(attached));
}

// False for a connection that takes too long with its hello. False for a connection whose session
// has ended, for example because the engine broke its rings.
bool ControlServer::IsWelcome(const ControlConnection& connection) const {
  const std::shared_ptr<Session>& session = connection.service->session();
  if (session != nullptr) return !session->ended();
  const MemberSession* const member = connection.service->member();
  if (member != nullptr) return !member->session().ended();
  return awake_.now_ns() <= connection.deadline_ns;
}

bool ControlServer::AcceptOne() {
  absl::StatusOr<std::optional<UnixConnection>> accepted = listener_->Accept(absl::ZeroDuration());
  if (!accepted.ok()) {
    // The connection stays in the queue and the listener stays readable, so the next look does not
    // accept.
    LogOfPeer({"attach", spdlog::level::err, "accept"}, "accept: {}",
              std::string(accepted.status().message()));
    accepting_ = false;
    return false;
  }
  if (!accepted->has_value()) return false;
  PeerCredentials peer = (*accepted)->peer();
  if (options_.identify) peer = options_.identify(peer);
  if (!MakeRoom(peer, (*accepted)->fd())) {
    LogOfPeer({"attach", spdlog::level::warn, "crowd", peer.uid},
              "{} connections: one more, of uid {} (pid {}), is turned away", connections_.size(),
              peer.uid, peer.pid);
    return true;
  }
  connections_.push_back(std::make_unique<ControlConnection>(
      ControlConnection{.socket = **std::move(accepted),
                        .peer = peer,
                        .allowed = attachments_.MayAsk(peer),
                        .process = OpenProcess(peer.pid),
                        .service = attachments_.MakeService(peer),
                        .deadline_ns = awake_.now_ns() + kHelloNs}));
  return true;
}

size_t ControlServer::NumPlaces(bool allowed) const {
  return (allowed ? options_.max_sessions : 0) + kStrangersMax;
}

bool ControlServer::MakeRoom(const PeerCredentials& peer, int fd) {
  // Users who may not attach get an answer too. They have places of their own, and cannot take
  // those of allowed users.
  const bool allowed = attachments_.MayAsk(peer);
  // Ranks that have joined are few for each session. The session counts them.
  const auto alike =
      std::count_if(connections_.begin(), connections_.end(), [allowed](const auto& other) {
        return other->service->member() == nullptr && other->allowed == allowed;
      });
  if (static_cast<size_t>(alike) < NumPlaces(allowed) && !IsReservedFrom(Peer::kEngine, fd)) {
    return true;
  }
  const Newcomer newcomer{.uid = peer.uid, .allowed = allowed};
  ControlConnection* former = FindWhoGivesWay(connections_, newcomer);
  // Its hello may have come since the last look.
  while (former != nullptr && !former->has_spoken) {
    if (!HandleMessage(*former)) Drop(*former);
    if (!former->has_spoken || former->dropped) break;
    former = FindWhoGivesWay(connections_, newcomer);
  }
  if (former == nullptr) return false;
  if (!former->dropped) {
    LogOfPeer({"attach", spdlog::level::warn, "silent", former->peer.uid},
              "a connection of uid {} (pid {}) that has not attached gives way to another",
              former->peer.uid, former->peer.pid);
  }
  std::erase_if(connections_, [former](const auto& other) { return other.get() == former; });
  return true;
}

bool ControlServer::ServeOne(ControlConnection& connection, short events) {
  if (connection.busy) return false;  // it has hung up
  if (!connection.waiting.has_value()) return HandleMessage(connection);
  return events == POLLOUT && connection.SendWaiting() != ControlConnection::Sent::kBroken;
}

bool ControlServer::HandleMessage(ControlConnection& connection) {
  std::vector<UniqueFd> fds;
  absl::StatusOr<Received> received =
      connection.socket.Receive(buffer_, &fds, absl::ZeroDuration());
  if (!received.ok()) {
    const PeerCredentials& peer = connection.peer;
    LogOfPeer({"attach", spdlog::level::warn, "unreadable", peer.uid}, "pid {}: {}", peer.pid,
              std::string(received.status().message()));
    return false;
  }
  if (received->result == ReceiveResult::kTimeout) return true;
  if (received->result == ReceiveResult::kHangup) return false;
  connection.has_spoken = true;
  const std::span<const uint8_t> message(buffer_.data(), received->size_bytes);
  ControlService& service = *connection.service;
  if (IsLong(service, message, fds)) {
    if (!connection.has_attached()) {
      const absl::Status status =
          CheckDumps(connections_, connection, NumPlaces(connection.allowed));
      if (!status.ok()) return Send(connection, service.Refuse(message, status));
    }
    connection.busy = true;
    openings_->Begin(
        {.service = &service, .message = {message.begin(), message.end()}, .fds = std::move(fds)});
    return true;
  }
  return Send(connection, service.Handle(message, std::move(fds)));
}

void ControlServer::AnswerOpenings() {
  for (OpeningThreads::Handled& handled : openings_->TakeHandled()) {
    const auto found = std::find_if(
        connections_.begin(), connections_.end(),
        [&handled](const auto& other) { return other->service.get() == handled.service; });
    SPECD_CHECK(found != connections_.end());
    ControlConnection& connection = **found;
    connection.busy = false;
    if (!connection.dropped && !Send(connection, std::move(handled.answer))) Drop(connection);
  }
}

bool ControlServer::Send(ControlConnection& connection, ControlService::Answer answer) {
  const PeerCredentials& peer = connection.peer;
  const bool is_last = answer.close || !connection.allowed;
  if (answer.error_code != SPECD_OK) {
    ++meters_.refused_requests[static_cast<size_t>(-answer.error_code) % PerError::size()];
  }
  const ControlConnection::Sent sent = connection.Send(std::move(answer));
  if (sent == ControlConnection::Sent::kWaits) {
    LogOfPeer({"attach", spdlog::level::warn, "unread", peer.uid},
              "pid {} does not read its replies; its next message waits until it does", peer.pid);
  }
  return sent != ControlConnection::Sent::kBroken && !is_last;
}

void ControlServer::DropMember(const ControlConnection& connection) {
  MemberSession& member = *connection.service->member();
  member.Leave();
  if (member.session().ended()) return;
  Log("attach").info(
      "session {}: rank {} (pid {}) is gone; its slot outputs are not written any more, and the "
      "session goes on",
      member.session().options().identity.session_id, member.rank(), connection.peer.pid);
}

void ControlServer::Drop(ControlConnection& connection) {
  connection.dropped = true;
  if (connection.service->member() != nullptr) return DropMember(connection);
  const std::shared_ptr<Session>& session = connection.service->session();
  if (session == nullptr) return;
  session->EndAll();
  attachments_.NoteEnd(*session);
  // A busy connection stays until its opening is done, and its engine may wait for the hang-up.
  if (connection.busy) connection.socket.FinishSending();
  // The session's ranks go now; they must not wait for the next look.
  for (const auto& other : connections_) {
    const MemberSession* const member = other->service->member();
    if (!other->dropped && member != nullptr && &member->session() == session.get()) Drop(*other);
  }
  const Counters sums = session->counters();
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
