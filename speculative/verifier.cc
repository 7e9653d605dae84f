#include "speculative/verifier.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/sequence/row_kinds.h"

namespace specd {
namespace {

PieceBound BoundOf(const VerifierOptions& options, const Backend& backend) {
  const bool is_device = !backend.device_uuid().empty();
  const int64_t usual = is_device ? kDevicePieceWork : kPieceWork * options.limits.threads;
  return {.work_max = options.piece_work > 0 ? options.piece_work : usual,
          .host_row_factor = is_device ? kCopiedRowFactor : 1,
          .tasks_min = is_device && options.piece_work == 0 ? kDeviceTasksMin : 1};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Verifier>> Verifier::Create(const VerifierOptions& asked,
                                                           std::unique_ptr<Backend> backend) {
  VerifierOptions options = asked;
  options.limits.num_slots = options.max_sequences;
  for (TokenId id : options.eos_token_ids) {
    if (id < 0 || id >= options.limits.vocab_size) {
      return absl::InvalidArgumentError(
          fmt::format("eos token id {} is outside 0 .. {} (vocab_size - 1)", id,
                      options.limits.vocab_size - 1));
    }
  }
  if (absl::Status status = backend->Prepare(options.limits); !status.ok()) return status;
  return std::unique_ptr<Verifier>(new Verifier(options, std::move(backend)));
}

Verifier::Verifier(const VerifierOptions& options, std::unique_ptr<Backend> backend)
    : options_(options),
      backend_(std::move(backend)),
      opening_(options.limits, options.eos_token_ids, options.grammars),
      sequences_(options.max_sequences, options.owner, options.generation),
      rows_(options.limits.vocab_size),
      scratch_(options.limits),
      packer_(options.limits, &sequences_, &rows_, &counters_, backend_.get(), options.now_ns),
      pieces_(BoundOf(options, *backend_)),
      committer_(options.eos_token_ids, &counters_),
      calls_(options.limits,
             {.backend = backend_.get(),
              .sequences = &sequences_,
              .rows = &rows_,
              .packer = &packer_,
              .scratch = &scratch_,
              .counters = &counters_,
              .grammars = options_.grammars.get()},
             BoundOf(options, *backend_)),
      staged_(options.limits, {.backend = backend_.get(),
                               .sequences = &sequences_,
                               .rows = &rows_,
                               .packer = &packer_,
                               .committer = &committer_}) {}

// ---- sequences

absl::StatusOr<SequenceInfo> Verifier::Open(const SequenceParams& params,
                                            const SequenceHistory& history) {
  absl::StatusOr<Sequence> built = opening_.Build(params, history);
  if (!built.ok()) return built.status();
  return Insert(*std::move(built));
}

absl::Status Verifier::CheckRowKinds(const Sequence& built) const {
  for (const auto& [view, role, change] : {std::tuple{&rows_.target, "target", built.target_change},
                                           std::tuple{&rows_.draft, "draft", built.draft_change}}) {
    if (absl::Status s = CheckRowKind(view->rules, role, change); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<SequenceInfo> Verifier::Insert(Sequence&& built) {
  if (absl::Status s = CheckRowKinds(built); !s.ok()) return s;
  if (built.handle != 0 && !sequences_.CanOpenAs(built.handle)) {
    return absl::InvalidArgumentError(fmt::format(
        "handle = {:#x} is not of this session, or its slot is taken; leave it out, and the "
        "sequence gets a handle",
        built.handle));
  }
  Sequence* sequence = sequences_.Open(built.handle);
  if (sequence == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("{} sequences are open, or closed with staged rounds under way, as many as "
                    "max_sequences allows; close one, poll those rounds, or attach with a larger "
                    "max_sequences",
                    sequences_.num_taken()));
  }
  built.handle = sequence->handle;
  return Place(std::move(built), sequence);
}

absl::StatusOr<SequenceInfo> Verifier::Fill(Sequence&& built) {
  Sequence* const pending = sequences_.Find(built.handle);
  SPECD_CHECK(pending != nullptr && pending->phase == SequencePhase::kPending);
  if (absl::Status s = CheckRowKinds(built); !s.ok()) return s;
  return Place(std::move(built), pending);
}

bool Verifier::Fail(SequenceHandle handle) {
  Sequence* const pending = sequences_.Find(handle);
  if (pending == nullptr || pending->phase != SequencePhase::kPending) return false;
  pending->phase = SequencePhase::kFailed;
  pending->finish_reason = FinishReason::kError;
  return true;
}

SequenceInfo Verifier::Place(Sequence&& built, Sequence* sequence) {
  if (!built.grammar.empty()) {
    has_constraints_ = true;
    packer_.StartMasks();
  }
  *sequence = std::move(built);
  return SequenceInfo{.handle = sequence->handle,
                      .seed = sequence->seed,
                      .method = sequence->method,
                      .constraint = sequence->constraint};
}

absl::StatusOr<SequenceInfo> Verifier::Fork(SequenceHandle handle, std::optional<uint64_t> seed) {
  const Sequence* parent = sequences_.Find(handle);
  if (parent == nullptr) {
    return absl::NotFoundError(sequences_.WhyNotFound(handle));
  }
  if (parent->phase == SequencePhase::kPending) {
    return absl::FailedPreconditionError(WhyPending(handle));
  }
  if (parent->finish_reason != FinishReason::kNone) {
    return absl::FailedPreconditionError(fmt::format(
        "sequence {:#x} has finished; fork it earlier, or open a new one with its outputs",
        handle));
  }
  Sequence child = *parent;
  child.handle = 0;
  child.seed = seed.has_value() ? *seed : DrawSeed();
  child.coins.clear();
  return Insert(std::move(child));
}

bool Verifier::Close(SequenceHandle handle, Sequence* removed) {
  return sequences_.Close(handle, removed);
}

bool Verifier::SetCoins(SequenceHandle handle, std::vector<InjectedCoin> coins) {
  Sequence* sequence = sequences_.Find(handle);
  if (sequence == nullptr) return false;
  sequence->coins = std::move(coins);
  return true;
}

const Sequence* Verifier::Finish(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens) {
  Sequence* sequence = sequences_.Find(handle);
  if (sequence == nullptr || kept_tokens > sequence->kept_tokens) return nullptr;
  if (reason == FinishReason::kStop && kept_tokens <= sequence->min_tokens) return nullptr;
  if (sequence->finish_reason != FinishReason::kNone) {
    // Only a stop string may move an end, and only once: the matcher reports the earliest.
    if (reason != FinishReason::kStop || sequence->by_stop_string) return nullptr;
  }
  // The rules keep the tokens that they saw: no row of a finished sequence is ever read again.
  sequence->end_moved = sequence->finish_reason != FinishReason::kNone;
  sequence->logprob_sum.CutAt(kept_tokens);
  sequence->kept_tokens = kept_tokens;
  sequence->finish_reason = reason;
  // A pending one is not filled any more.
  if (sequence->phase == SequencePhase::kPending) sequence->phase = SequencePhase::kWithdrawn;
  sequence->stop_token = kNoToken;
  if (!sequence->text.empty()) sequence->text.Finish();
  sequence->by_stop_string = reason == FinishReason::kStop;
  return sequence;
}

// ---- memory

absl::Status Verifier::BindTarget(const TensorView& view) {
  return Bind(view, "target", &Sequence::target_change, &rows_.target);
}

absl::Status Verifier::BindDraft(const TensorView& view) {
  TensorView rows = view;
  if (view.num_columns != 0) {
    SPECD_CHECK(view.num_columns == rows_.map.num_columns);
    rows.columns = rows_.map.kept;
  }
  return Bind(rows, "draft", &Sequence::draft_change, &rows_.draft);
}

absl::Status Verifier::BindDraftMap(std::vector<int32_t> columns, int32_t num_columns) {
  SPECD_CHECK(staged_.count() == 0);
  // Nothing names the old columns once the rows are unbound.
  rows_.draft = {};
  rows_.draft.vocab_size = options_.limits.vocab_size;
  rows_.map = {};
  const absl::StatusOr<const int32_t*> kept = backend_->KeepColumns(columns);
  if (!Succeeded(kept.status())) return kept.status();
  rows_.map = {.columns = std::move(columns), .kept = *kept, .num_columns = num_columns};
  return absl::OkStatus();
}

absl::Status Verifier::Bind(const TensorView& view, std::string_view role,
                            std::string_view Sequence::*change, TensorView* bound) {
  if (absl::Status s = CheckTensor(view, role, options_.limits.vocab_size); !s.ok()) return s;
  absl::Status status;
  sequences_.ForEachOpen([&](const Sequence& sequence) {
    // A finished sequence reads no rows any more.
    if (sequence.finish_reason != FinishReason::kNone || !status.ok()) return;
    status = CheckRowKind(view.rules, role, sequence.*change);
  });
  if (status.ok()) *bound = view;
  return status;
}

// ---- rounds

void Verifier::BeginRound(std::span<const SequenceInput> inputs, std::span<SequenceResult> results,
                          bool asks, bool is_alone) {
  SPECD_CHECK(staged_.count() == 0);
  Succeeded(packer_.Pack(inputs, &scratch_, results));
  const size_t num_tasks = scratch_.num_tasks;
  const bool may_be_larger = is_alone && options_.piece_work == 0;
  pieces_.Begin(packer_.BatchOf(rows_.target, &scratch_), may_be_larger ? kAloneFactor : 1);
  // Masks may take many turns, even if the rows take one.
  is_cut_ = pieces_.is_cut() || !packer_.FillMasks(scratch_.num_tasks, &scratch_);
  // If the round is aborted, the engine may write at its slots itself, and ours must not overwrite
  // that. The engine may call it off, and a page of host memory may be missing.
  holds_back_ = asks || is_cut_ || !scratch_.draft_reads.empty() ||
                rows_.ReadsHostMemory({scratch_.tasks.data(), num_tasks});
  round_status_ = RoundStatus::kOk;
  if (is_cut_) {
    for (int32_t i = 0; i < scratch_.num_tasks; ++i) {
      sequences_.Hold(scratch_.tasks[i].slot);
    }
  }
  if (observer_ != nullptr) observer_->Begin(&pieces_.batch());
}

bool Verifier::Succeeded(const absl::Status& status) {
  if (!status.ok()) failure_ = status;
  return status.ok();
}

bool Verifier::RunPiece() {
  if (pieces_.done() || round_status_ != RoundStatus::kOk) return false;
  RoundBatch piece = pieces_.Next();
  if (!packer_.FillMasks(pieces_.end(), &scratch_)) return true;
  if (holds_back_) piece.num_slot_outputs = 0;
  if (!Succeeded(backend_->Run(piece))) round_status_ = RoundStatus::kDeviceError;
  pieces_.Advance();
  return !pieces_.done() && round_status_ == RoundStatus::kOk;
}

void Verifier::EndRound(std::span<SequenceResult> results) {
  const bool writes = holds_back_ && round_status_ == RoundStatus::kOk;
  Commit(writes ? WriteSlotOutputs() : round_status_, results);
}

void Verifier::EndRound(std::span<SequenceResult> results, absl::FunctionRef<bool()> may_commit) {
  const bool asks = round_status_ == RoundStatus::kOk && pieces_.batch().num_tasks > 0;
  if (asks && !may_commit()) round_status_ = RoundStatus::kAborted;
  EndRound(results);
}

void Verifier::CallOffRound(std::span<SequenceResult> results) {
  Commit(RoundStatus::kAborted, results);
}

RoundStatus Verifier::WriteSlotOutputs() {
  RoundBatch& batch = pieces_.batch();
  // A rank may have bound its array, or left, between two pieces.
  batch.slot_outputs = rows_.slot_outputs().data();
  batch.num_slot_outputs = static_cast<int32_t>(rows_.slot_outputs().size());
  if (batch.num_tasks == 0 || batch.num_slot_outputs == 0) return RoundStatus::kOk;
  const bool written = Succeeded(backend_->WriteSlotOutputs(batch));
  return written ? RoundStatus::kOk : RoundStatus::kDeviceError;
}

bool Verifier::AnswerIfGone(size_t i, SequenceResult* result) {
  if (!is_cut_) return false;
  const Sequence* const sequence = sequences_.Find(result->sequence);
  if (sequence != nullptr && sequence->finish_reason == FinishReason::kNone) return false;
  packer_.FindRunning(result->sequence, result);
  scratch_.sequences[i]->grammar.DropRows();
  return true;
}

void Verifier::Commit(RoundStatus status, std::span<SequenceResult> results) {
  const size_t num_tasks = scratch_.num_tasks;
  if (observer_ != nullptr) {
    observer_->Ran({.batch = pieces_.batch(),
                    .status = status,
                    .sequences = {scratch_.sequences.data(), num_tasks},
                    .is_intact = status == RoundStatus::kOk,
                    .backend = backend_.get(),
                    .draft_columns = rows_.map.columns.data()});
  }
  for (size_t i = 0; i < num_tasks; ++i) {
    SequenceResult& result = results[scratch_.task_results[i]];
    if (AnswerIfGone(i, &result)) continue;
    if (status == RoundStatus::kOk) {
      committer_.Commit(i, &scratch_, scratch_.sequences[i], &result);
    } else {
      result.status = status;
      result.method = VerifyMethod::kAuto;  // nothing was verified
      scratch_.sequences[i]->grammar.DropRows();
    }
  }
  if (status != RoundStatus::kAborted) committer_.CountRound(scratch_);
  if (observer_ != nullptr) {
    observer_->Committed(results, {scratch_.task_results.data(), num_tasks});
  }
  for (size_t i = 0; i < num_tasks && is_cut_; ++i) {
    sequences_.Release(scratch_.tasks[i].slot);
  }
}

bool Verifier::CollectRound(std::span<SequenceResult> results) {
  const bool collected = staged_.Collect(results);
  if (collected) Succeeded(staged_.failure());
  return collected;
}

}  // namespace specd
