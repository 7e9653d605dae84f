#include "daemon/session/control_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "daemon/session/open_request.h"
#include "daemon/session/openings_reader.h"
#include "daemon/session/profile_defaults.h"
#include "daemon/session/request_kinds.h"
#include "daemon/session/sequence_replies.h"
#include "ipc/base/descriptors.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::StatusOr<Reply> OkReplyOr(const absl::Status& error) {
  return error.ok() ? absl::StatusOr<Reply>(OkReply{}) : error;
}

absl::Status CheckFds(const ControlHeader& header, const std::vector<UniqueFd>& fds) {
  if (fds.size() == header.num_fds) return absl::OkStatus();
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "num_fds",
                   fmt::format("{} descriptors came with a message that announces {}", fds.size(),
                               header.num_fds));
}

}  // namespace

ControlService::Answer ControlService::Handle(std::span<const uint8_t> message,
                                              std::vector<UniqueFd> fds) {
  absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kDaemon);
  if (!header.ok()) {
    Answer answer = AnswerWith(0, header.status());
    answer.close = true;
    return answer;
  }
  absl::StatusOr<Request> request = DecodeRequest(*header, message);
  absl::Status status =
      request.ok() ? absl::OkStatus() : ExplainUnknownField(*header, request.status());
  if (status.ok()) status = CheckFds(*header, fds);
  return AnswerWith(header->request_id, status.ok() ? DispatchOrExhausted(*request, fds) : status);
}

ControlService::Answer ControlService::Refuse(std::span<const uint8_t> message,
                                              const absl::Status& why) {
  const absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kDaemon);
  return AnswerWith(header.ok() ? header->request_id : 0, why);
}

ControlService::Answer ControlService::AnswerWith(uint32_t request_id,
                                                  absl::StatusOr<Reply> reply) {
  Answer answer;
  if (!reply.ok()) {
    answer.error_code = ErrorCodeOf(reply.status());
    reply = Reply(MakeErrorReply(reply.status()));
  }
  if (const auto* const many = std::get_if<SequencesReply>(&*reply)) {
    answer.error_code = many->code;
  }
  if (answer.error_code != SPECD_OK && session_ != nullptr) session_->CountRefusal();
  if (std::holds_alternative<HelloReply>(*reply)) answer.fd = session_->segment().fd();
  made_ = MadeBy(request_id, *reply);
  absl::StatusOr<std::vector<uint8_t>> encoded = EncodeReply(*reply, request_id);
  SPECD_CHECK(encoded.ok());
  answer.message = *std::move(encoded);
  return answer;
}

// One engine's large request must not end the daemon for all engines.
absl::StatusOr<Reply> ControlService::DispatchOrExhausted(const Request& request,
                                                          std::vector<UniqueFd>& fds) {
  try {
    return Dispatch(request, fds);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

// OK if this connection may make this request now.
absl::Status ControlService::CheckTurn(const Request& request) const {
  const bool first =
      std::holds_alternative<HelloRequest>(request) || std::holds_alternative<JoinRequest>(request);
  const bool greeted = session_ != nullptr || member_ != nullptr;
  if (first && greeted) {
    return MakeError(SPECD_ERROR_STATE, "hello",
                     "this connection has said hello, or has joined, already");
  }
  if (!first && !greeted) {
    return MakeError(SPECD_ERROR_STATE, "hello", "the first message must be a hello or a join");
  }
  if (member_ != nullptr && !IsForMembers(request)) {
    return MakeError(SPECD_ERROR_STATE, "type",
                     fmt::format("this connection is that of rank {}, which registers, binds and "
                                 "unregisters memory of its own; ask with rank 0's engine",
                                 member_->rank()));
  }
  if (session_ != nullptr && !mapped_ && !std::holds_alternative<MappedRequest>(request)) {
    return MakeError(SPECD_ERROR_STATE, "mapped",
                     "the message after a hello must say that the segment is mapped");
  }
  return absl::OkStatus();
}

absl::Status ControlService::NotHere() {
  return MakeError(
      SPECD_ERROR_UNSUPPORTED, "type",
      "this message is an operator's; send it to a daemon, on a connection of its own");
}

absl::Status ControlService::CheckOpens(const Request& request) const {
  const bool opens = OpensSequences(request);
  if (host_.check_opens && (opens || std::holds_alternative<HelloRequest>(request))) {
    if (absl::Status status = host_.check_opens(); !status.ok()) return status;
  }
  // A file of openings may have handles, and is read first (PrepareNext).
  const auto* const open = std::get_if<OpenSequenceRequest>(&request);
  const bool may_be_free =
      open != nullptr ? open->handle != 0 : std::holds_alternative<OpenSequencesRequest>(request);
  return opens ? CheckRate(may_be_free) : absl::OkStatus();
}

absl::Status ControlService::CheckRate(bool may_be_free) const {
  return session_->opening_rate().Check(session_->options().clock->NowNs(), may_be_free);
}

absl::StatusOr<Reply> ControlService::Dispatch(const Request& request, std::vector<UniqueFd>& fds) {
  const bool greeted = session_ != nullptr || member_ != nullptr;
  if (IsOfOperator(request) && !greeted && host_.operate) return host_.operate(request);
  if (absl::Status status = CheckTurn(request); !status.ok()) return status;
  if (absl::Status status = CheckOpens(request); !status.ok()) return status;
  num_resumed_ = 0;
  absl::StatusOr<Reply> reply =
      std::visit([this, &fds](const auto& body) { return On(body, fds); }, request);
  // An opening that was refused has taken the daemon's time, too.
  if (OpensSequences(request)) {
    const uint64_t count = reply.ok() ? MadeBy(0, *reply).sequences.size() : 0;
    const SessionOptions& options = session_->options();
    session_->opening_rate().Count(
        {.sequences = std::max<uint64_t>(count, 1), .resumed = num_resumed_},
        options.clock->NowNs());
  }
  return reply;
}

absl::StatusOr<Reply> ControlService::On(const HelloRequest& request, std::vector<UniqueFd>&) {
  absl::StatusOr<std::shared_ptr<Session>> session = host_.open_session(request);
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  HelloReply reply = host_.hello;
  reply.session_id = session_->options().identity.session_id;
  reply.daemon_epoch = session_->options().identity.daemon_epoch;
  return Reply(reply);
}

absl::StatusOr<Reply> ControlService::On(const MappedRequest&, std::vector<UniqueFd>&) {
  if (mapped_) return MakeError(SPECD_ERROR_STATE, "mapped", "the segment is mapped already");
  if (absl::Status status = session_->segment().SealFutureWrites(); !status.ok()) return status;
  mapped_ = true;
  host_.serve(session_);
  return Reply(OkReply{});
}

absl::StatusOr<Reply> ControlService::On(const RegisterRegionRequest& request,
                                         std::vector<UniqueFd>& fds) {
  if (fds.size() != 1) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "num_fds",
                     fmt::format("a region needs exactly 1 descriptor, {} came", fds.size()));
  }
  if (IsReservedFrom(Peer::kEngine, fds.front().get())) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "fd",
                     "the daemon keeps its last descriptors for other engines; unregister regions, "
                     "or raise the daemon's limit of open files (ulimit -n, LimitNOFILE=)");
  }
  absl::StatusOr<uint32_t> region = regions().Register(std::move(fds.front()), request.size_bytes);
  if (!region.ok()) return region.status();
  return Reply(RegionReply{*region});
}

absl::StatusOr<Reply> ControlService::On(const RegisterDeviceRegionRequest& request,
                                         std::vector<UniqueFd>& fds) {
  absl::StatusOr<uint32_t> region = regions().device().Register(request.spec, fds, host_.peer_pid);
  if (!region.ok()) return region.status();
  return Reply(RegionReply{*region});
}

absl::StatusOr<Reply> ControlService::On(const UnregisterRegionRequest& request,
                                         std::vector<UniqueFd>&) {
  return OkReplyOr(member_ != nullptr ? member_->UnregisterRegion(request.region)
                                      : session_->UnregisterRegion(request.region));
}

absl::StatusOr<Reply> ControlService::On(const BindTensorRequest& request, std::vector<UniqueFd>&) {
  const auto role = static_cast<TensorRole>(request.role);
  return OkReplyOr(member_ != nullptr ? member_->Bind(role, request.region, request.spec)
                                      : session_->Bind(role, request.region, request.spec));
}

absl::StatusOr<Reply> ControlService::On(const OpenSequenceRequest& request,
                                         std::vector<UniqueFd>& fds) {
  if (request.handle != 0) ++num_resumed_;
  const UniqueFd none;
  absl::StatusOr<OpenRequest> open = ReadOpenRequest(request, fds.empty() ? none : fds.front());
  if (!open.ok()) return open.status();
  ApplyProfile(*session_->options().profile, request, &open->params);
  absl::StatusOr<std::vector<SequenceInfo>> infos =
      session_->OpenSequences(request.request_id, open->params, open->history());
  if (!infos.ok()) return infos.status();
  return Reply(ReplyOf(*infos));
}

absl::StatusOr<Reply> ControlService::On(const GetOpeningRequest& request, std::vector<UniqueFd>&) {
  const absl::StatusOr<SequenceInfo> info = session_->FindOpened(request.sequence);
  if (!info.ok()) return info.status();
  return Reply(ReplyOf({&*info, 1}));
}

absl::StatusOr<Reply> ControlService::On(const OpenSequencesRequest& request,
                                         std::vector<UniqueFd>& fds) {
  OpeningsReader reader(session_, host_.pending);
  absl::StatusOr<Reply> reply = reader.Open(request, fds);
  num_resumed_ = reader.num_resumed();
  return reply;
}

absl::StatusOr<Reply> ControlService::On(const ForkSequenceRequest& request,
                                         std::vector<UniqueFd>&) {
  const std::optional<uint64_t> seed =
      request.has_seed ? std::optional<uint64_t>(request.seed) : std::nullopt;
  absl::StatusOr<SequenceInfo> info =
      session_->ForkSequence(request.sequence, request.request_id, seed);
  if (!info.ok()) return info.status();
  info->constraint = nullptr;  // its warnings were told
  return Reply(ReplyOf({&*info, 1}));
}

absl::StatusOr<Reply> ControlService::On(const GetStatsRequest&, std::vector<UniqueFd>&) {
  return Reply(StatsReply{session_->counters()});
}

absl::StatusOr<Reply> ControlService::On(const DumpTraceRequest&, std::vector<UniqueFd>&) {
  absl::StatusOr<TraceDump> dump = session_->DumpTrace();
  if (!dump.ok()) return dump.status();
  return Reply(TraceReply{std::move(dump->path), dump->num_rounds, dump->num_lost});
}

absl::StatusOr<Reply> ControlService::On(const GetGroupRequest&, std::vector<UniqueFd>&) {
  if (host_.join == nullptr) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "uri",
                     "rounds of this engine run in its own process, which no other process can "
                     "join; attach to a daemon (unix:...), or bind SPECD_NEXT_TOKEN + 1 .. 7 to "
                     "memory of this process");
  }
  const absl::StatusOr<JoinToken> token = session_->ranks().MakeToken();
  if (!token.ok()) return token.status();
  return Reply(GroupReply{token->text(), session_->ranks().bound_ranks()});
}

absl::StatusOr<Reply> ControlService::On(const JoinRequest& request, std::vector<UniqueFd>&) {
  if (host_.join == nullptr) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "uri",
                     "rounds run embedded in one process; join a session of a daemon (unix:...)");
  }
  absl::StatusOr<std::unique_ptr<MemberSession>> member = host_.join(request);
  if (!member.ok()) return member.status();
  if (*member == nullptr) return Reply(JoinReply{.version = host_.hello.version});
  member_ = *std::move(member);
  const SessionOptions& options = member_->session().options();
  return Reply(JoinReply{.session_id = options.identity.session_id,
                         .daemon_epoch = options.identity.daemon_epoch,
                         .version = host_.hello.version,
                         .max_sequences = options.limits.max_sequences,
                         .uid = member_->session().client().uid});
}

ControlService::Made ControlService::MadeBy(uint32_t request_id, const Reply& reply) {
  Made made{.request_id = request_id, .sequences = {}, .regions = {}};
  if (const auto* const one = std::get_if<SequenceReply>(&reply)) made.sequences = one->sequences;
  if (const auto* const many = std::get_if<SequencesReply>(&reply)) {
    made.sequences = many->sequences;
  }
  if (const auto* const region = std::get_if<RegionReply>(&reply)) made.regions = {region->region};
  return made;
}

// The engine sends nothing between the request and this. If the session has ended, nothing is left
// to undo, so errors do not matter.
absl::StatusOr<Reply> ControlService::On(const GiveUpRequest& request, std::vector<UniqueFd>& fds) {
  if (request.given_up != made_.request_id) return Reply(OkReply{});
  for (const SequenceHandle sequence : made_.sequences) (void)session_->CloseSequence(sequence);
  for (const uint32_t region : made_.regions) (void)On(UnregisterRegionRequest{region}, fds);
  return Reply(OkReply{});
}

absl::StatusOr<Reply> ControlService::On(const CloseSequenceRequest& request,
                                         std::vector<UniqueFd>&) {
  return OkReplyOr(session_->CloseSequence(request.sequence));
}

absl::StatusOr<Reply> ControlService::On(const AbortSequenceRequest& request,
                                         std::vector<UniqueFd>&) {
  return OkReplyOr(session_->AbortSequence(request.sequence));
}

}  // namespace specd
