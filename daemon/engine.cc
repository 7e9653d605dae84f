#include "daemon/engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include "daemon/clock.h"
#include "daemon/version.h"
#include "ipc/error.h"
#include "speculative/params.h"

namespace specd {
namespace {

// While waiting, how often to look whether the daemon still lives: death is noticed within this
// time and the look (one poll of the socket) costs nothing at this rate.
constexpr int kLookMs = 20;

absl::Status Invalid(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field, text);
}

absl::Status Unexpected() {
  return MakeError(SPECD_ERROR_INTERNAL, "reply", "the reply is of another type than the request");
}

// Spinning takes a core from the engine or the daemon unless there is one to spare.
int64_t SpinNs() {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return 0;
  return CPU_COUNT(&usable) > 2 ? 200'000 : 0;
}

// The reply of type T, or why not.
template <class T>
absl::StatusOr<T> Expect(absl::StatusOr<Reply> reply) {
  if (!reply.ok()) return reply.status();
  if (T* body = std::get_if<T>(&*reply)) return *std::move(body);
  return Unexpected();
}

// What only the library can check, because it does not travel: flags that are numbers in C, and the
// caller's arrays. What the values mean is checked where they are used.
absl::Status CheckParams(const specd_params& params) {
  for (const auto& [field, value] :
       {std::pair{"has_seed", params.has_seed}, std::pair{"ignore_eos", params.ignore_eos},
        std::pair{"include_stop", params.include_stop},
        std::pair{"skip_special_tokens", params.skip_special_tokens}}) {
    if (value > 1) return Invalid(field, fmt::format("{} = {} must be 0 or 1", field, value));
  }
  if (params.reserved != 0) return Invalid("reserved", "reserved must be 0");
  // Before the arrays are read: a wild count must not become a wild read.
  if (params.num_stop_token_ids > kStopIdsMax) {
    return Invalid("num_stop_token_ids", fmt::format("num_stop_token_ids = {} is outside 0 .. {}",
                                                     params.num_stop_token_ids, kStopIdsMax));
  }
  if (params.num_stop_strings > kStopStringsMax) {
    return Invalid("num_stop_strings", fmt::format("num_stop_strings = {} is outside 0 .. {}",
                                                   params.num_stop_strings, kStopStringsMax));
  }
  if (params.num_stop_token_ids > 0 && params.stop_token_ids == nullptr) {
    return Invalid("stop_token_ids",
                   fmt::format("stop_token_ids is NULL but num_stop_token_ids = {}",
                               params.num_stop_token_ids));
  }
  if (params.num_stop_strings > 0 && params.stop_strings == nullptr) {
    return Invalid("stop_strings", fmt::format("stop_strings is NULL but num_stop_strings = {}",
                                               params.num_stop_strings));
  }
  for (uint32_t i = 0; i < params.num_stop_strings; ++i) {
    if (params.stop_strings[i] == nullptr) {
      return Invalid("stop_strings", fmt::format("stop_strings[{}] is NULL", i));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> MakeSealedMemfd(uint64_t size_bytes) {
  UniqueFd fd(memfd_create("specd-rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return MakeErrnoError(SPECD_ERROR_EXHAUSTED, "size_bytes", "no shared memory", errno);
  }
  // fallocate takes the pages now: a full machine is an error here and not a SIGBUS later.
  const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(size_bytes));
  if (error != 0) {
    return MakeErrnoError(SPECD_ERROR_EXHAUSTED, "size_bytes",
                          fmt::format("size_bytes = {} of shared memory", size_bytes), error);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return MakeErrnoError(SPECD_ERROR_INTERNAL, "size_bytes", "sealing", errno);
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Open(const std::string& uri,
                                                     const specd_options& options) {
  constexpr uint32_t kTimeoutMaxMs = 3'600'000;
  if (options.timeout_ms == 0 || options.timeout_ms > kTimeoutMaxMs) {
    return Invalid("timeout_ms", fmt::format("timeout_ms = {} is outside 1 .. {}",
                                             options.timeout_ms, kTimeoutMaxMs));
  }
  HelloRequest hello;
  hello.name = options.name == nullptr ? "engine" : options.name;
  hello.version = kVersion;
  hello.pid = static_cast<uint32_t>(getpid());
  hello.limits = {options.vocab_size, options.max_batch,
                  options.max_sequences == 0 ? options.max_batch : options.max_sequences,
                  options.max_draft, options.ring_depth};
  if (absl::Status status = ValidateLimits(hello.limits); !status.ok()) return status;

  absl::StatusOr<std::unique_ptr<EngineLink>> link =
      MakeEngineLink(uri, absl::Milliseconds(options.timeout_ms));
  if (!link.ok()) return link.status();
  UniqueFd segment_fd;
  absl::StatusOr<HelloReply> reply = Expect<HelloReply>((*link)->Call(hello, -1, &segment_fd));
  if (!reply.ok()) return reply.status();
  absl::StatusOr<Segment> segment = Segment::Attach(std::move(segment_fd));
  if (!segment.ok()) return segment.status();
  absl::StatusOr<OkReply> mapped = Expect<OkReply>((*link)->Call(MappedRequest{}, -1, nullptr));
  if (!mapped.ok()) return mapped.status();
  return std::unique_ptr<Engine>(
      new Engine(*std::move(link), std::make_unique<Segment>(*std::move(segment))));
}

Engine::Engine(std::unique_ptr<EngineLink> link, std::unique_ptr<Segment> segment)
    : link_(std::move(link)),
      segment_(std::move(segment)),
      channel_(segment_.get()),
      drafts_(segment_->limits().max_batch),
      results_(segment_->limits().max_batch) {
  channel_.SetState(EngineState::kRunning);
}

Engine::~Engine() { channel_.SetState(EngineState::kClosing); }

// ---- memory

absl::StatusOr<uint32_t> Engine::RegisterRegion(int fd, uint64_t size_bytes) {
  absl::StatusOr<RegionReply> reply =
      Expect<RegionReply>(link_->Call(RegisterRegionRequest{size_bytes}, fd, nullptr));
  if (!reply.ok()) return reply.status();
  return reply->region;
}

absl::Status Engine::Alloc(uint64_t size_bytes, specd_region* region) {
  if (size_bytes == 0 || size_bytes > (uint64_t{1} << 40)) {
    return Invalid("size_bytes", fmt::format("size_bytes = {} is outside 1 .. 2^40", size_bytes));
  }
  absl::StatusOr<UniqueFd> fd = MakeSealedMemfd(size_bytes);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd->get(), size_bytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  absl::StatusOr<uint32_t> id = RegisterRegion(fd->get(), size_bytes);
  if (!id.ok()) return id.status();
  mappings_.push_back(*std::move(mapping));
  *region = {*id, mappings_.back().data(), size_bytes};
  return absl::OkStatus();
}

absl::Status Engine::ImportFd(int fd, uint64_t size_bytes, specd_region* region) {
  if (fd < 0) return Invalid("fd", fmt::format("fd = {} is no descriptor", fd));
  absl::StatusOr<uint32_t> id = RegisterRegion(fd, size_bytes);
  if (!id.ok()) return id.status();
  *region = {*id, nullptr, size_bytes};
  return absl::OkStatus();
}

absl::Status Engine::Bind(int role, const specd_tensor& tensor) {
  if (tensor.reserved != 0) return Invalid("reserved", "reserved must be 0");
  if (channel_.rounds_in_flight() != 0) {
    return MakeError(SPECD_ERROR_STATE, "role",
                     fmt::format("{} rounds are in flight; poll for their completions, then bind",
                                 channel_.rounds_in_flight()));
  }
  BindTensorRequest request{static_cast<uint32_t>(role), tensor.region,   tensor.dtype,
                            tensor.offset_bytes,         tensor.num_rows, tensor.row_stride};
  return Expect<OkReply>(link_->Call(request, -1, nullptr)).status();
}

// ---- sequences

absl::Status Engine::OpenSequence(const char* request_id, const specd_params& params,
                                  specd_sequence_info* info) {
  if (absl::Status status = CheckParams(params); !status.ok()) return status;
  OpenSequenceRequest request;
  request.request_id = request_id;
  request.verify = params.verify;
  request.temperature = params.temperature;
  request.draft_temperature = params.draft_temperature;
  request.has_seed = params.has_seed != 0;
  request.seed = params.seed;
  request.max_tokens = params.max_tokens;
  request.ignore_eos = params.ignore_eos != 0;
  request.include_stop = params.include_stop != 0;
  request.skip_special_tokens = params.skip_special_tokens != 0;
  request.stop_token_ids.assign(params.stop_token_ids,
                                params.stop_token_ids + params.num_stop_token_ids);
  for (uint32_t i = 0; i < params.num_stop_strings; ++i) {
    request.stop_strings.emplace_back(params.stop_strings[i]);
  }
  absl::StatusOr<SequenceReply> reply = Expect<SequenceReply>(link_->Call(request, -1, nullptr));
  if (!reply.ok()) return reply.status();
  *info = {reply->sequence, reply->seed, reply->verify, 0};
  return absl::OkStatus();
}

absl::Status Engine::CloseSequence(specd_sequence sequence) {
  return Expect<OkReply>(link_->Call(CloseSequenceRequest{sequence}, -1, nullptr)).status();
}

absl::Status Engine::AbortSequence(specd_sequence sequence) {
  return Expect<OkReply>(link_->Call(AbortSequenceRequest{sequence}, -1, nullptr)).status();
}

absl::Status Engine::GetState(specd_sequence sequence, specd_sequence_state* state) {
  const uint32_t slot = SequenceSlot(sequence);
  if (slot < segment_->limits().max_sequences) {
    const SequenceState found = channel_.ReadState(slot);
    if (IsStateOf(found, sequence)) {
      *state = {found.finish_reason, found.kept_tokens};
      return absl::OkStatus();
    }
  }
  return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                   fmt::format("sequence {:#x} is not open", sequence));
}

// ---- rounds

absl::Status Engine::CheckDraft(uint32_t index, const specd_draft& draft) const {
  if (draft.num_drafts > segment_->limits().max_draft) {
    return Invalid("num_drafts",
                   fmt::format("drafts[{}].num_drafts = {} is outside 0 .. {} "
                               "(max_draft of specd_open)",
                               index, draft.num_drafts, segment_->limits().max_draft));
  }
  if (draft.reserved != 0) {
    return Invalid("reserved", fmt::format("drafts[{}].reserved must be 0", index));
  }
  if (draft.target_rows == nullptr) {
    return Invalid("target_rows", fmt::format("drafts[{}].target_rows is NULL; num_drafts + 1 rows "
                                              "are needed",
                                              index));
  }
  if (draft.num_drafts > 0 && draft.tokens == nullptr) {
    return Invalid("tokens", fmt::format("drafts[{}].tokens is NULL but num_drafts = {}", index,
                                         draft.num_drafts));
  }
  for (uint32_t i = 0; draft.kinds != nullptr && i < draft.num_drafts; ++i) {
    if (draft.kinds[i] > SPECD_SAMPLED) {
      return Invalid("kinds", fmt::format("drafts[{}].kinds[{}] = {} is neither SPECD_ONE_HOT (0) "
                                          "nor SPECD_SAMPLED (1)",
                                          index, i, draft.kinds[i]));
    }
    if (draft.kinds[i] == SPECD_SAMPLED && draft.draft_rows == nullptr) {
      return Invalid("draft_rows",
                     fmt::format("drafts[{}].kinds[{}] is SPECD_SAMPLED but draft_rows "
                                 "is NULL; name the row it was drawn from",
                                 index, i));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Engine::Submit(uint64_t round_id, const specd_draft* drafts,
                                   uint32_t num_drafts) {
  if (num_drafts == 0 || num_drafts > segment_->limits().max_batch) {
    return Invalid("num_drafts",
                   fmt::format("num_drafts = {} sequences is outside 1 .. {} (max_batch of "
                               "specd_open)",
                               num_drafts, segment_->limits().max_batch));
  }
  for (uint32_t i = 0; i < num_drafts; ++i) {
    if (absl::Status status = CheckDraft(i, drafts[i]); !status.ok()) return status;
    drafts_[i] = {drafts[i].sequence,
                  {static_cast<int32_t>(drafts[i].num_drafts), drafts[i].tokens,
                   reinterpret_cast<const DraftKind*>(drafts[i].kinds), drafts[i].target_rows,
                   drafts[i].draft_rows}};
  }
  // A daemon that died without a word is noticed by Poll; asking the socket here would cost a
  // system call per round.
  if (channel_.daemon_state() != DaemonState::kRunning) return WhyNoCompletion();
  switch (channel_.Submit(round_id, {drafts_.data(), num_drafts},
                          static_cast<uint64_t>(Clock::Real()->NowNs()))) {
    case PushResult::kOk:
      return SPECD_OK;
    case PushResult::kFull:
      return SPECD_FULL;
    case PushResult::kBroken:
      break;
  }
  return WhyNoCompletion();
}

absl::Status Engine::WhyNoCompletion() const {
  if (channel_.fault() != ChannelFault::kNone) {
    return MakeError(
        SPECD_ERROR_INTERNAL, "",
        fmt::format("the shared memory of the session is damaged ({}); close and attach "
                    "again",
                    ChannelFaultName(channel_.fault())));
  }
  if (link_->PeerGone()) {
    return MakeError(SPECD_ERROR_DISCONNECTED, "",
                     "the daemon is gone; rounds in flight will not complete. Start it and attach "
                     "again");
  }
  return MakeError(SPECD_ERROR_SHUTDOWN, "",
                   "the daemon is shutting down and takes no new rounds; finish and close");
}

bool Engine::WaitForCompletion(int timeout_ms) {
  if (link_->embedded()) {
    // The verifier runs here and now; once it has no work, waiting would bring nothing.
    while (!channel_.HasCompletion() && link_->Step()) {
    }
    return channel_.HasCompletion();
  }
  static const int64_t kSpinNs = SpinNs();
  int64_t left_ms = timeout_ms < 0 ? INT64_MAX : timeout_ms;
  while (!channel_.HasCompletion()) {
    if (left_ms == 0 || channel_.rounds_in_flight() == 0 || link_->PeerGone()) return false;
    const int64_t slice_ms = std::min<int64_t>(left_ms, kLookMs);
    channel_.WaitCompletion({kSpinNs, absl::Milliseconds(slice_ms)});
    left_ms -= timeout_ms < 0 ? 0 : slice_ms;
    if (channel_.daemon_state() == DaemonState::kStopped && !channel_.HasCompletion()) return false;
  }
  return true;
}

absl::StatusOr<int> Engine::Poll(specd_completion* completion, int timeout_ms) {
  if (timeout_ms < -1) {
    return Invalid("timeout_ms", fmt::format("timeout_ms = {} is less than -1", timeout_ms));
  }
  const bool waited_in_vain = !WaitForCompletion(timeout_ms);
  // Asked before the last look into the ring: what a daemon answered before it ended is still
  // there.
  const bool over =
      waited_in_vain && (channel_.daemon_state() == DaemonState::kStopped || link_->PeerGone());
  CompletionView view;
  if (channel_.Poll(&view)) {
    if (view.malformed) {
      return MakeError(SPECD_ERROR_INTERNAL, "", "the daemon could not read the round");
    }
    Deliver(view, completion);
    return SPECD_OK;
  }
  if (over || channel_.fault() != ChannelFault::kNone) return WhyNoCompletion();
  return SPECD_EMPTY;
}

void Engine::Deliver(const CompletionView& view, specd_completion* completion) {
  for (size_t i = 0; i < view.results.size(); ++i) {
    const SequenceResult& from = view.results[i];
    results_[i] = {from.sequence, from.status,     from.finish_reason, from.num_accepted,
                   from.num_kept, from.total_kept, from.stop_token,    from.tokens};
  }
  *completion = {view.round_id,
                 static_cast<uint32_t>(view.results.size()),
                 0,
                 results_.data(),
                 view.done_ns - view.taken_ns,
                 view.done_ns - view.submit_ns};
}

}  // namespace specd
