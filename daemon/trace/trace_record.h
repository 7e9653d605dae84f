// The records of a trace, as the recorder writes them and specd-replay reads them.
//
// A trace is an MCAP file: one TraceInfo, then TraceOpening, TraceEnd and TraceRound in the order
// of time. Each is one msgpack map (trace_codec.h). Rows and masks lie beside it in a row file, at
// the offsets that the records name. A TraceTask has everything that a backend needs to run the
// task again, if the round's level has rows. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/decision.h"
#include "kernels/core/edits.h"
#include "kernels/core/philox.h"
#include "kernels/core/round.h"
#include "kernels/core/sequence_round.h"
#include "kernels/core/types.h"

namespace specd {

// The version of these records. A reader refuses any other.
inline constexpr uint32_t kTraceVersion = 1;

// The parts of a round that are kept. Each level has everything of the levels before it.
enum class TraceLevel : uint32_t {
  kOff = 0,
  kRounds = 1,  // drafts, decisions, ids, times
  kHashes = 2,  // and a hash of each row and mask that the round's places name
  kRows = 3,    // and these rows and masks, and the token edits: the round can be run again
};

// Why a round that should have rows or hashes has none.
enum class NoRows : uint32_t {
  kNone = 0,     // it has them, or is of level kRounds
  kNoRoom = 1,   // the buffer was full
  kChanged = 2,  // it ran inside a CUDA graph or was called off, so they may have changed since
  kUnread = 3,   // the device did not give them
};

// Offsets and sizes of rows that were not recorded.
inline constexpr uint64_t kNoOffset = ~uint64_t{0};

// The program that produced the trace. The first record of a file.
struct TraceInfo {
  uint32_t version = kTraceVersion;
  std::string specd_version;
  std::string build;      // source revision and compiler; empty: an older recorder
  std::string backend;    // its name, such as "cuda"
  std::string processor;  // the CPU's or the device's name
  std::string tokenizer;  // the file's name without its folder; empty: none
  std::string row_file;   // the row file's name without its folder; empty: none
  std::string options;    // the recorder's options as they were given
  uint32_t vocab_size = 0;
  uint64_t session = 0;  // the engine's session
  int64_t start_ns = 0;  // Clock::NowNs at the start of the file; all times below are of that clock
  int64_t start_unix_ns = 0;
  std::vector<TokenId> eos_token_ids;
  bool anonymised = false;  // by specd-replay: ids are numbers within one task
};

// A sequence that was opened or forked, or that was open when the file began.
struct TraceOpening {
  int64_t time_ns = 0;
  SequenceHandle sequence = 0;
  SequenceHandle forked_from = 0;  // 0: not a fork
  std::string request_id;
  VerifyMethod method = VerifyMethod::kAuto;
  uint64_t seed = 0;
  // The parameters that are not at their defaults: those that are one number by name, and the names
  // of lists that are not empty.
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::string> lists;
  std::vector<uint64_t> list_hashes;  // RowHash of each of them; empty: not recorded
  std::vector<TokenId> stop_token_ids;
  uint32_t num_prompt_ids = 0;
  uint32_t kept_tokens = 0;      // given outputs, or the tokens kept before the file began
  std::string constraint;        // the kind of a constraint, such as "regex"; empty: none
  uint64_t constraint_hash = 0;  // RowHash of its text; 0: none, or not recorded
};

// A sequence that ended for a reason that no round brought: an abort, a close, a stop string.
struct TraceEnd {
  int64_t time_ns = 0;
  SequenceHandle sequence = 0;
  FinishReason reason = FinishReason::kNone;  // kNone: it was closed
  uint32_t kept_tokens = 0;
};

// Times of Clock::NowNs at the stages of a round. 0: unknown.
struct TraceTimes {
  int64_t submitted = 0;  // the engine's clock, which is the same clock on one machine
  int64_t taken = 0;      // the verify thread has copied the submission
  int64_t packed = 0;     // tasks and masks are made
  int64_t ran = 0;        // the backend has answered
  int64_t committed = 0;  // finish rules, history and grammar are up to date
  int64_t answered = 0;   // the completion is written
};

enum class TraceTensor : uint32_t { kTarget = 0, kDraft = 1, kMask = 2, kGrammarMask = 3 };

// A row or mask that the round's tasks name.
struct TraceRow {
  TraceTensor tensor = TraceTensor::kTarget;
  uint32_t index = 0;           // in its tensor; kGrammarMask: a number within the round
  uint64_t hash = 0;            // RowHash of its bytes; 0: not computed
  uint64_t offset = kNoOffset;  // in the row file
};

// A tensor of the round.
struct TraceTensorInfo {
  DType dtype = DType::kFloat32;
  ElementRules rules;
  MemorySpace space = MemorySpace::kHost;
  uint32_t num_columns = 0;  // of draft rows of some ids; 0: an element for each id
};

struct TracePlace {
  // A number that is equal for equal states of one constraint; 0: no constraint.
  uint64_t grammar_state = 0;
  int32_t mask_row = -1;      // of the engine's masks
  int32_t grammar_mask = -1;  // TraceRow::index of tensor kGrammarMask; -1: none or not recorded
  bool below_min_tokens = false;
  TokenId forced = kNoToken;
  bool in_thought = false;
  std::vector<TokenEdit> overrides;  // level kRows
};

struct TraceTask {
  uint32_t answer = 0;  // index into TraceRound::answers
  // ---- the draft
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;       // empty: a chain
  std::vector<DraftKind> kinds;       // empty: all kOneHot
  std::vector<uint32_t> target_rows;  // one for each place; empty: argmax ids in their place
  std::vector<uint32_t> draft_rows;   // one for each node; empty: none
  std::vector<float> draft_weights;   // the side channel
  std::vector<double> draft_masses;
  std::vector<TokenId> target_argmax;
  // ---- the task
  VerifyMethod method = VerifyMethod::kGreedy;
  float target_scale = 0;
  float draft_scale = 0;
  uint64_t seed = 0;
  uint32_t first_position = 0;
  uint32_t round_base = 0;
  uint32_t min_tokens = 0;
  bool drafts_by_slot = false;
  bool parents_by_slot = false;  // the processor knew the parents, and kept no record of them
  bool continues = false;
  bool draft_edits = false;
  Filters target_filters;
  Filters draft_filters;
  LossyRule lossy;  // except `rates`
  std::vector<float> rates;
  Rng rng = Rng::kPhilox;
  uint32_t rng_offset = 0;
  ScoreRequest scores;  // except `chosen`
  std::vector<TokenId> chosen;
  std::vector<InjectedCoin> coins;
  Penalties penalties;
  uint32_t num_edits = 0;  // of the sequence
  // parameter_hash.h; at every level. 0: not recorded.
  uint64_t edits_hash = 0;
  uint64_t overrides_hash = 0;  // if edits_hash is there, 0: no place has an override
  uint64_t parameters_hash = 0;
  std::vector<TokenEdit> edits;    // level kRows
  std::vector<uint32_t> allowed;   // allowed_token_ids as mask words; level kRows
  std::vector<TracePlace> places;  // empty: nothing is edited or masked
  // ---- the backend's answer
  TaskOutcome outcome;
  std::vector<TokenId> confirmed;
  std::vector<int32_t> path;
  std::vector<TokenScore> token_scores;  // NumScores for each confirmed token
  std::vector<PlaceDecision> decisions;  // one for each place; empty: the backend keeps none
};

// The answer to one input of the round: SequenceResult without its arrays.
struct TraceAnswer {
  SequenceHandle sequence = 0;
  RoundStatus status = RoundStatus::kOk;
  Refusal refusal = Refusal::kNone;
  FinishReason finish_reason = FinishReason::kNone;
  uint32_t num_accepted = 0;
  uint32_t num_kept = 0;
  uint32_t total_kept = 0;
  TokenId stop_token = kNoToken;
};

// The facts of a round beside its tasks and rows.
struct TraceRoundFacts {
  uint64_t number = 0;    // rounds of the session are counted from 1, recorded or not
  uint64_t round_id = 0;  // the engine's
  TraceLevel level = TraceLevel::kRounds;
  RoundStatus status = RoundStatus::kOk;  // why no task has an outcome
  NoRows no_rows = NoRows::kNone;
  bool on_stream = false;
  bool staged = false;
  TraceTimes times = {};
};

struct TraceRound : TraceRoundFacts {
  TraceTensorInfo target;
  TraceTensorInfo draft;
  std::vector<TraceAnswer> answers;
  std::vector<TraceTask> tasks;
  std::vector<TraceRow> rows;
};

// Records that the recorder could not keep: its buffer was full, or the disk was.
struct TraceDrops {
  int64_t time_ns = 0;
  uint64_t rounds = 0;  // of this file: since the last drops of the file before
  uint64_t rows = 0;    // rounds since then that were recorded without their rows
  uint64_t bytes = 0;
  std::string why;
};

}  // namespace specd
