#include "daemon/server/attachments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "daemon/base/logging.h"
#include "daemon/base/mps.h"
#include "daemon/server/peer_name.h"
#include "daemon/server/user_places.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// Ranks of a session that ended longer ago wait for it as if it came back.
constexpr size_t kEndedMax = 256;

}  // namespace

Attachments::Attachments(const Parts& parts)
    : parts_(parts),
      serves_several_(std::any_of(options().allowed_uids.begin(), options().allowed_uids.end(),
                                  [](uint32_t uid) { return uid != geteuid(); })) {}

bool Attachments::MayAsk(const PeerCredentials& peer) const {
  return IsAllowed(peer) || IsOperator(peer);
}

bool Attachments::IsAllowed(const PeerCredentials& peer) const {
  const std::vector<uint32_t>& allowed = options().allowed_uids;
  return peer.uid == geteuid() ||
         std::find(allowed.begin(), allowed.end(), peer.uid) != allowed.end();
}

absl::Status Attachments::CheckAllowed(const PeerCredentials& peer) const {
  if (IsAllowed(peer)) return absl::OkStatus();
  return MakeError(SPECD_ERROR_PERMISSION, "uid",
                   fmt::format("uid {} may not attach; this daemon serves uid {} and those of "
                               "--allow_uid",
                               peer.uid, geteuid()));
}

absl::StatusOr<Reply> Attachments::Operate(const Request& request, const PeerCredentials& peer) {
  const OperatorService::Caller caller{.uid = peer.uid, .sees_all = IsOperator(peer)};
  if (!caller.sees_all) {
    if (absl::Status status = CheckAllowed(peer); !status.ok()) {
      LogOfPeer({"attach", spdlog::level::warn, "uid", peer.uid}, "{} may not operate",
                NamePeer(peer, ""));
      return status;
    }
  }
  return parts_.operators->Answer(request, caller);
}

absl::Status Attachments::CheckPlace(const PeerCredentials& peer) const {
  // An engine that has gone during its opening holds its memory until the opening is done. Its
  // place is free for it to come back, and counts in the share of its user.
  Holdings held;
  size_t attached = 0;
  for (const auto& connection : *parts_.connections) {
    if (connection->service->session() == nullptr) continue;
    ++held.of_all;
    if (connection->peer.uid == peer.uid) ++held.of_user;
    if (!connection->dropped) ++attached;
  }
  if (attached >= options().max_sessions) {
    return MakeError(
        SPECD_ERROR_EXHAUSTED, "max_sessions",
        fmt::format("{} engines are attached, as many as --max_sessions allows", attached));
  }
  if (!serves_several_) return absl::OkStatus();
  return CheckShare(held, peer.uid, options().max_sessions);
}

absl::StatusOr<std::unique_ptr<MemberSession>> Attachments::Join(
    const JoinRequest& request, const PeerCredentials& peer) const {
  if (absl::Status status = CheckAllowed(peer); !status.ok()) return status;
  const std::optional<JoinToken> token = ParseJoinToken(request.token);
  if (!token.has_value()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "token",
                     fmt::format("token has {} bytes and is not of the form of one; pass what "
                                 "specd_get_group gives to the engine, unchanged",
                                 request.token.size()));
  }
  if (const std::shared_ptr<Session> session = FindSession(*token); session != nullptr) {
    return MemberSession::Join(
        session, {.rank = request.rank, .resumes = request.resumes, .rejoins = request.rejoins});
  }
  if (HasEnded(*token)) return SessionHasEnded();
  // A rank that resumes tries again: numbers begin anew at each daemon, and its engine may come.
  if (HasNumberOf(*token)) {
    return MakeError(
        SPECD_ERROR_PERMISSION, "token",
        fmt::format("token is not that of session {}; take the one that specd_get_group "
                    "gives to the engine, anew for each specd_open",
                    token->session_id));
  }
  if (request.resumes) return nullptr;
  return MakeError(SPECD_ERROR_NOT_FOUND, "token",
                   fmt::format("token is of session {}, which is not here: it has ended, or is one "
                               "of another daemon; join the engine's new session with the token of "
                               "that one",
                               token->session_id));
}

absl::StatusOr<std::unique_ptr<MemberSession>> Attachments::JoinAndLog(
    const JoinRequest& request, const PeerCredentials& peer) const {
  absl::StatusOr<std::unique_ptr<MemberSession>> member = Join(request, peer);
  if (!member.ok()) {
    // The token is not logged: it is as good as a key.
    LogOfPeer({"attach", spdlog::level::warn, "rank refused", peer.uid}, "rank {}, {} refused: {}",
              request.rank, NamePeer(peer, request.name), std::string(member.status().message()));
  } else if (*member != nullptr) {
    Log("attach").info("session {}: rank {} joined, {}, library {}",
                       (*member)->session().options().identity.session_id, request.rank,
                       NamePeer(peer, request.name), Printable(request.version));
  }
  return member;
}

// A session that has ended stays listed while an opening of it is under way, and its engine may
// come again meanwhile.
std::shared_ptr<Session> Attachments::FindSession(const JoinToken& token) const {
  for (const auto& connection : *parts_.connections) {
    const std::shared_ptr<Session>& session = connection->service->session();
    if (session != nullptr && !session->ended() && session->ranks().HasToken(token)) return session;
  }
  return nullptr;
}

bool Attachments::HasNumberOf(const JoinToken& token) const {
  return std::any_of(
      parts_.connections->begin(), parts_.connections->end(), [&token](const auto& connection) {
        const std::shared_ptr<Session>& session = connection->service->session();
        return session != nullptr && !session->ended() && session->ranks().HasNumberOf(token);
      });
}

bool Attachments::HasEnded(const JoinToken& token) const {
  for (const auto& [uid, tokens] : ended_) {
    for (const JoinToken& ended : tokens) {
      if (IsSecret(ended.secret, token.secret)) return true;
    }
  }
  return false;
}

absl::Status Attachments::CheckToken(const HelloRequest& request) const {
  if (request.join_token.empty()) return absl::OkStatus();
  const std::optional<JoinToken> token = ParseJoinToken(request.join_token);
  if (!token.has_value()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "join_token",
                     fmt::format("join_token has {} bytes and is not of the form of a token; send "
                                 "the one that another daemon gave, unchanged",
                                 request.join_token.size()));
  }
  if (!request.resumes) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "join_token",
                     "join_token is for an engine that comes from another daemon (resumes); leave "
                     "it out, and ask for a token with GetGroup");
  }
  const std::shared_ptr<Session> session = FindSession(*token);
  if (session == nullptr) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_STATE, "join_token",
      fmt::format("join_token is that of session {} already, whose engine is \"{}\"; "
                  "attach when that session has ended",
                  session->options().identity.session_id, Printable(session->client().name)));
}

void Attachments::NoteEnd(Session& session) {
  if (!session.channel().WasEngineReady()) return;
  const std::optional<JoinToken> token = session.ranks().FindToken();
  if (!token.has_value()) return;
  std::deque<JoinToken>& ended = ended_[session.client().uid];
  ended.push_back(*token);
  if (ended.size() > kEndedMax) ended.pop_front();
}

absl::StatusOr<std::shared_ptr<Session>> Attachments::Open(const HelloRequest& request,
                                                           const PeerCredentials& peer) {
  absl::Status status = CheckAllowed(peer);
  if (status.ok()) status = CheckPlace(peer);
  if (status.ok()) status = CheckToken(request);
  std::shared_ptr<Session> session;
  if (status.ok()) {
    absl::StatusOr<std::shared_ptr<Session>> made = options().open_session(request, peer.uid);
    status = made.status();
    if (made.ok()) session = *std::move(made);
  }
  if (!status.ok()) {
    LogOfPeer({"attach", spdlog::level::warn, "refused", peer.uid}, "{} refused: {}",
              NamePeer(peer, request.name), std::string(status.message()));
    return status;
  }
  session->SetClient({.uid = peer.uid, .pid = peer.pid, .name = request.name});
  ++parts_.meters->attached;
  LogAttached(*session, request, peer);
  return session;
}

void Attachments::LogAttached(const Session& session, const HelloRequest& request,
                              const PeerCredentials& peer) const {
  const uint64_t id = session.options().identity.session_id;
  Log("attach").info("session {}: {}, library {}, profile \"{}\", vocab {}, batch {}, draft {}", id,
                     NamePeer(peer, request.name), Printable(request.version),
                     Printable(request.profile), request.limits.vocab_size,
                     request.limits.max_batch, request.limits.max_draft);
  if (options().hello.device_uuid.empty()) return;
  const Sharing sharing = ForeseeSharing(options().hello.mps);
  Log("attach").log(sharing.mode == SPECD_SHARING_MPS ? spdlog::level::info : spdlog::level::warn,
                    "session {}: {}", id, sharing.text);
}

std::unique_ptr<ControlService> Attachments::MakeService(const PeerCredentials& peer) {
  ControlHost host;
  host.hello = options().hello;
  host.serve = options().serve;
  host.pending = parts_.pending;
  host.check_opens = [this] { return parts_.operators->CheckOpens(); };
  if (options().sessions != nullptr) {
    host.operate = [this, peer](const Request& request) { return Operate(request, peer); };
  }
  host.peer_pid = peer.pid;
  host.join = [this, peer](const JoinRequest& request) { return JoinAndLog(request, peer); };
  host.open_session = [this, peer](const HelloRequest& request) { return Open(request, peer); };
  return std::make_unique<ControlService>(std::move(host));
}

}  // namespace specd
