#include "speculative/verifier.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/row_kinds.h"

namespace specd {

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
      sequences_(options.max_sequences, options.owner),
      rows_(options.limits.vocab_size),
      scratch_(options.limits),
      packer_(options.limits, &sequences_, &rows_, &counters_, backend_.get(), options.now_ns),
      committer_(options.eos_token_ids, &counters_),
      calls_(options.limits, {.backend = backend_.get(),
                              .sequences = &sequences_,
                              .rows = &rows_,
                              .packer = &packer_,
                              .scratch = &scratch_,
                              .counters = &counters_,
                              .grammars = options_.grammars.get()}),
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

absl::StatusOr<SequenceInfo> Verifier::Insert(Sequence&& built) {
  for (const auto& [view, role, change] : {std::tuple{&rows_.target, "target", built.target_change},
                                           std::tuple{&rows_.draft, "draft", built.draft_change}}) {
    if (absl::Status s = CheckRowKind(view->rules, role, change); !s.ok()) return s;
  }
  Sequence* sequence = sequences_.Open();
  if (sequence == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("{} sequences are open, or closed with staged rounds under way, as many as "
                    "max_sequences allows; close one, poll those rounds, or attach with a larger "
                    "max_sequences",
                    sequences_.num_taken()));
  }
  if (!built.grammar.empty()) {
    has_constraints_ = true;
    packer_.StartMasks();
  }
  built.handle = sequence->handle;
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
  if (parent->finish_reason != FinishReason::kNone) {
    return absl::FailedPreconditionError(fmt::format(
        "sequence {:#x} has finished; fork it earlier, or open a new one with its outputs",
        handle));
  }
  Sequence child = *parent;
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
  sequence->stop_token = kNoToken;
  sequence->by_stop_string = reason == FinishReason::kStop;
  return sequence;
}

// ---- memory

absl::Status Verifier::BindTarget(const TensorView& view) {
  return Bind(view, "target", &Sequence::target_change, &rows_.target);
}

absl::Status Verifier::BindDraft(const TensorView& view) {
  return Bind(view, "draft", &Sequence::draft_change, &rows_.draft);
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

void Verifier::VerifyRound(std::span<const SequenceInput> inputs,
                           std::span<SequenceResult> results) {
  SPECD_CHECK(staged_.count() == 0);
  Succeeded(packer_.Pack(inputs, &scratch_, results));
  const RoundBatch batch = Begin();
  Commit(batch, Run(batch), results);
}

void Verifier::VerifyRound(std::span<const SequenceInput> inputs, std::span<SequenceResult> results,
                           absl::FunctionRef<bool()> may_commit, NextTokens next_tokens) {
  SPECD_CHECK(staged_.count() == 0);
  Succeeded(packer_.Pack(inputs, &scratch_, results));
  const RoundBatch batch = Begin();
  Commit(batch, RunIfLet(batch, may_commit, next_tokens), results);
}

RoundBatch Verifier::Begin() {
  RoundBatch batch = packer_.BatchOf(rows_.target, &scratch_);
  if (observer_ != nullptr) observer_->Begin(&batch);
  return batch;
}

bool Verifier::Succeeded(const absl::Status& status) {
  if (!status.ok()) failure_ = status;
  return status.ok();
}

RoundStatus Verifier::Run(const RoundBatch& batch) {
  if (batch.num_tasks == 0) return RoundStatus::kOk;
  return Succeeded(backend_->Run(batch)) ? RoundStatus::kOk : RoundStatus::kDeviceError;
}

RoundStatus Verifier::RunIfLet(const RoundBatch& batch, absl::FunctionRef<bool()> may_commit,
                               NextTokens next_tokens) {
  if (batch.num_tasks == 0) return RoundStatus::kOk;
  if (next_tokens == NextTokens::kWithTheRound) {
    const RoundStatus status = Run(batch);
    return status != RoundStatus::kOk || may_commit() ? status : RoundStatus::kAborted;
  }
  // An engine that calls the round off may write next tokens itself; ours must not overwrite them.
  RoundBatch held_back = batch;
  held_back.num_next_tokens = 0;
  if (!Succeeded(backend_->Run(held_back))) return RoundStatus::kDeviceError;
  if (!may_commit()) return RoundStatus::kAborted;
  if (batch.num_next_tokens == 0) return RoundStatus::kOk;
  const bool written = Succeeded(backend_->WriteNextTokens(batch));
  return written ? RoundStatus::kOk : RoundStatus::kDeviceError;
}

void Verifier::Commit(const RoundBatch& batch, RoundStatus status,
                      std::span<SequenceResult> results) {
  const auto num_tasks = static_cast<size_t>(scratch_.num_tasks);
  if (observer_ != nullptr) {
    observer_->Ran({.batch = batch,
                    .status = status,
                    .sequences = {scratch_.sequences.data(), num_tasks},
                    .is_intact = status == RoundStatus::kOk,
                    .backend = backend_.get()});
  }
  for (size_t i = 0; i < num_tasks; ++i) {
    SequenceResult& result = results[scratch_.task_results[i]];
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
}

bool Verifier::CollectRound(std::span<SequenceResult> results) {
  const bool collected = staged_.Collect(results);
  if (collected) Succeeded(staged_.failure());
  return collected;
}

// ---- calls

void Verifier::SampleDraft(std::span<const DraftInput> inputs, std::span<DraftResult> results) {
  SPECD_CHECK(staged_.count() == 0);
  Succeeded(calls_.SampleDraft(inputs, results));
}

void Verifier::Score(std::span<const ScoreInput> inputs, std::span<ScoreResult> results) {
  SPECD_CHECK(staged_.count() == 0);
  Succeeded(calls_.Score(inputs, results));
}

}  // namespace specd
