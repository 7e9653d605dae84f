#include "daemon/session/session.h"

#include <fmt/format.h>

#include <atomic>
#include <random>
#include <tuple>
#include <utility>

#include "daemon/session/memory_cost.h"
#include "daemon/session/round_limits.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

static_assert(SessionLimits::kScoresMax == 1 + kLogprobsMax + kLogprobTokenIdsMax);
static_assert(SessionLimits::kDraftMax == kNodesMax);

// How long an engine waits for a trace. By default the call of
// an attached engine times out after 5 seconds.
constexpr absl::Duration kDumpTimeout = absl::Seconds(4);

// Takes the session's bytes before any of its memory is taken.
absl::StatusOr<SessionBudget> TakeSessionMemory(const SessionOptions& options) {
  SessionBudget session;
  if (options.memory == nullptr) return session;
  session.budget = std::make_unique<MemoryBudget>(options.memory_bytes_max, "session_memory_mib",
                                                  options.memory);
  absl::StatusOr<MemoryShare> share =
      session.budget->Take("the session", SessionBytes(options.limits, options.threads));
  if (!share.ok()) return share.status();
  session.share = *std::move(share);
  return session;
}

// Tells the handles of this process's sessions apart, and with high probability those of other
// processes too: numbers go on from a random one. No session has 0.
uint32_t NextOwner() {
  static std::atomic<uint32_t> next{std::random_device{}()};
  return next.fetch_add(1, std::memory_order_relaxed) % kHandleOwnerMax + 1;
}

absl::Status CheckOrigin(const SessionOrigin& origin) {
  for (const auto& [field, value, max] :
       {std::tuple{"owner", origin.owner, kHandleOwnerMax},
        std::tuple{"generation", origin.generation, kHandleGenerationMax}}) {
    if (value > max) {
      return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field,
                       fmt::format("{} = {} is outside 0 .. {}", field, value, max));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Create(const SessionOptions& options,
                                                         std::unique_ptr<Backend> backend) {
  if (absl::Status status = ValidateLimits(options.limits); !status.ok()) return status;
  if (absl::Status status = CheckOrigin(options.origin); !status.ok()) return status;
  if (absl::Status status = CheckVocabSize(*options.profile, options.limits.vocab_size);
      !status.ok()) {
    return status;
  }
  VerifierOptions verifier_options;
  verifier_options.limits = RoundLimitsOf(options.limits);
  verifier_options.limits.threads = options.threads;
  verifier_options.limits.records_staged = options.recorder != nullptr;
  verifier_options.max_sequences = options.limits.max_sequences;
  verifier_options.owner = options.origin.owner != 0 ? options.origin.owner : NextOwner();
  verifier_options.generation = options.origin.generation;
  verifier_options.piece_work = options.piece_work;
  verifier_options.eos_token_ids = options.profile->eos_token_ids;
  verifier_options.now_ns = [clock = options.clock] { return clock->NowNs(); };
  if (options.grammars != nullptr) {
    verifier_options.grammars = options.grammars->ForWidth(verifier_options.limits.vocab_size);
  }
  absl::StatusOr<SessionBudget> budget = TakeSessionMemory(options);
  if (!budget.ok()) return budget.status();
  absl::StatusOr<MemoryShare> trace_memory =
      options.recorder == nullptr
          ? MemoryShare()
          : TakeMemory(options.memory, "the trace of the session (buffer_mib of --trace_options)",
                       options.recorder->SizeBytes(verifier_options.limits));
  if (!trace_memory.ok()) return trace_memory.status();
  absl::StatusOr<std::unique_ptr<Verifier>> verifier =
      Verifier::Create(verifier_options, std::move(backend));
  if (!verifier.ok()) return verifier.status();
  absl::StatusOr<Segment> segment = Segment::Create(options.limits, options.identity);
  if (!segment.ok()) return segment.status();
  auto session = std::shared_ptr<Session>(
      new Session(options, *std::move(budget), *std::move(segment), *std::move(verifier)));
  if (options.recorder != nullptr) {
    session->StartTrace(verifier_options, *std::move(trace_memory));
  }
  return session;
}

Session::Session(const SessionOptions& options, SessionBudget budget, Segment segment,
                 std::unique_ptr<Verifier> verifier)
    : opening_rate_({.per_second = options.openings_per_second,
                     .num_free = options.origin.owner != 0 ? options.limits.max_sequences : 0}),
      attached_ns_(options.clock->NowNs()),
      state_(options, std::move(segment), std::move(verifier), std::move(budget)),
      memory_(&state_),
      ranks_(&state_, &memory_),
      sequences_(&state_),
      rounds_(&state_, &memory_, &sequences_),
      calls_(&state_, &memory_),
      submission_(options.limits) {
  if (options.publish_events) {
    state_.events = std::make_unique<EventQueue>(EventCapacityOf(options.limits));
  }
  if (options.may_stage) state_.channel.AllowStaging();
  state_.channel.SetState(DaemonState::kRunning);
}

Session::~Session() { EndAll(); }

SessionUse Session::Use() {
  const SessionLimits& limits = state_.options.limits;
  SessionUse use = {.age_ns = state_.options.clock->NowNs() - attached_ns_,
                    .sequences_max = limits.max_sequences,
                    .rounds_max = limits.ring_depth,
                    .openings = opening_rate_.num_opened(),
                    .openings_per_second_max = opening_rate_.per_second(),
                    .refusals = num_refusals_.load(std::memory_order_relaxed)};
  if (state_.memory != nullptr) {
    use.memory_bytes = state_.memory->taken_bytes();
    use.memory_bytes_max = state_.memory->bytes_max();
  }
  MutexLock lock(&state_.mutex);
  use.sequences = state_.verifier->sequences().num_taken();
  use.rounds = state_.channel.CountInFlight();
  return use;
}

void Session::StartTrace(const VerifierOptions& options, MemoryShare memory) {
  MutexLock lock(&state_.mutex);
  state_.trace =
      state_.options.recorder->Attach({.session_id = state_.options.identity.session_id,
                                       .backend = std::string(state_.backend.name()),
                                       .device = std::string(state_.backend.device_uuid()),
                                       .limits = options.limits,
                                       .max_sequences = options.max_sequences,
                                       .eos_token_ids = options.eos_token_ids},
                                      std::move(memory));
  state_.verifier->Observe(state_.trace.get());
}

absl::StatusOr<TraceDump> Session::DumpTrace() {
  if (state_.options.recorder == nullptr) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "trace",
                     "no trace is recorded; start the daemon with --trace=DIR, or give an embedded "
                     "engine the option trace");
  }
  return state_.options.recorder->Dump(state_.options.identity.session_id, kDumpTimeout);
}

bool Session::EndAll() {
  const bool had_run = End();
  // This runs without the session's lock, because the driver takes its time. No round reads the
  // memory: the session takes no more rounds, and End has waited for the lock, which a piece of a
  // round on a device holds to its end.
  device_regions().Close();
  return had_run;
}

bool Session::End() {
  MutexLock lock(&state_.mutex);
  if (ended()) return false;
  EndNow();
  return true;
}

void Session::Drain() {
  MutexLock lock(&state_.mutex);
  state_.is_left = state_.options.origin.resumes;
  state_.channel.SetState(DaemonState::kDraining);
}

void Session::EndNow() {
  if (is_between_pieces()) DropPieces();
  sequences_.FreeClosed();
  sequences_.FinishAll();
  if (state_.trace != nullptr) state_.trace->EndSession();
  state_.channel.Abandon();
  state_.channel.SetState(DaemonState::kStopped);
  // Pairs with the acquire in ended(). The release keeps the events that were pushed above before
  // the end.
  state_.ended.store(true, std::memory_order_release);
}

bool Session::StepPiece(bool is_alone) {
  MutexLock lock(&state_.mutex);
  // Openings between two pieces take room too, so it is asked for before each of them.
  if (ended() || !rounds_.HasRoom()) return false;
  if (is_between_pieces()) {
    RunNextPiece();
  } else if (!state_.channel.Take(&submission_,
                                  static_cast<uint64_t>(state_.options.clock->NowNs()))) {
    return rounds_.Collect();
  } else if (submission_.kind() == SubmissionKind::kRound) {
    rounds_.Do(&submission_, is_alone);
  } else {
    calls_.Do(submission_, is_alone);
  }
  sequences_.FreeClosed();
  if (state_.has_faulted.load()) {
    CallOffPieces();
    EndNow();
  }
  if (state_.options.meters != nullptr) state_.options.meters->Follow(counters(), &metered_);
  return true;
}

void Session::CallOffRound() {
  MutexLock lock(&state_.mutex);
  if (!state_.is_left.load()) return CallOffPieces();
  // The next daemon is asked for the round again, and for those behind it: answers keep their
  // order.
  if (is_between_pieces() && !ended()) EndNow();
}

void Session::RunNextPiece() {
  submission_.kind() == SubmissionKind::kRound ? rounds_.RunPiece(submission_)
                                               : calls_.RunPiece(submission_);
}

void Session::CallOffPieces() {
  if (!is_between_pieces()) return;
  submission_.kind() == SubmissionKind::kRound ? rounds_.CallOff(submission_)
                                               : calls_.CallOff(submission_);
}

void Session::DropPieces() {
  submission_.kind() == SubmissionKind::kRound ? rounds_.Drop(submission_) : calls_.Drop();
}

bool Session::Prepare() {
  MutexLock lock(&state_.mutex);
  // A session without constraints copies nothing, and no round is copied once it is prepared.
  if (ended() || is_between_pieces() || rounds_.IsPrepared(state_.channel.next_position()))
    return false;
  const bool is_prepared = state_.channel.Peek(&submission_) && rounds_.Prepare(submission_);
  if (state_.has_faulted.load()) EndNow();  // draft tokens in host memory were read
  return is_prepared;
}

std::string Session::WhyDeviceFailed() {
  MutexLock lock(&state_.mutex);
  return std::string(state_.verifier->failure().message());
}

bool Session::PopEvent(SequenceHandle* sequence, TokenEvent* event) {
  return state_.events != nullptr && state_.events->Pop(sequence, event);
}

void Session::FinishFromText(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens) {
  MutexLock lock(&state_.mutex);
  if (!ended()) sequences_.Finish(sequence, reason, kept_tokens);
}

bool Session::SettleFromText(SequenceHandle sequence) {
  MutexLock lock(&state_.mutex);
  return ended() || sequences_.Settle(sequence);
}

}  // namespace specd
