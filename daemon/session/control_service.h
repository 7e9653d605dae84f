// ControlService answers the control messages of one engine, or of one rank that has joined.
//
// The daemon has one service per connection and feeds it the messages of the socket. Embedded mode
// calls the service directly with the same bytes. Both modes therefore check the same things and
// give the same errors. One thread at a time calls a service. Only a Hello and a Join change
// session() and member(): while another thread is in Handle with a later message, any thread may
// read them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/session/member_session.h"
#include "daemon/session/pending_openings.h"
#include "daemon/session/session.h"
#include "ipc/base/unique_fd.h"
#include "ipc/control/control.h"

namespace specd {

// The functions and facts that a service needs of the process it runs in.
struct ControlHost {
  // Makes a session for a first Hello; refuses when draining or full.
  std::function<absl::StatusOr<std::shared_ptr<Session>>(const HelloRequest&)> open_session;
  // Makes the connection one of a rank, which joins a running session; null if that session is not
  // here yet, and the rank waits for it. The function is null where no other process can join.
  std::function<absl::StatusOr<std::unique_ptr<MemberSession>>(const JoinRequest&)> join;
  // The engine has mapped its segment: the verify loop may serve the session from now on.
  std::function<void(const std::shared_ptr<Session>&)> serve;
  // The engine's process as the kernel knows it; 0 if the kernel cannot see the process.
  pid_t peer_pid = 0;
  // Answers an operator's messages; any thread. Null where there is no operator.
  std::function<absl::StatusOr<Reply>(const Request&)> operate;
  // An error while nothing may be opened. Null: always OK.
  std::function<absl::Status()> check_opens;
  // Builds pending openings; outlives the service.
  PendingOpenings* pending = nullptr;
  // The reply to Hello. The service fills in session_id and daemon_epoch.
  HelloReply hello;
};

class ControlService {
 public:
  explicit ControlService(ControlHost host) : host_(std::move(host)) {}

  struct Answer {
    std::vector<uint8_t> message;
    int fd = -1;         // travels with the message; stays the session's
    int error_code = 0;  // SPECD_ERROR_..., if the answer is an error
    bool close = false;  // the message was not understood, so later ones cannot be trusted
  };

  // Every message gets an answer, even one that cannot be read.
  Answer Handle(std::span<const uint8_t> message, std::vector<UniqueFd> fds);

  // The answer to a message that is not handled, with the reason.
  Answer Refuse(std::span<const uint8_t> message, const absl::Status& why);

  // Null before a successful Hello.
  const std::shared_ptr<Session>& session() const { return session_; }
  // Null before a successful Join. A connection has a session or a member, never both.
  MemberSession* member() const { return member_.get(); }

 private:
  // Remembers what the reply names.
  Answer AnswerWith(uint32_t request_id, absl::StatusOr<Reply> reply);
  absl::StatusOr<Reply> DispatchOrExhausted(const Request& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> Dispatch(const Request& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const HelloRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const MappedRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const RegisterRegionRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const RegisterDeviceRegionRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const UnregisterRegionRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const BindTensorRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const OpenSequenceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const OpenSequencesRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const GetOpeningRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const CloseSequenceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const AbortSequenceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const ForkSequenceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const GetStatsRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const DumpTraceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const GetGroupRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const JoinRequest& request, std::vector<UniqueFd>& fds);
  // Those of an operator, which Dispatch hands to the host.
  absl::StatusOr<Reply> On(const ListSequencesRequest&, std::vector<UniqueFd>&) {
    return NotHere();
  }
  absl::StatusOr<Reply> On(const AbortStreamsRequest&, std::vector<UniqueFd>&) { return NotHere(); }
  absl::StatusOr<Reply> On(const DrainRequest&, std::vector<UniqueFd>&) { return NotHere(); }
  absl::StatusOr<Reply> On(const DumpSessionRequest&, std::vector<UniqueFd>&) { return NotHere(); }
  absl::StatusOr<Reply> On(const ListSessionsRequest&, std::vector<UniqueFd>&) { return NotHere(); }
  static absl::Status NotHere();
  absl::StatusOr<Reply> On(const GiveUpRequest& request, std::vector<UniqueFd>& fds);
  absl::Status CheckTurn(const Request& request) const;
  absl::Status CheckOpens(const Request& request) const;
  absl::Status CheckRate(bool may_be_free) const;
  Regions& regions() { return member_ != nullptr ? member_->regions() : session_->regions(); }

  // Things that exist because of a request, and that its answer names.
  struct Made {
    uint32_t request_id = 0;
    std::vector<SequenceHandle> sequences;
    std::vector<uint32_t> regions;
  };
  static Made MadeBy(uint32_t request_id, const Reply& reply);

  ControlHost host_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<MemberSession> member_;
  bool mapped_ = false;
  Made made_;                 // by the last request
  uint64_t num_resumed_ = 0;  // openings of this request that have a handle
};

}  // namespace specd
