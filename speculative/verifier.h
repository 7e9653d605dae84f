// Verifier owns the sequences of one session and runs the rounds over them.
//
// BeginRound packs the sequences of a round for a backend, RunPiece runs it, and EndRound walks the
// finish rules over the confirmed tokens and commits the kept ones. It knows nothing of sockets,
// text or time. One thread at a time, under the session's lock; only `opening()` may be used by any
// thread at any time. After Create a round allocates nothing.
//
//   auto verifier = Verifier::Create(options, *MakeBackend("cpu"));
//   auto info = (*verifier)->Open(params);
//   (*verifier)->BindTarget(view);
//   (*verifier)->BeginRound(inputs, results, /*asks=*/false);
//   while ((*verifier)->RunPiece()) continue;
//   (*verifier)->EndRound(results);
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
#include "kernels/core/check.h"
#include "kernels/core/counters.h"
#include "kernels/core/sequence_round.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/params/params.h"
#include "speculative/processors/token_history.h"
#include "speculative/round/call_runner.h"
#include "speculative/round/round_commit.h"
#include "speculative/round/round_observer.h"
#include "speculative/round/round_packer.h"
#include "speculative/round/round_pieces.h"
#include "speculative/round/round_scratch.h"
#include "speculative/round/row_bindings.h"
#include "speculative/round/staged_rounds.h"
#include "speculative/sequence/sequence_opening.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

struct VerifierOptions {
  BackendLimits limits;
  uint32_t max_sequences = 0;
  std::vector<TokenId> eos_token_ids;  // from the model profile
  // Compiles the constraints of sequences; null: no tokenizer is there, and constraints are
  // refused.
  std::shared_ptr<grammar::GrammarCompiler> grammars = {};
  // Tells the time in nanoseconds, to any thread; decides how many threads fill masks. Null: one.
  grammar::MaskPool::NowNs now_ns = {};
  uint32_t owner = 0;       // the part of handles that tells sessions apart (sequence_round.h)
  uint32_t generation = 0;  // after which the generations of handles begin
  // The bound of a piece of a round or call (RoundPieces). 0: kPieceWork for each thread, or
  // kDevicePieceWork.
  int64_t piece_work = 0;
};

struct SequenceInfo {
  SequenceHandle handle = 0;
  uint64_t seed = 0;
  VerifyMethod method = VerifyMethod::kAuto;
  // The opening's answer lists its warnings(); null: there is no constraint.
  std::shared_ptr<const grammar::CompiledGrammar> constraint = {};
};

class Verifier {
 public:
  static absl::StatusOr<std::unique_ptr<Verifier>> Create(const VerifierOptions& options,
                                                          std::unique_ptr<Backend> backend);

  // ---- sequences

  // Builds sequences for Insert; any thread, at any time.
  const SequenceOpening& opening() const { return opening_; }
  // Gives a built sequence a slot, or that of the handle that it has. RESOURCE_EXHAUSTED if
  // max_sequences are open; INVALID_ARGUMENT if the bound rows cannot honour its parameters, or if
  // the handle cannot be had. After an error `built` is as it was, and the caller gives back its
  // memory.
  absl::StatusOr<SequenceInfo> Insert(Sequence&& built);
  // Gives a pending sequence, which Insert has taken, all that it needs. INVALID_ARGUMENT as
  // Insert. REQUIRES: built.handle is that of a pending sequence.
  absl::StatusOr<SequenceInfo> Fill(Sequence&& built);
  // Ends a pending sequence with an error. False if it is not pending.
  bool Fail(SequenceHandle handle);
  // Does both steps.
  absl::StatusOr<SequenceInfo> Open(const SequenceParams& params,
                                    const SequenceHistory& history = {});

  // Opens a copy of a sequence in its present state, with a handle and seed of its own. NOT_FOUND
  // if the handle is stale; FAILED_PRECONDITION if the sequence has finished.
  absl::StatusOr<SequenceInfo> Fork(SequenceHandle handle, std::optional<uint64_t> seed);

  // Returns false if the handle is unknown or stale. `removed`: see SequenceTable::Close.
  bool Close(SequenceHandle handle, Sequence* removed = nullptr);

  // Ends a sequence from outside: an abort, or a stop string that the text side found. Tokens
  // beyond kept_tokens become void. If the sequence has ended already, only a stop string moves its
  // end. A stop string outranks every reason at the same token and any that comes later (CONTRACT
  // §7). Returns the sequence if something changed.
  const Sequence* Finish(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens);

  // Gives the sequence these coins in place of its own, from now on. False if the handle is stale.
  bool SetCoins(SequenceHandle handle, std::vector<InjectedCoin> coins);

  const Sequence* Find(SequenceHandle handle) { return sequences_.Find(handle); }
  SequenceTable& sequences() { return sequences_; }

  // ---- memory

  // The views must stay valid while rounds use them. FAILED_PRECONDITION if an open sequence has
  // parameters that rows of this kind cannot honour.
  absl::Status BindTarget(const TensorView& view);
  // Narrow rows (num_columns is not 0) are read by the map. REQUIRES: it has as many columns.
  absl::Status BindDraft(const TensorView& view);
  // The column of each id in narrow draft rows; unbinds the draft rows. Errors are those of
  // Backend::KeepColumns.
  absl::Status BindDraftMap(std::vector<int32_t> columns, int32_t num_columns);
  int32_t num_draft_columns() const { return rows_.map.num_columns; }
  void BindMask(const MaskView& view) { rows_.mask = view; }
  // REQUIRES: a row for each of max_sequences slots; replica < kReplicasMax.
  void BindSlotOutput(uint32_t replica, const SlotOutput& output) {
    rows_.BindSlotOutput(replica, output);
  }
  // REQUIRES: a row of max_draft ids for each of max_sequences slots.
  void BindDraftTokens(const TokenRows& rows) { rows_.draft_tokens = rows; }
  // REQUIRES: a row for each of max_sequences slots, of max_draft parents or of max_draft + 1
  // nodes.
  void BindDraftTree(const TreeRows& rows) { rows_.draft_tree = rows; }
  const TreeRows& draft_tree() const { return rows_.draft_tree; }

  // ---- rounds

  // A round in pieces of bounded work, for a caller that has other work between two of them:
  //
  //   verifier->BeginRound(inputs, results, /*asks=*/false);
  //   while (verifier->RunPiece()) Others();
  //   verifier->EndRound(results);
  //
  // Between two pieces the caller may open, fork, finish and close sequences and bind slot outputs,
  // and nothing else. A sequence of the round that was finished or closed meanwhile is answered as
  // if that had happened before the round. If no other session waits, the pieces are larger. asks:
  // EndRound gets a may_commit. REQUIRES: inputs.size() <= limits.max_batch; results.size() ==
  // inputs.size(), in all calls; numbers of inputs that are not refused are inside the limits and
  // the bound tensors.
  void BeginRound(std::span<const SequenceInput> inputs, std::span<SequenceResult> results,
                  bool asks, bool is_alone = false);
  // Runs a piece; true if another one is left.
  bool RunPiece();
  void EndRound(std::span<SequenceResult> results);
  // Calls may_commit once, after every row was read and before anything has changed. Slot outputs
  // are written after that call, separately. If it returns false, the tasks of the round are
  // answered kAborted. It is not called if there is nothing to commit.
  void EndRound(std::span<SequenceResult> results, absl::FunctionRef<bool()> may_commit);
  // Ends a round that has pieces left. Its tasks are answered kAborted, and nothing changes.
  void CallOffRound(std::span<SequenceResult> results);

  // Builds masks for a later round with these inputs, a part in each call
  // (RoundPacker::WarmMasks). That round then finds them, and its answers are the same, except
  // whether a mask meets its bound of work. False if nothing is left to build. REQUIRES: as
  // a round.
  bool WarmMasks(std::span<const SequenceInput> inputs, MaskWarmth* warmth) {
    SPECD_CHECK(staged_.count() == 0);
    return packer_.WarmMasks(inputs, &scratch_, warmth);
  }
  // How long masks were filled since the last call; 0 without VerifierOptions::now_ns.
  int64_t TakeMaskNs() { return packer_.TakeMaskNs(); }
  // Backend::ReadMemory.
  absl::Status ReadMemory(const MemoryRead& read) { return backend_->ReadMemory({&read, 1}); }
  // Backend::MarkDrafts, for the next WarmMasks with draft tokens that are kMarked.
  absl::Status MarkDrafts(void* stream) { return backend_->MarkDrafts(stream); }

  // Rounds inside the engine's CUDA graph: see StagedRounds. While any round is staged, all rounds
  // must be.
  absl::Status EnqueueStaged(void* stream, int32_t num_sequences) {
    return staged_.Enqueue(stream, num_sequences);
  }
  void StageRound(std::span<const SequenceInput> inputs) { staged_.Stage(inputs); }
  bool CollectRound(std::span<SequenceResult> results);

  // Shows every later round to the observer, which outlives the verifier; null: to none.
  void Observe(RoundObserver* observer) {
    observer_ = observer;
    staged_.Observe(observer);
  }

  // True if a sequence with a constraint was ever opened.
  bool has_constraints() const { return has_constraints_; }

  int32_t num_staged() const { return staged_.count(); }
  size_t num_staged_inputs() const { return staged_.num_inputs(); }

  // ---- calls. REQUIRES: at most max_batch inputs; numbers are inside their ranges
  // (daemon/session/session_calls.h). Results are valid until the next round or call.
  // In pieces, with the rules of BeginRound: CallRunner.
  template <class Input, class Result>
  void BeginCall(std::span<const Input> inputs, std::span<Result> results, bool is_alone) {
    SPECD_CHECK(staged_.count() == 0);
    calls_.Begin(inputs, results, is_alone && options_.piece_work == 0);
  }
  bool RunCallPiece() { return calls_.RunPiece(); }
  void EndCall(std::span<DraftResult> results) { Succeeded(calls_.End(results)); }
  void EndCall(std::span<const ScoreInput> inputs, std::span<ScoreResult> results) {
    Succeeded(calls_.End(inputs, results));
  }
  void CallOffCall() { calls_.CallOff(); }
  void FindForced(const ForcedInput& input, size_t index, ForcedResult* result) {
    SPECD_CHECK(staged_.count() == 0);
    calls_.FindForced(input, index, result);
  }

  // The reason of the last kDeviceError of a round or call; OK if there was none.
  const absl::Status& failure() const { return failure_; }

  Counters counters() const { return counters_.Read(); }
  // Any thread may read them while the verifier lives.
  const LiveCounters& live_counters() const { return counters_; }
  const Backend& backend() const { return *backend_; }

 private:
  Verifier(const VerifierOptions& options, std::unique_ptr<Backend> backend);

  absl::Status CheckRowKinds(const Sequence& built) const;
  SequenceInfo Place(Sequence&& built, Sequence* sequence);
  absl::Status Bind(const TensorView& view, std::string_view role,
                    std::string_view Sequence::*change, TensorView* bound);
  // Writes the slot outputs that the pieces held back.
  RoundStatus WriteSlotOutputs();
  void Commit(RoundStatus status, std::span<SequenceResult> results);
  // Answers task i if its sequence was finished or closed between two pieces.
  bool AnswerIfGone(size_t i, SequenceResult* result);
  // Remembers an error of the backend.
  bool Succeeded(const absl::Status& status);

  // Constant after Create.
  const VerifierOptions options_;
  const std::unique_ptr<Backend> backend_;
  const SequenceOpening opening_;

  // State between rounds.
  SequenceTable sequences_;
  RowBindings rows_;
  LiveCounters counters_;
  absl::Status failure_;  // the last failure

  // A round or a call that is answered at once.
  RoundScratch scratch_;
  RoundPacker packer_;
  RoundPieces pieces_;
  bool is_cut_ = false;                          // others may have a turn within the round
  bool holds_back_ = false;                      // slot outputs wait for the end of the round
  RoundStatus round_status_ = RoundStatus::kOk;  // of the pieces so far
  RoundCommitter committer_;
  CallRunner calls_;
  StagedRounds staged_;

  bool has_constraints_ = false;
  RoundObserver* observer_ = nullptr;
};

}  // namespace specd
