// Attachments decides for ControlServer who attaches, joins or operates, and makes the service of
// each connection.
//
// It checks the peer's user and the places that are left (user_places.h), and logs each attachment
// and each refusal with the names of the client (peer_name.h). One thread: the server's.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/metrics/meters.h"
#include "daemon/server/control_connection.h"
#include "daemon/server/control_options.h"
#include "daemon/server/operator_service.h"
#include "daemon/session/control_service.h"
#include "daemon/session/pending_openings.h"

namespace specd {

class Attachments {
 public:
  // The parts of the server, which outlive this object and its services.
  struct Parts {
    const ControlOptions* options = nullptr;
    ControlMeters* meters = nullptr;
    const std::vector<std::unique_ptr<ControlConnection>>* connections = nullptr;
    PendingOpenings* pending = nullptr;
    OperatorService* operators = nullptr;
  };
  explicit Attachments(const Parts& parts);

  // True for a user whom the daemon serves, and for operators.
  bool MayAsk(const PeerCredentials& peer) const;
  std::unique_ptr<ControlService> MakeService(const PeerCredentials& peer);
  // The session of an engine has ended. If it has been ready for rounds, it does not come back to
  // this daemon, and its ranks are told.
  void NoteEnd(Session& session);

 private:
  bool IsAllowed(const PeerCredentials& peer) const;
  absl::Status CheckAllowed(const PeerCredentials& peer) const;
  // The places of sessions are divided among users.
  absl::Status CheckPlace(const PeerCredentials& peer) const;
  absl::StatusOr<std::shared_ptr<Session>> Open(const HelloRequest& request,
                                                const PeerCredentials& peer);
  void LogAttached(const Session& session, const HelloRequest& request,
                   const PeerCredentials& peer) const;
  // An engine may bring a token from another daemon, which no session here may have.
  absl::Status CheckToken(const HelloRequest& request) const;
  // The session that has this token.
  std::shared_ptr<Session> FindSession(const JoinToken& token) const;
  bool HasNumberOf(const JoinToken& token) const;
  bool HasEnded(const JoinToken& token) const;
  // The place in the session that the token names, or the reason why the rank cannot join. Null:
  // the rank resumes, and its session is not here yet.
  absl::StatusOr<std::unique_ptr<MemberSession>> Join(const JoinRequest& request,
                                                      const PeerCredentials& peer) const;
  absl::StatusOr<std::unique_ptr<MemberSession>> JoinAndLog(const JoinRequest& request,
                                                            const PeerCredentials& peer) const;
  absl::StatusOr<Reply> Operate(const Request& request, const PeerCredentials& peer);
  const ControlOptions& options() const { return *parts_.options; }

  const Parts parts_;
  const bool serves_several_;  // users
  // Of sessions that do not come back, the last of each user.
  std::map<uint32_t, std::deque<JoinToken>> ended_;
};

}  // namespace specd
