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

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "speculative/finish_rules.h"
#include "speculative/fixed_list.h"
#include "speculative/params.h"
#include "speculative/round_scratch.h"
#include "speculative/sequence_table.h"
#include "speculative/token_history.h"

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

// Tensor-parallel ranks that may each have next tokens of their own.
inline constexpr uint32_t kNextTokensMax = 8;

// Values are on the wire and in specd.h.
enum class RoundStatus : uint32_t {
  kOk = 0,
  kFinished = 1,
  kBadDistribution = 2,
  kUnknownSequence = 3,
  kInvalid = 4,
  kDeviceError = 5,
  kAborted = 6,  // the round was called off before it was committed: nothing changed
};

// What kInvalid is about, where the record itself reads well. Values are SPECD_DETAIL_....
enum class RoundDetail : uint32_t { kRefused = 9, kHostTokens = 11, kNoRoom = 12 };

// Why an input cannot be verified; no reason: it can.
struct RoundFault {
  std::string_view reason;
  RoundDetail detail = RoundDetail::kRefused;
};

// Of a sequence whose lists the backend has no memory for.
inline constexpr RoundFault kNoRoomFault{
    "the ids that the sequence's parameters ban, bias or count need more memory than rounds on the "
    "device have: lower max_draft, no_repeat_ngram or what else lists many, do without penalties, "
    "or use backend \"cpu\"; stage fewer sequences, or submit the round",
    RoundDetail::kNoRoom};

// One sequence's part of a round. malformed: whoever decoded it found a count, kind or row index
// out of range; it is answered kInvalid and its chain is not looked at.
// discard: the rows are padding or an unfinished prefill; nothing is sampled and no state changes,
// the answer is kOk with no token. mask_rows: num_drafts + 1 rows of the bound mask, -1 where a
// place is unconstrained; null: all are. drafts_by_slot: chain.tokens is null, and the draft tokens
// lie at the sequence's slot in the bound draft tokens.
struct RoundInput {
  SequenceHandle sequence = 0;
  DraftChain chain;
  const int32_t* mask_rows = nullptr;
  bool discard = false;
  bool malformed = false;
  const InjectedCoin* coins = nullptr;  // by tests and replay, in the place of the keyed ones
  int32_t num_coins = 0;
  bool drafts_by_slot = false;
};

// One row of the draft model to draw children from: specd as the drafter's sampler. The coins, and
// the state that penalties see where they are asked for, follow from the draft prefix.
struct DraftInput {
  SequenceHandle sequence = 0;
  uint32_t row = 0;       // of the bound draft tensor
  int32_t mask_row = -1;  // of the bound mask, for sequences with draft_edits
  const TokenId* prefix = nullptr;
  int32_t num_prefix = 0;  // the depth: children stand num_prefix places after the kept tokens
  DraftSampling sampling = DraftSampling::kWithReplacement;
  int32_t num_children = 1;
  uint32_t first_node = 1;  // child j is node first_node + j of the draft
  bool malformed = false;
  const InjectedCoin* coins = nullptr;  // as in RoundInput
  int32_t num_coins = 0;
};
struct DraftResult {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  std::string_view reason;                // what is wrong, where status is kInvalid
  std::span<const DraftSample> children;  // distinct ids; valid until the next call
};

// Given ids in given rows of the bound target tensor; no sequence and no state.
struct ScoreInput {
  const uint32_t* rows = nullptr;
  const TokenId* ids = nullptr;
  int32_t num_ids = 0;  // at most max_draft + 1
  ScoreRequest request;
};
struct ScoreResult {
  RoundStatus status = RoundStatus::kOk;
  std::string_view reason;  // what is wrong, where status is kInvalid
  int32_t num_scored = 0;   // ids before the first bad row
  int32_t scores_per_token = 0;
  const TokenScore* scores = nullptr;  // valid until the next call
};

struct RoundResult {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  RoundFault fault;  // where status is kInvalid
  FinishReason finish_reason = FinishReason::kNone;
  uint32_t num_accepted = 0;  // of the kept tokens, those that are accepted drafts
  uint32_t num_kept = 0;
  uint32_t total_kept = 0;
  TokenId stop_token = kNoToken;
  // Of the tokens kept since the sequence was opened; NaN where LogprobSum has none.
  double cumulative_logprob = std::numeric_limits<double>::quiet_NaN();
  const TokenId* tokens = nullptr;  // num_kept ids; valid until the next round
  // scores_per_token entries for each kept token (NumScores of the sequence's request).
  int32_t scores_per_token = 0;
  const TokenScore* scores = nullptr;
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
  uint64_t point_masses = 0;
  uint64_t invalid_records = 0;
  uint64_t bad_tokens = 0;  // ids the kernel refused to emit: a fault of ours
  uint64_t discarded = 0;
};

class Verifier {
 public:
  static absl::StatusOr<std::unique_ptr<Verifier>> Create(const VerifierOptions& options,
                                                          std::unique_ptr<Backend> backend);

  // RESOURCE_EXHAUSTED when max_sequences are open; INVALID_ARGUMENT names the field.
  // One sequence, whatever params.n says: its caller opens child i with seed + i.
  absl::StatusOr<SequenceInfo> Open(const SequenceParams& params,
                                    const SequenceHistory& history = {});

  // A copy of a sequence as it stands now, under a handle and seed of its own. NOT_FOUND where the
  // handle is stale, FAILED_PRECONDITION where the sequence has finished.
  absl::StatusOr<SequenceInfo> Fork(SequenceHandle handle, std::optional<uint64_t> seed);

  // False where the handle is unknown or stale.
  bool Close(SequenceHandle handle);

  // Ends a sequence from outside: an abort, or a stop string the text side found. Tokens beyond
  // kept_tokens become void. An end that has been reached already is moved only by a stop string,
  // which outranks every reason at the same token and any that comes later (CONTRACT §7). Returns
  // the sequence if something changed.
  const Sequence* Finish(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens);

  const Sequence* Find(SequenceHandle handle) { return sequences_.Find(handle); }
  SequenceTable& sequences() { return sequences_; }

  // The views must stay valid while rounds use them. FAILED_PRECONDITION where an open sequence has
  // parameters that rows of this kind cannot honour.
  absl::Status BindTarget(const TensorView& view);
  absl::Status BindDraft(const TensorView& view);
  void BindMask(const MaskView& view) { mask_ = view; }
  // After every round a sequence's last token lies at its slot, in each array that is bound:
  // max_sequences ids. REQUIRES: replica < kNextTokensMax.
  void BindNextTokens(uint32_t replica, const TokenArray& array);
  // REQUIRES: a row of max_draft ids for each of max_sequences slots.
  void BindDraftTokens(const TokenRows& rows) { draft_tokens_ = rows; }

  // REQUIRES: inputs.size() <= limits.max_batch and results.size() == inputs.size(); row indices of
  // well-formed inputs are inside the bound tensors.
  void VerifyRound(std::span<const RoundInput> inputs, std::span<RoundResult> results);
  // may_commit is asked once, when every row has been looked at and nothing has changed, next
  // tokens included: those are written behind it, by themselves. Where it says no, what would have
  // been committed is answered kAborted. It is not asked where there is nothing to commit.
  void VerifyRound(std::span<const RoundInput> inputs, std::span<RoundResult> results,
                   absl::FunctionRef<bool()> may_commit);

  // ---- staged_rounds.cc: rounds that run inside a graph of the engine's, one round or more ahead
  // of what is known here. All rounds are staged while any is.

  // What StageRound stages runs where this is enqueued: Backend::EnqueueStaged. The first call
  // takes the memory that staged rounds need.
  absl::Status EnqueueStaged(void* stream, int32_t num_sequences);
  // Packs a round as VerifyRound does, and stages it whatever its inputs are, so that each run of
  // what is enqueued has a round of its own. A sequence with staged rounds goes on from where those
  // will have left it, and its slot is nobody else's before they are collected. REQUIRES:
  // EnqueueStaged has succeeded once; num_staged() < kStagedRoundsMax.
  void StageRound(std::span<const RoundInput> inputs);
  // Commits the oldest staged round if it has been done, and fills a result for each of its inputs.
  // A sequence that has finished meanwhile is answered kFinished, one that was closed
  // kUnknownSequence. Once the backend has failed, all that is staged is answered kDeviceError.
  // REQUIRES: results.size() is num_staged_inputs().
  bool CollectRound(std::span<RoundResult> results);
  int32_t num_staged() const { return num_staged_; }
  size_t num_staged_inputs() const;  // of the oldest; 0 where none is staged

  // REQUIRES: as VerifyRound, with at most max_batch inputs; row indices are inside the bound draft
  // tensor; children per input at most kSamplesMax.
  void SampleDraft(std::span<const DraftInput> inputs, std::span<DraftResult> results);

  // REQUIRES: as VerifyRound; row indices are inside the bound target tensor.
  void Score(std::span<const ScoreInput> inputs, std::span<ScoreResult> results);

  // Why rounds and calls were last answered kDeviceError; OK where none was.
  const absl::Status& failure() const { return failure_; }

  const VerifierCounters& counters() const { return counters_; }
  const Backend& backend() const { return *backend_; }

 private:
  Verifier(const VerifierOptions& options, std::unique_ptr<Backend> backend);

  // ---- verifier.cc
  absl::Status CheckHistory(const SequenceParams& params, const SequenceHistory& history) const;
  // The last step of opening: whatever may fail or throw was done while it was built.
  absl::StatusOr<SequenceInfo> TakeSlot(Sequence built);
  absl::Status Bind(const TensorView& view, std::string_view role,
                    std::string_view Sequence::*change, TensorView* bound);

  // ---- verify_round.cc
  // Fills the tasks of a round; results[i] is the answer of an input that has none.
  void PackRound(std::span<const RoundInput> inputs, RoundScratch* scratch,
                 std::span<RoundResult> results);
  // Fills the task of one input, or answers it at once; true if there is a task to run.
  bool Pack(const RoundInput& input, RoundScratch* scratch, RoundResult* result);
  // Looks up a sequence that goes on, or answers for it.
  Sequence* FindRunning(SequenceHandle handle, RoundResult* result);
  // What makes an input impossible to verify.
  RoundFault FindFault(const RoundInput& input, const Sequence& sequence) const;
  std::string_view FindArgmaxFault(const RoundInput& input, const Sequence& sequence) const;
  bool IsMaskRow(int32_t row) const { return row >= -1 && row < mask_.num_rows; }
  void PackPlaces(const RoundInput& input, Sequence* sequence, ChainTask* task, PlaceEdits* places);
  // Runs the tasks, asks, and writes next tokens; kOk, or why no task has an outcome.
  RoundStatus RunIfLet(const RoundBatch& batch, absl::FunctionRef<bool()> may_commit);
  // What the backend answered, which is remembered where it is an error.
  bool Succeeded(const absl::Status& status);
  // The packed tasks over these rows, but for samples.
  RoundBatch BatchOf(const TensorView& target, RoundScratch* scratch);
  // failure: kOk, or why no task has an outcome.
  void CommitRound(RoundStatus failure, RoundScratch* scratch, std::span<RoundResult> results);
  void Commit(int32_t task_index, RoundScratch* scratch, RoundResult* result);
  void RefuseForRoom(RoundResult* result);
  TokenScore* CompactScores(RoundScratch* scratch, int32_t task_index, int32_t num_tokens,
                            int32_t scores_per_token);

  // ---- staged_rounds.cc
  // A round between StageRound and CollectRound. What is known at once is in results; what the
  // backend fills is in scratch.
  struct Staged {
    RoundScratch scratch;
    std::vector<RoundResult> results;
    size_t num_inputs = 0;
  };
  // Leaves out the tasks that the backend has said it has no room for; false where there are none.
  bool RefuseWithoutRoom(Staged* staged);
  void RecallResult(const RoundResult& staged, RoundResult* result);

  // ---- draft_and_score.cc
  // Runs the first num_tasks tasks of scratch_ over these rows.
  absl::Status RunCall(const TensorView& rows, int32_t num_tasks);
  bool Pack(const DraftInput& input, DraftResult* result, int32_t task_index);
  std::string_view FindFault(const DraftInput& input, const Sequence& sequence) const;
  bool Pack(const ScoreInput& input, ScoreResult* result, int32_t task_index);
  std::string_view FindFault(const ScoreInput& input) const;

  // Constant after Create.
  const VerifierOptions options_;
  const std::unique_ptr<Backend> backend_;
  const int32_t tokens_stride_;  // max_draft + 1: tokens and places of one task

  // State between rounds.
  SequenceTable sequences_;
  TensorView target_;
  TensorView draft_;
  MaskView mask_;
  TokenRows draft_tokens_;
  std::array<TokenArray, kNextTokensMax> replicas_;     // as they were bound
  std::array<TokenArray, kNextTokensMax> next_tokens_;  // those that are, one after another
  int32_t num_next_tokens_ = 0;
  uint64_t round_stamp_ = 0;
  VerifierCounters counters_;

  // Of a round or a call that is answered where it is asked.
  RoundScratch scratch_;
  std::vector<DraftSample> samples_;

  // Staged rounds, a ring; empty before EnqueueStaged.
  std::vector<Staged> staged_;
  size_t first_staged_ = 0;
  int32_t num_staged_ = 0;
  absl::Status staging_failure_;  // for good: who has failed knows no order of rounds any more

  absl::Status failure_;  // the last one, of whatever was answered kDeviceError
};

}  // namespace specd
