#include "daemon/session/openings_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "daemon/session/memory_cost.h"
#include "daemon/session/open_request.h"
#include "daemon/session/profile_defaults.h"
#include "daemon/session/sequence_replies.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/params/param_rules.h"

namespace specd {

absl::Status ExplainUnknownField(const ControlHeader& header, const absl::Status& status) {
  if (header.type != ControlType::kOpenSequence) return status;
  const std::string field = ErrorFieldOf(status);
  const std::optional<std::string> why = RefusedParam(field);
  return why.has_value() ? MakeError(SPECD_ERROR_UNSUPPORTED, field, *why) : status;
}

// A file of openings travels like a single opening, so every message in it is read as strictly.
absl::Status OpeningsReader::PrepareNext(std::span<const uint8_t>* bytes) {
  const std::span<const uint8_t> message = bytes->first(FirstMessageBytes(*bytes));
  const absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kDaemon);
  if (!header.ok()) return header.status();
  absl::StatusOr<Request> decoded = DecodeRequest(*header, message);
  if (!decoded.ok()) return ExplainUnknownField(*header, decoded.status());
  const auto* const request = std::get_if<OpenSequenceRequest>(&*decoded);
  if (request == nullptr) {
    return MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "type",
        fmt::format("type = {} stands in a file of openings, where every message is an "
                    "OpenSequence ({})",
                    static_cast<int>(header->type), static_cast<int>(ControlType::kOpenSequence)));
  }
  if (request->handle != 0) ++num_resumed_;
  if (absl::Status status =
          session_->opening_rate().Check(session_->options().clock->NowNs(), request->handle != 0);
      !status.ok()) {
    return status;
  }
  *bytes = bytes->subspan(message.size());
  if (are_pending_ && request->refusal_code != SPECD_OK) {
    PendingOpening& refused = pending_.emplace_back();
    const absl::StatusOr<SequenceHistory> history = ReadRefused(*request, &refused.refusal);
    if (!history.ok()) return history.status();
    return session_->opening_builder().PrepareRefused(*history, request->seed, &prepared_);
  }
  const auto lists = bytes->first(std::min<uint64_t>(request->file_bytes(), bytes->size()));
  absl::StatusOr<OpenRequest> open = ReadOpenRequest(
      *request, std::span<const char>(reinterpret_cast<const char*>(lists.data()), lists.size()));
  if (!open.ok()) return open.status();
  *bytes = bytes->subspan(lists.size());
  ApplyProfile(*session_->options().profile, *request, &open->params);
  const OpeningBuilder& builder = session_->opening_builder();
  if (!are_pending_) {
    return builder.Prepare(request->request_id, open->params, open->history(), &prepared_);
  }
  absl::StatusOr<MemoryShare> memory = TakeMemory(session_->memory(), "the opening that waits",
                                                  BuildBytes(open->params, open->history()));
  if (!memory.ok()) return memory.status();
  absl::Status status =
      builder.PreparePending(request->request_id, open->history(), &open->params, &prepared_);
  pending_.push_back({.request_id = request->request_id,
                      .open = *std::move(open),
                      .sequences = {},
                      .memory = *std::move(memory),
                      .refusal = absl::OkStatus()});
  return status;
}

void OpeningsReader::BuildLater(std::span<const SequenceInfo> infos) {
  size_t next = 0;
  for (PendingOpening& opening : pending_) {
    for (int64_t i = 0; i < opening.open.params.n; ++i) {
      opening.sequences.push_back(infos[next++].handle);
    }
  }
  std::erase_if(pending_, [this](const PendingOpening& opening) {
    if (opening.refusal.ok()) return false;
    session_->FailPending(opening, opening.refusal);
    return true;
  });
  if (!pending_.empty()) pending_openings_->Add(session_, std::move(pending_));
}

absl::StatusOr<Reply> OpeningsReader::Open(const OpenSequencesRequest& request,
                                           const std::vector<UniqueFd>& fds) {
  if (absl::Status status = CheckOpenings(request); !status.ok()) return status;
  if (request.pending) {
    if (absl::Status status = pending_openings_->Start(); !status.ok()) return status;
  }
  // The private copy of the file.
  const absl::StatusOr<MemoryShare> share =
      TakeMemory(session_->memory(), "the file of openings", request.file_bytes);
  if (!share.ok()) return share.status();
  std::vector<uint8_t> file(request.file_bytes);
  absl::Status status =
      ReadListFile(fds.front(), {reinterpret_cast<char*>(file.data()), file.size()});
  if (!status.ok()) return status;

  std::span<const uint8_t> rest = file;
  are_pending_ = request.pending;
  prepared_.Reserve(request.num_openings);
  std::vector<uint32_t> opening_of;  // by sequence
  opening_of.reserve(request.num_openings);
  for (uint32_t i = 0; i < request.num_openings; ++i) {
    status = PrepareNext(&rest);
    if (status.ok() && prepared_.size() > kOpeningsMax) status = TooManySequences(prepared_.size());
    if (!status.ok()) return Reply(RefusalOf(i, status));
    opening_of.resize(prepared_.size(), i);
  }
  if (!rest.empty()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "file_bytes",
                     fmt::format("file_bytes = {} has {} bytes after the {} openings",
                                 request.file_bytes, rest.size(), request.num_openings));
  }
  size_t refused = opening_of.size();
  absl::StatusOr<std::vector<SequenceInfo>> infos =
      session_->OpenPrepared(std::move(prepared_), &refused);
  if (infos.ok() && request.pending) BuildLater(*infos);
  if (infos.ok()) return Reply(ReplyOf(*infos, opening_of));
  if (refused == opening_of.size()) return infos.status();
  return Reply(RefusalOf(opening_of[refused], infos.status()));
}

}  // namespace specd
