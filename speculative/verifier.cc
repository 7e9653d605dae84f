#include "speculative/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

namespace specd {
namespace {

uint64_t DrawSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// c of CONTRACT §9.3: exponents are taken base 2, and the division by T happens once, in double.
float ScaleFor(double temperature) { return static_cast<float>(std::numbers::log2e / temperature); }

}  // namespace

absl::StatusOr<std::unique_ptr<Verifier>> Verifier::Create(const VerifierOptions& options,
                                                           std::unique_ptr<Backend> backend) {
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
      sequences_(options.max_sequences),
      tasks_(static_cast<size_t>(options.limits.max_batch)),
      task_results_(static_cast<size_t>(options.limits.max_batch)),
      outcomes_(static_cast<size_t>(options.limits.max_batch)),
      tokens_(static_cast<size_t>(options.limits.max_batch) *
              static_cast<size_t>(options.limits.max_draft + 1)) {}

absl::StatusOr<SequenceInfo> Verifier::Open(const SequenceParams& params) {
  if (absl::Status status = ValidateParams(params, options_.limits.vocab_size); !status.ok()) {
    return status;
  }
  Sequence* sequence = sequences_.Open();
  if (sequence == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("{} sequences are open, as many as max_sequences allows; close one, or attach "
                    "with a larger max_sequences",
                    sequences_.num_open()));
  }
  sequence->method = ResolveMethod(params);
  if (sequence->method != VerifyMethod::kGreedy) {
    sequence->target_scale = ScaleFor(params.temperature);
  }
  sequence->draft_scale = ScaleFor(params.draft_temperature);
  sequence->seed = params.has_seed ? params.seed : DrawSeed();
  sequence->max_tokens = params.max_tokens;
  sequence->ignore_eos = params.ignore_eos;
  sequence->stop_token_ids = params.stop_token_ids;
  return SequenceInfo{sequence->handle, sequence->seed, sequence->method};
}

bool Verifier::Close(SequenceHandle handle) { return sequences_.Close(handle); }

const Sequence* Verifier::Finish(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens) {
  Sequence* sequence = sequences_.Find(handle);
  if (sequence == nullptr || kept_tokens > sequence->kept_tokens) return nullptr;
  if (sequence->finish_reason != FinishReason::kNone) {
    // Only a stop string may move an end, and only once: the matcher reports the earliest.
    const bool by_stop_string =
        sequence->finish_reason == FinishReason::kStop && sequence->stop_token == kNoToken;
    if (reason != FinishReason::kStop || by_stop_string) return nullptr;
  }
  sequence->kept_tokens = kept_tokens;
  sequence->finish_reason = reason;
  sequence->stop_token = kNoToken;
  return sequence;
}

bool Verifier::Pack(const RoundInput& input, RoundResult* result, ChainTask* task) {
  *result = RoundResult{};
  result->sequence = input.sequence;
  Sequence* sequence = sequences_.Find(input.sequence);
  if (sequence == nullptr) {
    result->status = RoundStatus::kUnknownSequence;
    return false;
  }
  result->finish_reason = sequence->finish_reason;
  result->total_kept = sequence->kept_tokens;
  result->stop_token = sequence->stop_token;
  if (sequence->finish_reason != FinishReason::kNone) {
    result->status = RoundStatus::kFinished;
    return false;
  }
  // A second record of the same sequence has no defined place in the output.
  if (input.malformed || sequence->last_round == round_stamp_) {
    result->status = RoundStatus::kInvalid;
    ++counters_.invalid_records;
    return false;
  }
  sequence->last_round = round_stamp_;
  task->chain = input.chain;
  task->method = sequence->method;
  task->target_scale = sequence->target_scale;
  task->draft_scale = sequence->draft_scale;
  task->seed = sequence->seed;
  task->first_position = sequence->kept_tokens;
  task->round_base = sequence->kept_tokens;
  return true;
}

void Verifier::Commit(const ChainOutcome& outcome, const TokenId* tokens, RoundResult* result) {
  Sequence* sequence = sequences_.Find(result->sequence);
  FinishRules rules;
  rules.stop_token_ids = sequence->stop_token_ids;
  if (!sequence->ignore_eos) rules.eos_token_ids = options_.eos_token_ids;
  rules.max_tokens = sequence->max_tokens;
  FinishWalk walk = WalkFinishRules(rules, sequence->kept_tokens,
                                    {tokens, static_cast<size_t>(outcome.num_tokens)});
  // A bad row counts only if the sequence had not finished on a token before it.
  if (walk.reason == FinishReason::kNone && outcome.status != OutcomeStatus::kOk) {
    walk.reason = FinishReason::kError;
    result->status = RoundStatus::kBadDistribution;
    ++(outcome.status == OutcomeStatus::kBadTargetRow ? counters_.bad_target_rows
                                                      : counters_.bad_draft_rows);
  }
  sequence->kept_tokens += static_cast<uint32_t>(walk.num_kept);
  sequence->finish_reason = walk.reason;
  sequence->stop_token = walk.stop_token;

  result->finish_reason = walk.reason;
  result->num_accepted = static_cast<uint32_t>(std::min(outcome.num_accepted, walk.num_kept));
  result->num_kept = static_cast<uint32_t>(walk.num_kept);
  result->total_kept = sequence->kept_tokens;
  result->stop_token = walk.stop_token;
  result->tokens = tokens;

  counters_.accepted += result->num_accepted;
  counters_.kept += result->num_kept;
  // What happened in the kernel, also beyond the token that finished the sequence.
  counters_.empty_residuals += outcome.empty_residuals;
  counters_.invalid_drafts += outcome.invalid_drafts;
}

void Verifier::VerifyRound(std::span<const RoundInput> inputs, std::span<RoundResult> results) {
  SPECD_CHECK(inputs.size() <= tasks_.size());
  SPECD_CHECK(inputs.size() == results.size());
  ++round_stamp_;
  ++counters_.rounds;

  int32_t num_tasks = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!Pack(inputs[i], &results[i], &tasks_[static_cast<size_t>(num_tasks)])) continue;
    task_results_[static_cast<size_t>(num_tasks)] = static_cast<uint32_t>(i);
    counters_.drafted += static_cast<uint64_t>(inputs[i].chain.num_drafts);
    ++num_tasks;
  }
  counters_.sequence_rounds += static_cast<uint64_t>(num_tasks);
  if (num_tasks == 0) return;

  const int32_t stride = options_.limits.max_draft + 1;
  const RoundBatch batch{target_,          draft_,         tasks_.data(), num_tasks,
                         outcomes_.data(), tokens_.data(), stride};
  const absl::Status status = backend_->Run(batch);
  for (int32_t i = 0; i < num_tasks; ++i) {
    RoundResult& result = results[task_results_[static_cast<size_t>(i)]];
    if (!status.ok()) {
      result.status = RoundStatus::kDeviceError;
      continue;
    }
    Commit(outcomes_[static_cast<size_t>(i)], tokens_.data() + static_cast<int64_t>(i) * stride,
           &result);
  }
}

}  // namespace specd
