// Verifier: the sequences of one session and the rounds over them.
//
// VerifyRound packs the sequences of a round for a backend, runs it, walks the finish rules over
// the confirmed tokens and commits what is kept. It knows nothing of sockets, text or time. Not
// thread-safe: one thread at a time, as the session's lock arranges. Only `opening()` may be used
// beside that, by any thread. After Create a round allocates nothing.
//
//   auto verifier = Verifier::Create(options, *MakeBackend("cpu"));
//   auto info = (*verifier)->Open(params);
//   (*verifier)->BindTarget(view);
//   (*verifier)->VerifyRound(inputs, results);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/core/calls.h"
#include "kernels/core/sequence_round.h"
#include "speculative/call_runner.h"
#include "speculative/params.h"
#include "speculative/round_commit.h"
#include "speculative/round_packer.h"
#include "speculative/round_scratch.h"
#include "speculative/row_bindings.h"
#include "speculative/sequence_opening.h"
#include "speculative/sequence_table.h"
#include "speculative/staged_rounds.h"
#include "speculative/token_history.h"
#include "speculative/verifier_counters.h"

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

class Verifier {
 public:
  static absl::StatusOr<std::unique_ptr<Verifier>> Create(const VerifierOptions& options,
                                                          std::unique_ptr<Backend> backend);

  // ---- sequences

  // Builds sequences for Insert; any thread, at any time.
  const SequenceOpening& opening() const { return opening_; }
  // Gives a built sequence a slot. RESOURCE_EXHAUSTED when max_sequences are open; INVALID_ARGUMENT
  // where the bound rows cannot honour its parameters.
  absl::StatusOr<SequenceInfo> Insert(Sequence built);
  // Both steps at once.
  absl::StatusOr<SequenceInfo> Open(const SequenceParams& params,
                                    const SequenceHistory& history = {});

  // A copy of a sequence as it stands now, under a handle and seed of its own. NOT_FOUND where the
  // handle is stale, FAILED_PRECONDITION where the sequence has finished.
  absl::StatusOr<SequenceInfo> Fork(SequenceHandle handle, std::optional<uint64_t> seed);

  // False where the handle is unknown or stale. `removed`: SequenceTable::Close.
  bool Close(SequenceHandle handle, Sequence* removed = nullptr);

  // Ends a sequence from outside: an abort, or a stop string the text side found. Tokens beyond
  // kept_tokens become void. An end that has been reached already is moved only by a stop string,
  // which outranks every reason at the same token and any that comes later (CONTRACT §7). Returns
  // the sequence if something changed.
  const Sequence* Finish(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens);

  // From now on the sequence meets these coins in place of its own. False where the handle is
  // stale.
  bool SetCoins(SequenceHandle handle, std::vector<InjectedCoin> coins);

  const Sequence* Find(SequenceHandle handle) { return sequences_.Find(handle); }
  SequenceTable& sequences() { return sequences_; }

  // ---- memory

  // The views must stay valid while rounds use them. FAILED_PRECONDITION where an open sequence has
  // parameters that rows of this kind cannot honour.
  absl::Status BindTarget(const TensorView& view);
  absl::Status BindDraft(const TensorView& view);
  void BindMask(const MaskView& view) { rows_.mask = view; }
  // REQUIRES: max_sequences ids; replica < kNextTokensMax.
  void BindNextTokens(uint32_t replica, const TokenArray& array) {
    rows_.BindNextTokens(replica, array);
  }
  // REQUIRES: a row of max_draft ids for each of max_sequences slots.
  void BindDraftTokens(const TokenRows& rows) { rows_.draft_tokens = rows; }

  // ---- rounds

  // REQUIRES: inputs.size() <= limits.max_batch and results.size() == inputs.size(); numbers of
  // inputs that are not refused are inside the limits and the bound tensors.
  void VerifyRound(std::span<const SequenceInput> inputs, std::span<SequenceResult> results);
  // may_commit is asked once, when every row has been looked at and nothing has changed, next
  // tokens included: those are written after it, by themselves. Where it says no, the tasks of the
  // round are answered kAborted. It is not asked where there is nothing to commit.
  void VerifyRound(std::span<const SequenceInput> inputs, std::span<SequenceResult> results,
                   absl::FunctionRef<bool()> may_commit);

  // Rounds inside a graph of the engine's: see StagedRounds. All rounds are staged while any is.
  absl::Status EnqueueStaged(void* stream, int32_t num_sequences) {
    return staged_.Enqueue(stream, num_sequences);
  }
  void StageRound(std::span<const SequenceInput> inputs) { staged_.Stage(inputs); }
  bool CollectRound(std::span<SequenceResult> results);
  int32_t num_staged() const { return staged_.count(); }
  size_t num_staged_inputs() const { return staged_.num_inputs(); }

  // ---- calls. REQUIRES: at most max_batch inputs; numbers are inside their ranges
  // (daemon/session/calls.h). Results are valid until the next round or call.
  void SampleDraft(std::span<const DraftInput> inputs, std::span<DraftResult> results);
  void Score(std::span<const ScoreInput> inputs, std::span<ScoreResult> results);

  // Why rounds and calls were last answered kDeviceError; OK where none was.
  const absl::Status& failure() const { return failure_; }

  const VerifierCounters& counters() const { return counters_; }
  const Backend& backend() const { return *backend_; }

 private:
  Verifier(const VerifierOptions& options, std::unique_ptr<Backend> backend);

  absl::Status Bind(const TensorView& view, std::string_view role,
                    std::string_view Sequence::*change, TensorView* bound);
  // Runs the packed tasks, asks, and writes next tokens; kOk, or why no task has an outcome.
  RoundStatus Run();
  RoundStatus RunIfLet(absl::FunctionRef<bool()> may_commit);
  void Commit(RoundStatus failure, std::span<SequenceResult> results);
  // Remembers an error of the backend.
  bool Succeeded(const absl::Status& status);

  // Constant after Create.
  const VerifierOptions options_;
  const std::unique_ptr<Backend> backend_;
  const SequenceOpening opening_;

  // State between rounds.
  SequenceTable sequences_;
  RowBindings rows_;
  VerifierCounters counters_;
  absl::Status failure_;  // the last one

  // A round or a call that is answered where it is asked.
  RoundScratch scratch_;
  RoundPacker packer_;
  RoundCommitter committer_;
  CallRunner calls_;
  StagedRounds staged_;
};

}  // namespace specd
