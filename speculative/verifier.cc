#include "speculative/verifier.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "speculative/row_kinds.h"

namespace specd {
namespace {

uint64_t DrawSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// A greedy sequence is not sampled from, but its processed logprobs are those of temperature 1.
float TargetScale(const SequenceParams& params) {
  return ScaleFor(IsGreedy(params) ? 1.0 : params.temperature);
}

// Logits do not add up to anything.
bool HasLogprobs(const ScoreRequest& scores) {
  return scores.enabled &&
         (scores.mode == ScoreMode::kRawLogprob || scores.mode == ScoreMode::kProcessedLogprob);
}

absl::Status CheckIds(std::span<const TokenId> ids, std::string_view field, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return absl::InvalidArgumentError(
        fmt::format("{}[{}] = {} is outside 0 .. {} (vocab_size - 1); leave out ids that stand for "
                    "no token, as those of images",
                    field, i, ids[i], vocab_size - 1));
  }
  return absl::OkStatus();
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
      tokens_stride_(options.limits.max_draft + 1),
      sequences_(options.max_sequences),
      scratch_(options.limits),
      samples_(static_cast<size_t>(options.limits.max_batch) * size_t{kSamplesMax}) {
  // Until tensors are bound: argmax ids need the vocabulary and no rows.
  target_.vocab_size = options.limits.vocab_size;
  draft_.vocab_size = options.limits.vocab_size;
}

absl::Status Verifier::CheckHistory(const SequenceParams& params,
                                    const SequenceHistory& history) const {
  const int32_t vocab_size = options_.limits.vocab_size;
  if (absl::Status s = CheckIds(history.prompt, "prompt", vocab_size); !s.ok()) return s;
  if (absl::Status s = CheckIds(history.outputs, "outputs", vocab_size); !s.ok()) return s;
  if (history.outputs.size() < static_cast<size_t>(params.max_tokens)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("outputs: {} tokens were given and max_tokens = {} counts them, so nothing is "
                  "left to generate; raise max_tokens, or do not open the sequence",
                  history.outputs.size(), params.max_tokens));
}

absl::StatusOr<SequenceInfo> Verifier::TakeSlot(Sequence built) {
  Sequence* sequence = sequences_.Open();
  if (sequence == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("{} sequences are open, or closed with staged rounds under way, as many as "
                    "max_sequences allows; close one, poll those rounds, or attach with a larger "
                    "max_sequences",
                    sequences_.num_taken()));
  }
  built.handle = sequence->handle;
  *sequence = std::move(built);
  return SequenceInfo{sequence->handle, sequence->seed, sequence->method};
}

absl::StatusOr<SequenceInfo> Verifier::Open(const SequenceParams& params,
                                            const SequenceHistory& history) {
  const int32_t vocab_size = options_.limits.vocab_size;
  if (absl::Status s = ValidateParams(params, vocab_size); !s.ok()) return s;
  if (absl::Status s = CheckHistory(params, history); !s.ok()) return s;
  const std::string_view target_change = TargetChange(params, vocab_size);
  const std::string_view draft_change = DraftChange(params.draft, vocab_size);
  if (absl::Status s = CheckRowKind(target_.rules, "target", target_change); !s.ok()) return s;
  if (absl::Status s = CheckRowKind(draft_.rules, "draft", draft_change); !s.ok()) return s;
  absl::StatusOr<RowRules> rules =
      RowRules::Create(params, options_.eos_token_ids, history, options_.limits);
  if (!rules.ok()) return rules.status();

  Sequence sequence;
  sequence.method = SequenceMethod(params);
  sequence.seed = params.has_seed ? params.seed : DrawSeed();
  sequence.target_scale = TargetScale(params);
  sequence.draft_scale = ScaleFor(params.draft.temperature);
  sequence.target_filters = MakeFilters(params, vocab_size);
  sequence.draft_filters = MakeFilters(params.draft, vocab_size);
  sequence.draft_edits = params.draft.edits;
  sequence.scores = MakeScoreRequest(params);
  sequence.logprob_token_ids = params.logprob_token_ids;
  sequence.min_tokens = params.min_tokens;
  sequence.max_tokens = params.max_tokens;
  sequence.ignore_eos = params.ignore_eos;
  sequence.stop_token_ids = params.stop_token_ids;
  sequence.target_change = target_change;
  sequence.draft_change = draft_change;
  sequence.rules = *std::move(rules);
  sequence.kept_tokens = static_cast<uint32_t>(history.outputs.size());
  if (HasLogprobs(sequence.scores)) {
    sequence.logprob_sum = LogprobSum(sequence.kept_tokens, params.max_tokens);
  }
  return TakeSlot(std::move(sequence));
}

absl::StatusOr<SequenceInfo> Verifier::Fork(SequenceHandle handle, std::optional<uint64_t> seed) {
  const Sequence* parent = sequences_.Find(handle);
  if (parent == nullptr) {
    return absl::NotFoundError(fmt::format("sequence {:#x} is not open", handle));
  }
  if (parent->finish_reason != FinishReason::kNone) {
    return absl::FailedPreconditionError(fmt::format(
        "sequence {:#x} has finished; fork it earlier, or open a new one with its outputs",
        handle));
  }
  Sequence child = *parent;
  child.seed = seed.has_value() ? *seed : DrawSeed();
  return TakeSlot(std::move(child));
}

bool Verifier::Close(SequenceHandle handle) { return sequences_.Close(handle); }

const Sequence* Verifier::Finish(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens) {
  Sequence* sequence = sequences_.Find(handle);
  if (sequence == nullptr || kept_tokens > sequence->kept_tokens) return nullptr;
  if (reason == FinishReason::kStop && kept_tokens <= sequence->min_tokens) return nullptr;
  if (sequence->finish_reason != FinishReason::kNone) {
    // Only a stop string may move an end, and only once: the matcher reports the earliest.
    const bool by_stop_string =
        sequence->finish_reason == FinishReason::kStop && sequence->stop_token == kNoToken;
    if (reason != FinishReason::kStop || by_stop_string) return nullptr;
  }
  // The rules keep what they saw: no row of a finished sequence is ever looked at again.
  sequence->end_moved = sequence->finish_reason != FinishReason::kNone;
  sequence->logprob_sum.CutAt(kept_tokens);
  sequence->kept_tokens = kept_tokens;
  sequence->finish_reason = reason;
  sequence->stop_token = kNoToken;
  return sequence;
}

absl::Status Verifier::BindTarget(const TensorView& view) {
  return Bind(view, "target", &Sequence::target_change, &target_);
}

absl::Status Verifier::BindDraft(const TensorView& view) {
  return Bind(view, "draft", &Sequence::draft_change, &draft_);
}

void Verifier::BindNextTokens(uint32_t replica, const TokenArray& array) {
  SPECD_CHECK(replica < kNextTokensMax);
  replicas_[replica] = array;
  num_next_tokens_ = 0;
  for (const TokenArray& bound : replicas_) {
    if (bound.ids != nullptr) next_tokens_[static_cast<size_t>(num_next_tokens_++)] = bound;
  }
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

}  // namespace specd
