#include "daemon/client/session_record.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "daemon/client/sealed_memory.h"
#include "daemon/session/request_id.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/sequence_round.h"

namespace specd {
namespace {

// In one message, whose answer has to come within the engine's timeout: ESTIMATE
constexpr size_t kOpeningsAtOnce = 64;

// True for a sequence that has not begun: it is pending, its opening failed, or it was aborted
// before. A failed opening is tried again, and the next daemon gives the same reason.
bool IsPendingIn(const EngineChannel& channel, uint64_t sequence) {
  const SequenceState state = channel.ReadState(SlotOf(sequence));
  return IsStateOf(state, sequence) && (state.finish_reason == SequenceState::kPending ||
                                        state.finish_reason == SequenceState::kFailed ||
                                        state.finish_reason == SequenceState::kWithdrawn);
}

}  // namespace

bool IsForNow(const absl::Status& status) {
  switch (ErrorCodeOf(status)) {
    case SPECD_ERROR_DISCONNECTED:
    case SPECD_ERROR_SHUTDOWN:
    case SPECD_ERROR_EXHAUSTED:
    case SPECD_ERROR_TIMEOUT:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<uint32_t> SessionRecord::AddRegion(uint32_t at_daemon, int fd, uint64_t size_bytes) {
  UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) {
    return MakeErrnoError(SPECD_ERROR_EXHAUSTED, "fd",
                          "no descriptor for the region; raise the limit of open files", errno);
  }
  const uint32_t region = next_region_++;
  regions_[region] = {.fd = std::move(own), .size_bytes = size_bytes, .at_daemon = at_daemon};
  return region;
}

uint32_t SessionRecord::AddDeviceRegion(const EngineLink::Registration& at_daemon, uint64_t address,
                                        uint64_t size_bytes) {
  const uint32_t region = next_region_++;
  regions_[region] = {.fd = UniqueFd(),
                      .address = address,
                      .skip_bytes = at_daemon.skip_bytes,
                      .size_bytes = size_bytes,
                      .at_daemon = at_daemon.region};
  return region;
}

uint32_t SessionRecord::RegionAtDaemon(uint32_t region) const {
  const auto found = regions_.find(region);
  return found == regions_.end() ? UINT32_MAX : found->second.at_daemon;
}

bool SessionRecord::IsOnDevice(uint32_t region) const {
  const auto found = regions_.find(region);
  return found != regions_.end() && !found->second.fd.valid();
}

absl::StatusOr<UniqueFd> SessionRecord::CopyMap(const BindTensorRequest& bound) const {
  const auto found = regions_.find(bound.region);
  if (found == regions_.end()) return UniqueFd();
  const Region& region = found->second;
  if (!region.fd.valid()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "role",
                     "role: another daemon cannot be told of a draft map in device memory; bind "
                     "it from memory of specd_alloc, or open the engine with reconnect_ms = 0");
  }
  const TensorSpec& spec = bound.spec;
  const uint64_t id_bytes = spec.dtype == SPECD_INT64 ? sizeof(int64_t) : sizeof(int32_t);
  if (spec.columns == 0 || spec.columns > region.size_bytes / id_bytes ||
      spec.offset_bytes > region.size_bytes - spec.columns * id_bytes) {
    return UniqueFd();
  }
  return CopySealed(region.fd.get(), spec.offset_bytes, spec.columns * id_bytes);
}

void SessionRecord::AddBinding(const BindTensorRequest& bound, UniqueFd map) {
  // A map unbinds the draft rows, and a list of children its sister in the other memory.
  const bool is_map = bound.role == SPECD_DRAFT_MAP;
  const auto is_sister = [&bound](uint32_t role) {
    return (bound.role == SPECD_DRAFT_NEXT_CHILD && role == SPECD_DRAFT_NEXT_SIBLING) ||
           (bound.role == SPECD_DRAFT_NEXT_SIBLING && role == SPECD_DRAFT_NEXT_CHILD);
  };
  std::erase_if(bindings_, [&](const Bound& old) {
    const BindTensorRequest& request = old.request;
    return request.role == bound.role || (is_map && request.role == SPECD_DRAFT_ROWS) ||
           (is_sister(request.role) && IsOnDevice(request.region) != IsOnDevice(bound.region));
  });
  bindings_.push_back({bound, std::move(map)});
}

void SessionRecord::Add(Known known) {
  owner_ = OwnerOf(known.sequence);
  generation_ = std::max(generation_, GenerationOf(known.sequence));
  sequences_[SlotOf(known.sequence)] = std::move(known);
}

void SessionRecord::AddOpening(const OpenContent& content, const std::vector<uint64_t>& sequences,
                               const std::vector<uint64_t>& seeds) {
  auto opening = std::make_shared<Opening>();
  opening->request = content.request;
  std::erase_if(opening->request.numbers, [](const auto& number) { return number.first == "n"; });
  const auto outputs = content.ids.begin() + content.request.num_prompt_ids;
  const auto lists = outputs + content.request.num_output_ids;
  opening->prompt.assign(content.ids.begin(), outputs);
  opening->lists.assign(lists, content.ids.end());
  opening->text = content.text;
  const std::vector<std::string> names = NamesOf(content.request.request_id, sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    Add({.opening = opening,
         .request_id = names[i],
         .sequence = sequences[i],
         .seed = seeds[i],
         .num_given = content.request.num_output_ids,
         .outputs = {outputs, lists},
         .cumulative_logprob = content.request.cumulative_logprob,
         .finish_reason = 0,
         .stop_token = {}});
  }
}

void SessionRecord::AddFork(uint64_t source, const std::string& request_id, uint64_t sequence,
                            uint64_t seed) {
  const auto found = sequences_.find(SlotOf(source));
  if (found == sequences_.end()) return;
  Known fork = found->second;
  fork.request_id = request_id;
  fork.sequence = sequence;
  fork.seed = seed;
  fork.num_given = fork.outputs.size();
  Add(std::move(fork));
}

void SessionRecord::AddAbort(uint64_t sequence) {
  const auto found = sequences_.find(SlotOf(sequence));
  if (found != sequences_.end() && found->second.sequence == sequence) {
    found->second.is_aborted = true;
  }
}

void SessionRecord::RemoveSequence(uint64_t sequence) {
  const auto found = sequences_.find(SlotOf(sequence));
  if (found != sequences_.end() && found->second.sequence == sequence) sequences_.erase(found);
}

void SessionRecord::AddResults(const CompletionView& view) {
  if (view.kind != SubmissionKind::kRound) return;
  for (const SequenceResult& result : view.results) {
    const auto found = sequences_.find(SlotOf(result.sequence));
    if (found == sequences_.end() || found->second.sequence != result.sequence) continue;
    Known& known = found->second;
    known.outputs.insert(known.outputs.end(), result.tokens, result.tokens + result.num_kept);
    if (result.num_kept > 0) known.cumulative_logprob = result.cumulative_logprob;
    if (result.finish_reason == FinishReason::kNone) continue;
    known.finish_reason = static_cast<uint32_t>(result.finish_reason);
    if (result.stop_token != kNoToken) known.stop_token = {result.stop_token};
  }
}

absl::Status SessionRecord::Tell(EngineLink* link, const EngineChannel& channel) {
  if (absl::Status status = TellMemory(link); !status.ok()) return status;
  for (const bool pending : {false, true}) {
    if (absl::Status s = TellSequences(link, channel, pending); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// A map needs a region until the daemon has copied it, and the engine may have as many regions as a
// daemon takes. So maps come first.
absl::Status SessionRecord::TellMemory(EngineLink* link) {
  for (const Bound& bound : bindings_) {
    if (!bound.map.valid()) continue;
    if (absl::Status status = TellMap(link, bound); !status.ok()) return status;
  }
  for (auto& [number, region] : regions_) {
    if (absl::Status status = TellRegion(link, &region); !status.ok()) return status;
  }
  for (const Bound& bound : bindings_) {
    if (bound.map.valid()) continue;
    BindTensorRequest request = bound.request;
    request.region = RegionAtDaemon(request.region);
    const absl::Status status = Expect<OkReply>(link->Call(request, -1, nullptr)).status();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SessionRecord::TellRegion(EngineLink* link, Region* region) {
  if (!region->fd.valid()) {
    const auto registered = link->RegisterDevice(region->address, region->size_bytes);
    if (!registered.ok()) return registered.status();
    if (registered->skip_bytes != region->skip_bytes) {
      return MakeError(SPECD_ERROR_REGION, "address",
                       fmt::format("address = {:#x} is in another allocation than when the engine "
                                   "imported it; keep imported memory until the engine closes",
                                   region->address));
    }
    region->at_daemon = registered->region;
    return absl::OkStatus();
  }
  const absl::StatusOr<RegionReply> reply = Expect<RegionReply>(
      link->Call(RegisterRegionRequest{region->size_bytes}, region->fd.get(), nullptr));
  if (reply.ok()) region->at_daemon = reply->region;
  return reply.status();
}

absl::Status SessionRecord::TellMap(EngineLink* link, const Bound& bound) {
  BindTensorRequest request = bound.request;
  // The daemon copies a map, so that its region is of no use after the binding.
  const uint64_t id_bytes = request.spec.dtype == SPECD_INT64 ? sizeof(int64_t) : sizeof(int32_t);
  const uint64_t size_bytes = request.spec.columns * id_bytes;
  const absl::StatusOr<RegionReply> reply =
      Expect<RegionReply>(link->Call(RegisterRegionRequest{size_bytes}, bound.map.get(), nullptr));
  if (!reply.ok()) return reply.status();
  request.region = reply->region;
  request.spec.offset_bytes = 0;
  const absl::Status status = Expect<OkReply>(link->Call(request, -1, nullptr)).status();
  if (!status.ok()) return status;
  return Expect<OkReply>(link->Call(UnregisterRegionRequest{reply->region}, -1, nullptr)).status();
}

// A stop string or an abort ends a sequence without a result. Every other end comes in one, and the
// round of an end that the engine does not know runs again.
void SessionRecord::TakeEnd(const EngineChannel& channel, Known* known) {
  const SequenceState state = channel.ReadState(SlotOf(known->sequence));
  if (IsPendingIn(channel, known->sequence)) {
    const bool is_withdrawn = state.finish_reason == SequenceState::kWithdrawn;
    known->finish_reason = is_withdrawn ? SPECD_FINISH_ABORT : SPECD_FINISH_NONE;
    return;
  }
  const bool is_end = known->finish_reason != 0 || state.finish_reason == SPECD_FINISH_STOP ||
                      state.finish_reason == SPECD_FINISH_ABORT;
  if (!IsStateOf(state, known->sequence) || state.finish_reason == SPECD_FINISH_NONE || !is_end ||
      state.kept_tokens > known->outputs.size()) {
    return;
  }
  if (state.finish_reason != known->finish_reason || state.kept_tokens < known->outputs.size()) {
    known->stop_token.clear();
  }
  known->finish_reason = state.finish_reason;
  known->cumulative_logprob = channel.ReadLogprob(SlotOf(known->sequence), state);
  known->outputs.resize(state.kept_tokens);
}

void SessionRecord::AddClosing(uint64_t sequence, const EngineChannel& channel) {
  const auto found = sequences_.find(SlotOf(sequence));
  if (found == sequences_.end() || found->second.sequence != sequence) return;
  TakeEnd(channel, &found->second);
}

OpenContent SessionRecord::ContentOf(const Known& known) {
  OpenContent content;
  OpenSequenceRequest& request = content.request;
  if (!known.refusal.ok()) {
    request.has_seed = true;
    request.seed = known.seed;
    request.handle = known.sequence;
    request.num_given_ids = static_cast<uint32_t>(known.outputs.size());
    request.refusal_code = ErrorCodeOf(known.refusal);
    request.refusal_field = ErrorFieldOf(known.refusal);
    request.refusal_text = std::string(known.refusal.message());
    return content;
  }
  request = known.opening->request;
  request.request_id = known.request_id;
  request.has_seed = true;
  request.seed = known.seed;
  request.handle = known.sequence;
  request.cumulative_logprob = known.cumulative_logprob;
  request.finish_reason = known.finish_reason;
  request.stop_token = known.stop_token;
  // An aborted sequence whose last round the engine does not know ends before that round.
  if (known.is_aborted && request.finish_reason == 0) request.finish_reason = SPECD_FINISH_ABORT;
  request.num_output_ids = static_cast<uint32_t>(known.outputs.size());
  request.num_given_ids = static_cast<uint32_t>(std::min(known.num_given, known.outputs.size()));
  content.ids = known.opening->prompt;
  content.ids.insert(content.ids.end(), known.outputs.begin(), known.outputs.end());
  content.ids.insert(content.ids.end(), known.opening->lists.begin(), known.opening->lists.end());
  content.text = known.opening->text;
  return content;
}

absl::Status SessionRecord::TellSequences(EngineLink* link, const EngineChannel& channel,
                                          bool pending) {
  for (auto& [slot, known] : sequences_) TakeEnd(channel, &known);
  size_t max = kOpeningsAtOnce;
  for (auto next = sequences_.begin(); next != sequences_.end();) {
    const absl::StatusOr<bool> told = TellSome(link, channel, pending, max, &next);
    if (!told.ok()) return told.status();
    // A daemon that refuses many is asked for a few at a time: an opening is packed a few times at
    // most.
    max = *told ? std::min(2 * max, kOpeningsAtOnce) : std::max<size_t>(max / 2, 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SessionRecord::TellSome(EngineLink* link, const EngineChannel& channel,
                                             bool pending, size_t max,
                                             std::map<uint32_t, Known>::iterator* next) {
  OpeningsFile file;
  std::vector<uint64_t> wanted;
  auto at = *next;
  for (; at != sequences_.end() && wanted.size() < max; ++at) {
    const Known& known = at->second;
    const bool is_pending = IsPendingIn(channel, known.sequence) || !known.refusal.ok();
    if (is_pending != pending) continue;
    const absl::StatusOr<bool> added = file.Add(ContentOf(known));
    if (!added.ok()) return added.status();
    if (!*added) break;
    wanted.push_back(known.sequence);
  }
  if (!wanted.empty()) {
    absl::StatusOr<OpeningsMessage> message = std::move(file).Finish();
    if (!message.ok()) return message.status();
    message->request.pending = pending;
    const absl::StatusOr<SequencesReply> reply =
        Expect<SequencesReply>(link->Call(message->request, message->file.get(), nullptr));
    if (!reply.ok()) return reply.status();
    if (reply->code != SPECD_OK) {
      const uint64_t sequence = wanted[std::min<size_t>(reply->refused, wanted.size() - 1)];
      const absl::Status why = MakeError(reply->code, reply->field,
                                         fmt::format("sequence {:#x}: {}", sequence, reply->text));
      Known& refused = sequences_.at(SlotOf(sequence));
      const bool waits = IsForNow(why) && !(is_last_ && reply->code == SPECD_ERROR_EXHAUSTED);
      waits_for_sequence_ = waits && reply->code == SPECD_ERROR_EXHAUSTED;
      if (waits || !refused.refusal.ok()) return why;
      refused.refusal = why;
      return false;
    }
    if (reply->sequences != wanted) {
      return MakeError(SPECD_ERROR_INTERNAL, "", "the daemon has opened other sequences");
    }
  }
  *next = at;
  return true;
}

}  // namespace specd
