// Verifier: the sequences of one session and the rounds over them.
//
// VerifyRound packs the sequences of a round for a backend, runs it, walks the finish rules over
// the confirmed tokens and commits what is kept. It knows nothing of sockets, text or time. Not
// thread-safe: one thread at a time, as the session's lock arranges. After Create a round allocates
// nothing.
//
//   auto verifier = Verifier::Create(options, *MakeBackend("cpu"));
//   auto info = (*verifier)->Open(params);
//   (*verifier)->BindTarget(view);
//   (*verifier)->VerifyRound(inputs, results);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "speculative/finish_rules.h"
#include "speculative/params.h"
#include "speculative/sequence_table.h"

namespace specd {

struct VerifierOptions {
  BackendLimits limits;
  uint32_t max_sequences = 0;
  std::vector<TokenId> eos_token_ids;  // from the model profile
};

struct SequenceInfo {
  SequenceHandle handle = 0;
  uint64_t seed = 0;
  VerifyMethod method = VerifyMethod::kAuto;
};

// Values are on the wire and in specd.h.
enum class RoundStatus : uint32_t {
  kOk = 0,
  kFinished = 1,
  kBadDistribution = 2,
  kUnknownSequence = 3,
  kInvalid = 4,
  kDeviceError = 5,
};

// One sequence's part of a round. malformed: whoever decoded it found a count, kind or row index
// out of range; it is answered kInvalid and its chain is not looked at.
struct RoundInput {
  SequenceHandle sequence = 0;
  DraftChain chain;
  bool malformed = false;
};

struct RoundResult {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  FinishReason finish_reason = FinishReason::kNone;
  uint32_t num_accepted = 0;  // of the kept tokens, those that are accepted drafts
  uint32_t num_kept = 0;
  uint32_t total_kept = 0;
  TokenId stop_token = kNoToken;
  const TokenId* tokens = nullptr;  // num_kept ids; valid until the next round
};

// Sums since Create; each degenerate case of CONTRACT §6 has its own.
struct VerifierCounters {
  uint64_t rounds = 0;
  uint64_t sequence_rounds = 0;
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  uint64_t kept = 0;
  uint64_t bad_target_rows = 0;
  uint64_t bad_draft_rows = 0;
  uint64_t empty_residuals = 0;
  uint64_t invalid_drafts = 0;
  uint64_t invalid_records = 0;
};

class Verifier {
 public:
  static absl::StatusOr<std::unique_ptr<Verifier>> Create(const VerifierOptions& options,
                                                          std::unique_ptr<Backend> backend);

  // RESOURCE_EXHAUSTED when max_sequences are open; INVALID_ARGUMENT names the field.
  absl::StatusOr<SequenceInfo> Open(const SequenceParams& params);

  // False where the handle is unknown or stale.
  bool Close(SequenceHandle handle);

  // Ends a sequence from outside: an abort, or a stop string the text side found. Tokens beyond
  // kept_tokens become void. An end that has been reached already is moved only by a stop string,
  // which outranks every reason at the same token and any that comes later (CONTRACT §7). Returns
  // the sequence if something changed.
  const Sequence* Finish(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens);

  const Sequence* Find(SequenceHandle handle) { return sequences_.Find(handle); }
  SequenceTable& sequences() { return sequences_; }

  // The views must stay valid while rounds use them.
  void BindTarget(const TensorView& view) { target_ = view; }
  void BindDraft(const TensorView& view) { draft_ = view; }

  // REQUIRES: inputs.size() <= limits.max_batch and results.size() == inputs.size(); row indices of
  // well-formed inputs are inside the bound tensors.
  void VerifyRound(std::span<const RoundInput> inputs, std::span<RoundResult> results);

  const VerifierCounters& counters() const { return counters_; }

 private:
  Verifier(const VerifierOptions& options, std::unique_ptr<Backend> backend);

  // Fills the task of one input, or answers it at once; true if there is a task to run.
  bool Pack(const RoundInput& input, RoundResult* result, ChainTask* task);
  void Commit(const ChainOutcome& outcome, const TokenId* tokens, RoundResult* result);

  // Constant after Create.
  const VerifierOptions options_;
  const std::unique_ptr<Backend> backend_;

  // State between rounds.
  SequenceTable sequences_;
  TensorView target_;
  TensorView draft_;
  uint64_t round_stamp_ = 0;
  VerifierCounters counters_;

  // Scratch of a round, sized by the limits.
  std::vector<ChainTask> tasks_;
  std::vector<uint32_t> task_results_;  // task i answers results[task_results_[i]]
  std::vector<ChainOutcome> outcomes_;
  std::vector<TokenId> tokens_;
};

}  // namespace specd
