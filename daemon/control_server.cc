#include "daemon/control_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/logging.h"
#include "ipc/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr mode_t kSocketMode = 0660;
constexpr int64_t kHelloNs = 5'000'000'000;
constexpr absl::Duration kSendTimeout = absl::Milliseconds(100);
// Connections that have not said hello yet, besides the sessions.
constexpr size_t kStrangersMax = 16;

// An engine's name goes into the log as one line, whatever it holds.
std::string Printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return text;
}

// True if `path` still names the file behind `fd`: the daemon that held the lock before may have
// unlinked it while we waited at the door, and a lock on a file without a name keeps nobody out.
bool StillNamed(int fd, const std::string& path) {
  struct stat opened = {};
  struct stat named = {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

absl::StatusOr<UniqueFd> TakeInstanceLock(const std::string& path) {
  const std::string lock_path = path + ".lock";
  while (true) {
    UniqueFd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock.valid()) {
      return MakeErrnoError(SPECD_ERROR_NOT_FOUND, "listen",
                            fmt::format("cannot open {}", lock_path), errno);
    }
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      return MakeError(
          SPECD_ERROR_STATE, "listen",
          fmt::format("another specd serves {}; stop it, or choose another --listen", path));
    }
    if (StillNamed(lock.get(), lock_path)) return lock;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Create(const Options& options) {
  absl::StatusOr<UniqueFd> lock = TakeInstanceLock(options.path);
  if (!lock.ok()) return lock.status();
  // With the lock in hand a socket file can only be a leftover of a daemon that was killed.
  unlink(options.path.c_str());
  absl::StatusOr<UnixListener> listener = UnixListener::Bind(options.path, kSocketMode);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<ControlServer>(
      new ControlServer(options, *std::move(lock), *std::move(listener)));
}

ControlServer::ControlServer(const Options& options, UniqueFd lock, UnixListener listener)
    : options_(options),
      lock_(std::move(lock)),
      listener_(std::move(listener)),
      buffer_(kControlBytesMax) {}

ControlServer::~ControlServer() {
  Close();
  // The lock file goes while the lock is still held: a daemon that starts now makes a new one.
  unlink((options_.path + ".lock").c_str());
}

void ControlServer::Close() {
  for (const auto& connection : connections_) Drop(*connection);
  connections_.clear();
  if (!listener_.has_value()) return;
  unlink(options_.path.c_str());
  listener_.reset();
}

void ControlServer::Run(int wake_fd) {
  std::vector<pollfd> polled;
  while (true) {
    polled.assign({{wake_fd, POLLIN, 0}, {listener_->fd(), POLLIN, 0}});
    for (const auto& connection : connections_)
      polled.push_back({connection->socket.fd(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), 1000) < 0 && errno != EINTR) {
      Log("attach").error("poll: {}", std::strerror(errno));
      return;
    }
    if (polled[0].revents != 0) return;
    const int64_t now_ns = options_.clock->NowNs();
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = *connections_[i];
      const bool late = connection.service->session() == nullptr && now_ns > connection.deadline_ns;
      if (polled[i + 2].revents != 0 ? ServeOne(connection) : !late) continue;
      Drop(connection);
      connections_[i].reset();
    }
    std::erase(connections_, nullptr);
    if (polled[1].revents != 0) AcceptOne();
  }
}

void ControlServer::AcceptOne() {
  absl::StatusOr<std::optional<UnixConnection>> accepted = listener_->Accept(absl::ZeroDuration());
  if (!accepted.ok()) {
    Log("attach").error("accept: {}", std::string(accepted.status().message()));
    return;
  }
  if (!accepted->has_value()) return;
  if (connections_.size() >= options_.max_sessions + kStrangersMax) {
    Log("attach").warn("{} connections: one more is turned away", connections_.size());
    return;
  }
  std::unique_ptr<ControlService> service = MakeService((*accepted)->peer());
  connections_.push_back(std::make_unique<Connection>(
      Connection{**std::move(accepted), std::move(service), options_.clock->NowNs() + kHelloNs}));
}

std::unique_ptr<ControlService> ControlServer::MakeService(const PeerCredentials& peer) {
  ControlHost host;
  host.hello = options_.hello;
  host.serve = options_.serve;
  host.open_session =
      [this, peer](const HelloRequest& request) -> absl::StatusOr<std::shared_ptr<Session>> {
    const std::vector<uint32_t>& allowed = options_.allowed_uids;
    if (peer.uid != geteuid() &&
        std::find(allowed.begin(), allowed.end(), peer.uid) == allowed.end()) {
      Log("attach").warn("user {} (pid {}) is not allowed", peer.uid, peer.pid);
      return MakeError(SPECD_ERROR_PERMISSION, "uid",
                       fmt::format("uid {} may not attach; this daemon serves uid {} and those of "
                                   "--allow_uid",
                                   peer.uid, geteuid()));
    }
    size_t attached = 0;
    for (const auto& connection : connections_) {
      attached += connection->service->session() != nullptr ? 1 : 0;
    }
    if (attached >= options_.max_sessions) {
      return MakeError(
          SPECD_ERROR_EXHAUSTED, "max_sessions",
          fmt::format("{} engines are attached, as many as --max_sessions allows", attached));
    }
    absl::StatusOr<std::shared_ptr<Session>> session = options_.open_session(request);
    if (session.ok()) {
      Log("attach").info(
          "session {}: \"{}\" (pid {}, uid {}, library {}), vocab {}, batch {}, draft {}",
          (*session)->options().identity.session_id, Printable(request.name), peer.pid, peer.uid,
          Printable(request.version), request.limits.vocab_size, request.limits.max_batch,
          request.limits.max_draft);
    } else {
      Log("attach").warn("\"{}\" (pid {}) refused: {}", Printable(request.name), peer.pid,
                         std::string(session.status().message()));
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
    Log("attach").warn("pid {}: {}", connection.socket.peer().pid,
                       std::string(received.status().message()));
    return false;
  }
  if (received->result == ReceiveResult::kTimeout) return true;
  if (received->result == ReceiveResult::kHangup) return false;
  const ControlService::Answer answer =
      connection.service->Handle({buffer_.data(), received->size_bytes}, std::move(fds));
  const std::span<const int> answer_fds(&answer.fd, answer.fd >= 0 ? 1 : 0);
  return connection.socket.Send(answer.message, answer_fds, kSendTimeout).ok() && !answer.close;
}

void ControlServer::Drop(Connection& connection) {
  const std::shared_ptr<Session>& session = connection.service->session();
  if (session == nullptr) return;
  session->EndAll();
  const VerifierCounters sums = session->counters();
  const double per_round =
      sums.sequence_rounds == 0
          ? 0.0
          : static_cast<double>(sums.accepted) / static_cast<double>(sums.sequence_rounds);
  Log("attach").info(
      "session {} ended: {} rounds, {} tokens, {:.2f} accepted per sequence and round, "
      "bad rows {}, empty residuals {}, invalid drafts {}, invalid records {}",
      session->options().identity.session_id, sums.rounds, sums.kept, per_round,
      sums.bad_target_rows + sums.bad_draft_rows, sums.empty_residuals, sums.invalid_drafts,
      sums.invalid_records);
}

}  // namespace specd
