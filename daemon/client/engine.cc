#include "daemon/client/engine.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_join.h"
#include "daemon/base/mps.h"
#include "daemon/client/bind_request.h"
#include "daemon/client/engine_device.h"
#include "daemon/client/open_message.h"
#include "daemon/client/opening_arguments.h"
#include "daemon/client/sealed_memory.h"
#include "daemon/client/struct_array.h"
#include "daemon/session/device_regions.h"
#include "ipc/base/available_memory.h"
#include "ipc/base/error.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {
template <class Attempt>
auto Engine::Insist(const Attempt& attempt) -> decltype(attempt()) {
  for (;;) {
    auto reply = attempt();
    if (reply.ok()) return reply;
    const absl::Status why = WhyUnanswered(reply.status());
    if (!link_->PeerGone() || !rounds_.MayPass(why)) return why;
    const absl::Status attached = reattachment_->Await(&rounds_.channel());
    if (!attached.ok()) return attached;
  }
}

absl::StatusOr<Reply> Engine::Ask(const Request& request, int fd) {
  return Insist([&] { return link_->Call(AtDaemon(request), fd, nullptr); });
}

Request Engine::AtDaemon(const Request& request) const {
  Request sent = request;
  if (reattachment_ == nullptr) return sent;
  const SessionRecord& record = reattachment_->record();
  if (auto* bind = std::get_if<BindTensorRequest>(&sent)) {
    bind->region = record.RegionAtDaemon(bind->region);
  }
  if (auto* unregister = std::get_if<UnregisterRegionRequest>(&sent)) {
    unregister->region = record.RegionAtDaemon(unregister->region);
  }
  return sent;
}

absl::Status Engine::CheckCanTell(const char* field, const char* what) const {
  if (reattachment_ == nullptr) return absl::OkStatus();
  return MakeError(SPECD_ERROR_UNSUPPORTED, field,
                   fmt::format("{}: another daemon cannot be told of {}; open the engine with "
                               "reconnect_ms = 0",
                               field, what));
}

absl::Status Engine::WhyUnanswered(const absl::Status& status) const {
  const bool is_over = ErrorCodeOf(status) == SPECD_ERROR_DISCONNECTED && link_->PeerGone();
  return is_over ? rounds_.WhyNoCompletion() : status;
}

// ---- memory

absl::StatusOr<uint32_t> Engine::RegisterRegion(int fd, uint64_t size_bytes) {
  absl::StatusOr<RegionReply> reply =
      Expect<RegionReply>(Ask(RegisterRegionRequest{size_bytes}, fd));
  if (!reply.ok()) return reply.status();
  if (reattachment_ == nullptr) return reply->region;
  return reattachment_->record().AddRegion(reply->region, fd, size_bytes);
}

absl::Status Engine::Alloc(uint64_t size_bytes, specd_region* region) {
  if (size_bytes == 0 || size_bytes > (uint64_t{1} << 40)) {
    return Invalid("size_bytes", fmt::format("size_bytes = {} is outside 1 .. 2^40", size_bytes));
  }
  // MakeSealedMemory takes all pages, so the bytes of earlier calls are not available any more.
  const AvailableMemory available = FindAvailableMemory();
  if (size_bytes > available.bytes) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "size_bytes",
                     fmt::format("size_bytes = {}: {} bytes are available ({}); ask for less, or "
                                 "free memory or raise the limit",
                                 size_bytes, available.bytes, available.bound_by));
  }
  absl::StatusOr<UniqueFd> fd = MakeSealedMemory(size_bytes);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd->get(), size_bytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  absl::StatusOr<uint32_t> id = RegisterRegion(fd->get(), size_bytes);
  if (!id.ok()) return id.status();
  *region = {*id, mapping->data(), size_bytes};
  mappings_.emplace(*id, *std::move(mapping));
  return absl::OkStatus();
}

absl::Status Engine::ImportFd(int fd, uint64_t size_bytes, specd_region* region) {
  if (fd < 0) return Invalid("fd", fmt::format("fd = {} is no descriptor", fd));
  absl::StatusOr<uint32_t> id = RegisterRegion(fd, size_bytes);
  if (!id.ok()) return id.status();
  *region = {*id, nullptr, size_bytes};
  return absl::OkStatus();
}

absl::Status Engine::ImportDevice(uint64_t address, uint64_t size_bytes, specd_region* region) {
  absl::StatusOr<EngineLink::Registration> registered =
      Insist([&] { return link_->RegisterDevice(address, size_bytes); });
  if (registered.ok() && reattachment_ != nullptr) {
    registered->region = reattachment_->record().AddDeviceRegion(*registered, address, size_bytes);
  }
  return Note(registered, reinterpret_cast<void*>(address), size_bytes, region);
}

absl::Status Engine::Lend(void* data, uint64_t size_bytes, specd_region* region) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  if (size_bytes == 0 || size_bytes > kRegionBytesMax || address + size_bytes < address) {
    return Invalid("size_bytes",
                   fmt::format("size_bytes = {} at address {:#x} is outside 1 .. 2^40 "
                               "or passes the end of all addresses; lend the bytes "
                               "that hold rows",
                               size_bytes, address));
  }
  return Note(link_->RegisterLent(data, size_bytes), data, size_bytes, region);
}

absl::Status Engine::Note(const absl::StatusOr<EngineLink::Registration>& registered, void* data,
                          uint64_t size_bytes, specd_region* region) {
  if (!registered.ok()) return WhyUnanswered(registered.status());
  skips_[registered->region] = {registered->skip_bytes};
  *region = {registered->region, data, size_bytes};
  return absl::OkStatus();
}

absl::Status Engine::Unregister(uint32_t region) {
  const absl::Status status = Expect<OkReply>(Ask(UnregisterRegionRequest{region})).status();
  if (!status.ok()) return status;
  if (reattachment_ != nullptr) reattachment_->record().RemoveRegion(region);
  mappings_.erase(region);
  skips_.erase(region);
  return absl::OkStatus();
}

absl::Status Engine::Bind(int role, const specd_tensor& tensor) {
  const auto skip = skips_.find(tensor.region);
  const uint64_t skip_bytes = skip == skips_.end() ? 0 : skip->second.bytes;
  const absl::StatusOr<BindTensorRequest> request =
      MakeBindRequest(static_cast<uint32_t>(role), tensor, skip_bytes);
  if (!request.ok()) return request.status();
  EngineChannel& channel = rounds_.channel();
  // An aborted round is answered at once, and its ring entry stays until the daemon has seen it.
  channel.FreeEntries();
  if (channel.rounds_in_flight() != 0) {
    return MakeError(
        SPECD_ERROR_STATE, "role",
        fmt::format("{} rounds {}", channel.rounds_in_flight(),
                    channel.awaits_answers()
                        ? "are in flight; poll for their completions, then bind"
                        : "were aborted, and the daemon has still to see that; try again later"));
  }
  UniqueFd copy;
  if (role == SPECD_DRAFT_MAP && reattachment_ != nullptr) {
    // Its memory may be used for something else after the call.
    absl::StatusOr<UniqueFd> copied = reattachment_->record().CopyMap(*request);
    if (!copied.ok()) return copied.status();
    copy = *std::move(copied);
  }
  absl::Status status = ExplainSkip(Expect<OkReply>(Ask(*request)).status(), skip_bytes);
  if (!status.ok()) return status;
  // The record has numbers of its own.
  rounds_.NoteBound(role, reattachment_ != nullptr
                              ? reattachment_->record().IsOnDevice(request->region)
                              : request->region >= DeviceRegions::kFirstId);
  if (reattachment_ != nullptr) reattachment_->record().AddBinding(*request, std::move(copy));
  return status;
}

// ---- sequences

absl::Status Engine::OpenSequence(const char* request_id, const specd_params& params,
                                  specd_sequence_info* info) {
  absl::StatusOr<OpenMessage> message = MakeOpenMessage(request_id, params);
  if (!message.ok()) return message.status();
  OutputArray<specd_sequence_info> infos;
  if (absl::Status s = infos.Check("info", info, message->num_sequences, &infos); !s.ok()) return s;
  absl::StatusOr<SequenceReply> reply =
      Expect<SequenceReply>(Ask(message->request, message->lists.get()));
  if (!reply.ok()) return reply.status();
  opening_warnings_ = absl::StrJoin(reply->warnings, "\n");
  if (!reply->sequences.empty()) owner_ = OwnerOf(reply->sequences[0]);
  if (reattachment_ != nullptr) {
    const absl::StatusOr<OpenContent> content = ReadOpenContent(request_id, params);
    if (!content.ok()) return content.status();
    reattachment_->record().AddOpening(*content, reply->sequences, reply->seeds);
  }
  return Report(*reply, message->num_sequences, infos);
}

absl::Status Engine::OpenSequences(const specd_openings& openings, uint32_t* refused) {
  absl::StatusOr<std::vector<NamedParams>> named = NamedParamsOf(openings, refused);
  if (!named.ok()) return named.status();
  if ((openings.flags & ~SPECD_OPEN_PENDING) != 0) {
    return Invalid(
        "flags", fmt::format("flags = {:#x}: SPECD_OPEN_PENDING is the only flag", openings.flags));
  }
  absl::StatusOr<OpeningsMessage> message = MakeOpeningsMessage(*named, refused);
  if (!message.ok()) return message.status();
  message->request.pending = openings.flags != 0;
  OutputArray<specd_sequence_info> infos;
  if (absl::Status s = CheckInfos(openings, message->num_sequences, &infos); !s.ok()) return s;
  absl::StatusOr<SequencesReply> reply =
      Expect<SequencesReply>(Ask(message->request, message->file.get()));
  if (!reply.ok()) return reply.status();
  if (reply->code != SPECD_OK) {
    *refused = reply->refused;
    return MakeError(reply->code, reply->field, reply->text);
  }
  opening_warnings_ = absl::StrJoin(reply->warnings, "\n");
  if (!reply->sequences.empty()) owner_ = OwnerOf(reply->sequences[0]);
  if (reattachment_ != nullptr) {
    auto sequence = reply->sequences.begin();
    auto seed = reply->seeds.begin();
    for (const NamedParams& opening : *named) {
      const absl::StatusOr<OpenContent> content =
          ReadOpenContent(opening.request_id, *opening.params);
      if (!content.ok()) return content.status();
      const auto count = static_cast<ptrdiff_t>(content->num_sequences);
      if (reply->sequences.end() - sequence < count || reply->seeds.end() - seed < count) break;
      reattachment_->record().AddOpening(*content, {sequence, sequence + count},
                                         {seed, seed + count});
      sequence += count;
      seed += count;
    }
  }
  return Report(*reply, message->num_sequences, infos);
}

absl::StatusOr<int> Engine::AwaitOpening(specd_sequence sequence, int timeout_ms) {
  const Deadline deadline(timeout_ms);
  for (;;) {
    absl::StatusOr<int> answer = ends_.AwaitOpening(owner_, sequence, deadline);
    if (answer.ok() && *answer == SPECD_OK) {
      // Asked once: at the next daemon the sequence may be pending again.
      const absl::StatusOr<SequenceReply> reply =
          Expect<SequenceReply>(link_->Call(GetOpeningRequest{sequence}, -1, nullptr));
      if (reply.ok()) {
        opening_warnings_ = absl::StrJoin(reply->warnings, "\n");
        return SPECD_OK;
      }
      answer = WhyUnanswered(reply.status());
      if (!link_->PeerGone()) return answer;
    }
    if (answer.ok() || !rounds_.MayPass(answer.status())) return answer;
    const absl::StatusOr<bool> attached = reattachment_->AwaitUntil(&rounds_.channel(), deadline);
    if (!attached.ok()) return attached.status();
    if (!*attached) return SPECD_EMPTY;
  }
}

absl::Status Engine::ForkSequence(specd_sequence sequence, const char* request_id,
                                  const uint64_t* seed, specd_sequence_info* info) {
  OutputArray<specd_sequence_info> infos;
  if (absl::Status s = infos.Check("info", info, 1, &infos); !s.ok()) return s;
  if (reattachment_ != nullptr && rounds_.channel().awaits_answers()) {
    return MakeError(SPECD_ERROR_STATE, "sequence",
                     "rounds are in flight, and a copy may have tokens that the engine does not "
                     "know; with reconnect_ms poll for their completions, then fork");
  }
  const ForkSequenceRequest request{sequence, request_id, seed != nullptr,
                                    seed != nullptr ? *seed : 0};
  absl::StatusOr<SequenceReply> reply = Expect<SequenceReply>(Ask(request));
  if (!reply.ok()) return reply.status();
  if (reattachment_ != nullptr && reply->sequences.size() == 1 && reply->seeds.size() == 1) {
    reattachment_->record().AddFork(sequence, request_id, reply->sequences[0], reply->seeds[0]);
  }
  return Report(*reply, 1, infos);
}

absl::Status Engine::CloseSequence(specd_sequence sequence) {
  if (reattachment_ != nullptr) reattachment_->record().AddClosing(sequence, rounds_.channel());
  const absl::Status status = Expect<OkReply>(Ask(CloseSequenceRequest{sequence})).status();
  // A request that timed out takes effect late.
  const int code = ErrorCodeOf(status);
  const bool is_gone = status.ok() || code == SPECD_ERROR_TIMEOUT || code == SPECD_ERROR_NOT_FOUND;
  if (is_gone && reattachment_ != nullptr) reattachment_->record().RemoveSequence(sequence);
  return status;
}

absl::Status Engine::AbortSequence(specd_sequence sequence) {
  const absl::Status status = Expect<OkReply>(Ask(AbortSequenceRequest{sequence})).status();
  if (status.ok() && reattachment_ != nullptr) reattachment_->record().AddAbort(sequence);
  return status;
}

absl::Status Engine::GetState(specd_sequence sequence, specd_sequence_state* state) const {
  return ends_.Get(owner_, sequence, state);
}

absl::StatusOr<int> Engine::AwaitFinal(specd_sequence sequence, specd_sequence_state* state,
                                       int timeout_ms) {
  const Deadline deadline(timeout_ms);
  for (;;) {
    const absl::StatusOr<int> answer = ends_.AwaitFinal(owner_, sequence, state, deadline);
    if (answer.ok() || !rounds_.MayPass(answer.status())) return answer;
    const absl::StatusOr<bool> attached = reattachment_->AwaitUntil(&rounds_.channel(), deadline);
    if (!attached.ok()) return attached.status();
    if (!*attached) return SPECD_EMPTY;
  }
}

absl::Status Engine::SetCoins(specd_sequence sequence, std::span<const specd_coin> coins) {
  if (absl::Status s = CheckCanTell("coins", "coins"); !s.ok()) return s;
  return calls_.SetCoins(sequence, coins);
}

absl::Status Engine::ReadText(specd_sequence sequence, specd_text* text) {
  OutputArray<specd_text> out;
  if (absl::Status status = out.Check("text", text, 1, &out); !status.ok()) return status;
  const absl::StatusOr<SessionSequences::Text> found = link_->TextOf(sequence);
  if (!found.ok()) return found.status();
  const SequenceText& made = *found->text;
  const SequenceText::Unread& unread = found->text->Read();
  const int32_t stop_index = made.stop_index();
  out.Put(0, {.struct_size = 0,
              .finish_reason = static_cast<uint32_t>(found->finish_reason),
              .text = unread.text.c_str(),
              .size_bytes = unread.text.size(),
              .byte_offset = unread.byte_offset,
              .token_offset = unread.token_offset,
              .ends = unread.ends.data(),
              .num_tokens = static_cast<uint32_t>(unread.ends.size()),
              .stop_index = stop_index,
              .stop_string = stop_index < 0 ? nullptr : made.stop_string().c_str(),
              .reasoning_bytes = unread.reasoning_bytes,
              .reasoning_tokens = made.num_reasoning()});
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> Engine::TokenBytes(TokenId id) const {
  const Vocabulary* const vocabulary = link_->vocabulary();
  if (vocabulary != nullptr) return vocabulary->Bytes(id);
  return MakeError(SPECD_ERROR_UNSUPPORTED, "tokenizer",
                   "the bytes of a token need a tokenizer in this process; give "
                   "specd_options.tokenizer to an embedded engine, or read the texts that a daemon "
                   "publishes, which have them beside the scores (docs/PROTOCOL.md)");
}

void Engine::GetSharing(specd_sharing* sharing) {
  Sharing found = {SPECD_SHARING_NONE,
                   "no GPU is shared: rounds run on the CPU or in this process"};
  if (!link_->is_embedded() && !hello_.device_uuid.empty()) {
    // Without a driver nothing can be known.
    std::vector<GpuDevice> devices;
    (void)MakeEnginePlatform()->ListDevices(&devices);
    found = JudgeSharing(DescribeMps(devices, MpsPipeDirectory()), hello_.mps);
  }
  sharing_text_ = found.text;
  if (rounds_.cuda_streams().has_host_waits()) {
    sharing_text_ +=
        "; streams have no memory operations here, so a CPU thread of this process waits in each "
        "round on a stream, and other host functions may wait behind it";
  }
  *sharing = {found.mode, 0, sharing_text_.c_str()};
}

absl::Status Engine::GetGroup(specd_group* group) {
  absl::StatusOr<GroupReply> reply = Expect<GroupReply>(Ask(GetGroupRequest{}));
  if (!reply.ok()) return reply.status();
  join_token_ = std::move(reply->token);
  if (reattachment_ != nullptr) reattachment_->TellToken(join_token_);
  *group = {join_token_.c_str(), reply->bound_ranks, 0};
  return absl::OkStatus();
}

absl::Status Engine::DumpTrace(specd_trace_dump* dump) {
  absl::StatusOr<TraceReply> reply = Expect<TraceReply>(Ask(DumpTraceRequest{}));
  if (!reply.ok()) return reply.status();
  trace_path_ = std::move(reply->path);
  *dump = {trace_path_.c_str(), reply->num_rounds, reply->num_lost};
  return absl::OkStatus();
}

// The struct has a field for each counter, and nothing else behind its size.
static_assert(sizeof(specd_engine_stats) ==
              offsetof(specd_engine_stats, rounds) + sizeof(Counters));

absl::Status Engine::GetStats(specd_engine_stats* stats) {
  absl::StatusOr<StatsReply> reply = Expect<StatsReply>(Ask(GetStatsRequest{}));
  if (!reply.ok()) return reply.status();
  stats->reattached = reattachment_ == nullptr ? 0 : reattachment_->num_reattached();
#define SPECD_COUNTER(name, metric, meaning) stats->name = reply->counters.name;
#include "kernels/core/counter_list.inc"
  return absl::OkStatus();
}

}  // namespace specd
