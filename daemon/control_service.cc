#include "daemon/control_service.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "ipc/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

SequenceParams ParamsFrom(const OpenSequenceRequest& request) {
  SequenceParams params;
  params.verify = static_cast<VerifyMethod>(request.verify);
  params.temperature = request.temperature;
  params.draft_temperature = request.draft_temperature;
  params.seed = request.seed;
  params.has_seed = request.has_seed;
  params.max_tokens = request.max_tokens;
  params.ignore_eos = request.ignore_eos;
  params.stop_token_ids = request.stop_token_ids;
  params.stop_strings = request.stop_strings;
  params.include_stop = request.include_stop;
  params.skip_special_tokens = request.skip_special_tokens;
  return params;
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
  Answer answer;
  uint32_t request_id = 0;
  absl::StatusOr<Reply> reply = absl::UnknownError("");
  absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kDaemon);
  if (!header.ok()) {
    reply = header.status();
    answer.close = true;
  } else {
    request_id = header->request_id;
    absl::StatusOr<Request> request = DecodeRequest(*header, message);
    absl::Status status = request.status();
    if (status.ok()) status = CheckFds(*header, fds);
    reply = status.ok() ? Dispatch(*request, fds) : status;
  }
  if (!reply.ok()) reply = Reply(MakeErrorReply(reply.status()));
  if (std::holds_alternative<HelloReply>(*reply)) answer.fd = session_->segment().fd();
  absl::StatusOr<std::vector<uint8_t>> encoded = EncodeReply(*reply, request_id);
  SPECD_CHECK(encoded.ok());
  answer.message = *std::move(encoded);
  return answer;
}

absl::StatusOr<Reply> ControlService::Dispatch(const Request& request, std::vector<UniqueFd>& fds) {
  const bool first = std::holds_alternative<HelloRequest>(request);
  if (first && session_ != nullptr) {
    return MakeError(SPECD_ERROR_STATE, "hello", "this connection has said hello already");
  }
  if (!first && session_ == nullptr) {
    return MakeError(SPECD_ERROR_STATE, "hello", "the first message must be a hello");
  }
  if (!first && !mapped_ && !std::holds_alternative<MappedRequest>(request)) {
    return MakeError(SPECD_ERROR_STATE, "mapped",
                     "the message after a hello must say that the segment is mapped");
  }
  return std::visit([this, &fds](const auto& body) { return On(body, fds); }, request);
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
  absl::StatusOr<uint32_t> region =
      session_->RegisterRegion(std::move(fds.front()), request.size_bytes);
  if (!region.ok()) return region.status();
  return Reply(RegionReply{*region});
}

absl::StatusOr<Reply> ControlService::On(const BindTensorRequest& request, std::vector<UniqueFd>&) {
  const TensorSpec spec{request.dtype, request.offset_bytes, request.num_rows, request.row_stride};
  absl::Status status = session_->Bind(static_cast<TensorRole>(request.role), request.region, spec);
  if (!status.ok()) return status;
  return Reply(OkReply{});
}

absl::StatusOr<Reply> ControlService::On(const OpenSequenceRequest& request,
                                         std::vector<UniqueFd>&) {
  absl::StatusOr<SequenceInfo> info =
      session_->OpenSequence(request.request_id, ParamsFrom(request));
  if (!info.ok()) return info.status();
  return Reply(SequenceReply{info->handle, info->seed, static_cast<uint32_t>(info->method)});
}

absl::StatusOr<Reply> ControlService::On(const CloseSequenceRequest& request,
                                         std::vector<UniqueFd>&) {
  if (absl::Status status = session_->CloseSequence(request.sequence); !status.ok()) return status;
  return Reply(OkReply{});
}

absl::StatusOr<Reply> ControlService::On(const AbortSequenceRequest& request,
                                         std::vector<UniqueFd>&) {
  if (absl::Status status = session_->AbortSequence(request.sequence); !status.ok()) return status;
  return Reply(OkReply{});
}

}  // namespace specd
