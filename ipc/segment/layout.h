// SegmentLayout and the structs here describe the session segment, byte by byte, for both processes
// that share it.
//
// The daemon makes one segment (a sealed memfd) for each attached engine. docs/PROTOCOL.md shows
// the same layout as tables. There are only fixed-width fields, no pointers, no bool and no
// implicit padding. Numbers are little-endian (x86-64 and AArch64 only). Every area begins at a
// multiple of 128 bytes, because the adjacent-line prefetcher couples two neighbouring 64-byte
// lines.
//
// A reader must treat every word that the other side can write as untrusted: copy it once, then
// check the copy. The two channels (ipc/segment/engine_channel.h, ipc/segment/daemon_channel.h) do
// this. This header only describes; it synchronizes nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "ipc/base/limits.h"
#include "ipc/base/protocol_version.h"
#include "kernels/core/sequence_round.h"

namespace specd {

inline constexpr uint64_t kSegmentMagic = 0x4745534443455053;  // the bytes "SPECDSEG"
inline constexpr uint32_t kLineBytes = 128;
inline constexpr uint32_t kEntryBytes = 128;
inline constexpr uint32_t kRecordAlignBytes = 64;
inline constexpr uint32_t kPageBytes = 4096;

// All memory of a segment is taken when an engine attaches, so the size of a segment has a bound.
inline constexpr uint64_t kSegmentBytesMax = uint64_t{1} << 30;

// Returns OK, or an error that names the first limit outside its range.
absl::Status ValidateLimits(const SessionLimits& limits);

enum class DaemonState : uint32_t { kStarting = 0, kRunning = 1, kDraining = 2, kStopped = 3 };
enum class EngineState : uint32_t { kStarting = 0, kRunning = 1, kClosing = 2 };

// ---- page 0 ------------------------------------------------------------------------------------

// The daemon writes the header once, before it sends the descriptor; `version` last, with release.
struct SegmentHeader {
  uint64_t magic;
  uint32_t header_bytes;  // sizeof(SegmentHeader)
  uint32_t entry_bytes;   // kEntryBytes
  uint64_t session_id;
  uint64_t daemon_epoch;  // drawn at random at every start of the daemon
  uint64_t segment_bytes;
  uint32_t vocab_size;
  uint32_t max_batch;
  uint32_t max_sequences;
  uint32_t max_draft;
  uint32_t ring_depth;
  uint32_t max_scores;
  uint64_t submission_ring_offset;
  uint64_t completion_ring_offset;
  uint64_t draft_payload_offset;
  uint64_t result_payload_offset;
  uint64_t sequence_table_offset;
  uint32_t draft_record_bytes;
  uint32_t result_record_bytes;
  uint32_t call_request_offset;  // a segment is smaller than 2^32
  uint32_t call_answer_offset;
  uint32_t round_words_offset;
  std::atomic<uint32_t> version;  // kProtocolVersion
  uint32_t max_path;
  uint32_t reserved[31];
};

// Only the engine writes this line.
struct EngineLine {
  std::atomic<uint32_t> state;  // EngineState
  uint32_t reserved0;
  std::atomic<uint64_t> completions_consumed;
  uint32_t reserved1[28];
};

// Only the daemon writes this line.
struct DaemonLine {
  std::atomic<uint32_t> state;        // DaemonState
  std::atomic<uint32_t> was_drained;  // 1 once the daemon was told to stop; it stays so at the end
  std::atomic<uint64_t> submissions_consumed;
  std::atomic<uint64_t> bound_outputs;  // byte k: the slot outputs of rank k, a bit for each
  uint32_t reserved1[26];
};

// A futex word, and the flag that says whether a thread sleeps on it (ipc/segment/doorbell.h).
struct DoorbellLine {
  std::atomic<uint32_t> word;
  std::atomic<uint32_t> waiters;
  uint32_t reserved[30];
};

struct SegmentPage {
  SegmentHeader header;
  EngineLine engine;
  DaemonLine daemon;
  DoorbellLine submission_bell;  // the engine rings, the daemon sleeps
  DoorbellLine completion_bell;  // the daemon rings, the engine sleeps
  uint32_t reserved[832];
};

// ---- rings -------------------------------------------------------------------------------------

// The request of a submission. A call is answered before anything else is submitted.
enum class SubmissionKind : uint32_t {
  kRound = 0,
  kSampleDraft = 1,
  kScore = 2,
  kSetCoins = 3,
  kForcedTokens = 4,
};

// An entry of the submission ring. The producer writes `sequence` last, with release: the ring
// position plus one. The value 0 is never written, so a fresh segment of zeros holds no message.
struct SubmissionEntry {
  std::atomic<uint64_t> sequence;
  uint64_t round_id;
  uint64_t submit_ns;       // CLOCK_MONOTONIC
  uint64_t payload_offset;  // inside the draft payload area, a multiple of kRecordAlignBytes; for a
                            // call: inside the request area, 0
  uint32_t payload_bytes;   // num_records * draft_record_bytes; for a call: CallBytes
  uint32_t num_records;
  uint32_t flags;  // kSubmissionOnStream, kSubmissionStaged or 0
  uint32_t kind;   // SubmissionKind
  uint32_t reserved[20];
};

// For a round: the daemon takes it once its RoundWords say that its rows are ready.
inline constexpr uint32_t kSubmissionOnStream = 1;
// For a round: a CUDA graph of the engine's process runs it. The verifier is in that process too.
inline constexpr uint32_t kSubmissionStaged = 2;

inline constexpr uint32_t kCompletionMalformed = 1;  // the submission's ring entry was invalid
inline constexpr uint32_t kCompletionRefused = 2;    // for a call: the answer area gives the reason

struct CompletionEntry {
  std::atomic<uint64_t> sequence;
  uint64_t round_id;
  uint64_t submit_ns;  // copied from the submission
  uint64_t taken_ns;
  uint64_t done_ns;
  uint64_t payload_offset;  // inside the result payload area; for children: the answer area, 0
  uint32_t payload_bytes;   // num_records * result_record_bytes (ChildrenAnswerRecord)
  uint32_t num_records;
  uint32_t flags;  // kCompletionMalformed, kCompletionRefused or 0
  uint32_t kind;   // copied from the submission
  uint32_t reserved[16];
};

// ---- words that CUDA streams wait for ----------------------------------------------------------

// The words of one ring entry; ipc/segment/round_words.h says which side writes each word, and
// when. They lie on pages of their own, so that a process can register these pages with its GPU and
// nothing else. The numbers are those of rounds: the ring position plus one, as in `sequence`.
struct RoundWords {
  // The engine's CUDA streams write these three, and its library where a host function stands for
  // a stream's word. The library also takes a mark back.
  std::atomic<uint64_t> ready;   // the rows of this round are written
  std::atomic<uint64_t> passed;  // the CUDA stream has continued after this round
  std::atomic<uint64_t> drafts;  // the draft tokens by slot of this round are written; a hint
  uint64_t reserved0[13];
  // The daemon writes these two, and so does the engine's library when it releases a stuck CUDA
  // stream.
  std::atomic<uint64_t> done;    // only grows: CUDA streams may continue after this round
  std::atomic<uint64_t> status;  // PackRoundEnd of the last round that was decided
  uint64_t reserved1[14];
};

// ---- payloads ----------------------------------------------------------------------------------

// The parts of a record besides its tokens and rows. kDraftDiscard is SPECD_DISCARD.
enum DraftRecordFlags : uint32_t {
  kDraftDiscard = 1,
  kDraftMaskRows = 2,
  kDraftSideChannel = 4,
  kDraftArgmax = 8,    // in place of target_rows
  kDraftBySlot = 16,   // the tokens lie at the sequence's slot in the bound draft tokens, not here
  kDraftParents = 32,  // the draft is a tree
  // With kDraftBySlot: the parents lie at the slot too, and draft_rows has the rows of places.
  kDraftSlotParents = 64,
};
inline constexpr uint32_t kDraftFlagsAll = 127;

// One sequence of a submission. These arrays follow it without gaps:
//   int32  tokens[max_draft]
//   uint32 target_rows[max_draft + 1]
//   uint32 draft_rows[max_draft]
//   uint8  kinds[max_draft]
// Then, from the next multiple of 8, these arrays follow. Each is read only if a flag says so:
//   double draft_masses[max_draft]
//   float  draft_weights[max_draft]
//   int32  mask_rows[max_draft + 1]
//   int32  target_argmax[max_draft + 1]
//   int32  parents[max_draft]
// Zeros fill the record up to draft_record_bytes. Elements beyond num_nodes are not read.
struct DraftRecord {
  uint64_t sequence;
  uint32_t num_nodes;
  uint32_t flags;  // DraftRecordFlags
};

// One sequence of a completion, in the order of the submission. These arrays follow it:
//   int32  tokens[max_output]
//   int32  path[max_output]
//   TokenScore scores[max_output * max_scores]
// Zeros fill the record up to result_record_bytes. Tokens beyond num_kept and nodes beyond
// num_accepted are not read. The scores of token i begin at scores[i * scores_per_token].
struct ResultRecord {
  uint64_t sequence;
  uint32_t status;         // SPECD_STATUS_...
  uint32_t finish_reason;  // SPECD_FINISH_...
  uint32_t num_accepted;
  uint32_t num_kept;
  uint32_t total_kept;
  int32_t stop_token;
  uint16_t refusal;           // SPECD_DETAIL_...
  uint16_t method;            // SPECD_VERIFY_... of this round; 0: nothing was verified
  uint32_t scores_per_token;  // at most max_scores
  double cumulative_logprob;  // NaN: none
  uint32_t bad_row;           // of SPECD_STATUS_BAD_DISTRIBUTION; SPECD_NO_ROW: none
  uint32_t reserved;
};

// ---- sequences ---------------------------------------------------------------------------------

// The part of a sequence's state that the engine may read at any time without asking. The daemon
// writes and the engine reads one 64-bit word per slot. An abort can therefore neither overflow a
// queue nor wait.
struct SequenceState {
  uint32_t generation = 0;     // of the slot's present sequence; 0: the slot is empty
  uint32_t finish_reason = 0;  // SPECD_FINISH_..., or one of the three below; 0 while it runs
  uint32_t kept_tokens = 0;    // valid once finished: tokens beyond this number are void
  bool end_moved = false;      // a stop string has moved the end

  // Values of finish_reason for a sequence that has a slot, and is not open yet or never will be.
  static constexpr uint32_t kPending = 5;
  static constexpr uint32_t kFailed = 6;
  static constexpr uint32_t kWithdrawn = 7;  // aborted before it was open

  friend bool operator==(const SequenceState&, const SequenceState&) = default;
};

// One sequence's line in the sequence table. The sum of the logprobs does not fit into the state
// word, and an end may move while the engine reads it. An end moves at most once
// (Verifier::Finish), so each of the two ends has a sum of its own. The sum is written before the
// word that names its end.
struct SequenceLine {
  std::atomic<uint64_t> state;                  // PackSequenceState
  std::atomic<uint64_t> cumulative_logprob[2];  // bits of a double; index: end_moved
  // The same word as `state` once nothing can move the end any more: the text side has had its last
  // word, or has none to say. Any other value, also one of an earlier sequence, says nothing.
  std::atomic<uint64_t> final_state;
};

// bits 0..30 kept_tokens, 31..33 finish_reason, 34 end_moved, 35..63 generation
constexpr uint64_t PackSequenceState(const SequenceState& state) {
  return uint64_t{state.generation & kHandleGenerationMax} << 35 |
         uint64_t{state.end_moved ? 1u : 0u} << 34 | uint64_t{state.finish_reason & 0x7} << 31 |
         (state.kept_tokens & 0x7fffffff);
}
constexpr SequenceState UnpackSequenceState(uint64_t word) {
  return {static_cast<uint32_t>(word >> 35), static_cast<uint32_t>(word >> 31) & 0x7,
          static_cast<uint32_t>(word) & 0x7fffffff, (word >> 34 & 1) != 0};
}

// Tells whether this is the state of the sequence with this handle. Generations that are given out
// run from 1 to kHandleGenerationMax. A slot that was never used, or is empty again, has 0.
constexpr bool IsStateOf(const SequenceState& state, uint64_t sequence) {
  return state.generation != 0 && state.generation == GenerationOf(sequence);
}

// ---- offsets -----------------------------------------------------------------------------------

// The offset of every part, in bytes from the start of the segment. Fields of a record count from
// the start of the record.
struct SegmentLayout {
  uint64_t submission_ring_offset = 0;
  uint64_t completion_ring_offset = 0;
  uint64_t draft_payload_offset = 0;
  uint64_t draft_payload_bytes = 0;
  uint64_t result_payload_offset = 0;
  uint64_t result_payload_bytes = 0;
  uint64_t sequence_table_offset = 0;
  uint64_t call_request_offset = 0;
  uint64_t call_request_bytes = 0;
  uint64_t call_answer_offset = 0;
  uint64_t call_answer_bytes = 0;
  uint64_t round_words_offset = 0;
  uint64_t round_words_bytes = 0;  // whole pages
  uint64_t segment_bytes = 0;

  uint32_t draft_record_bytes = 0;
  uint32_t draft_tokens_offset = 0;
  uint32_t draft_target_rows_offset = 0;
  uint32_t draft_draft_rows_offset = 0;
  uint32_t draft_kinds_offset = 0;
  uint32_t draft_masses_offset = 0;  // the optional part begins here
  uint32_t draft_weights_offset = 0;
  uint32_t draft_mask_rows_offset = 0;
  uint32_t draft_argmax_offset = 0;
  uint32_t draft_parents_offset = 0;
  uint32_t result_record_bytes = 0;
  uint32_t result_tokens_offset = 0;
  uint32_t result_path_offset = 0;
  uint32_t result_scores_offset = 0;
  uint32_t call_record_bytes = 0;
  uint32_t call_rows_offset = 0;
  uint32_t call_ids_offset = 0;
  uint32_t call_chosen_offset = 0;

  friend bool operator==(const SegmentLayout&, const SegmentLayout&) = default;
};

// REQUIRES: ValidateLimits(limits).ok(), which bounds the segment by kSegmentBytesMax. This is
// checked.
SegmentLayout ComputeLayout(const SessionLimits& limits);

// ---- the promise, checked ----------------------------------------------------------------------

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

static_assert(sizeof(SegmentHeader) == 256 && alignof(SegmentHeader) == 8);
static_assert(offsetof(SegmentHeader, session_id) == 16);
static_assert(offsetof(SegmentHeader, segment_bytes) == 32);
static_assert(offsetof(SegmentHeader, vocab_size) == 40);
static_assert(offsetof(SegmentHeader, max_scores) == 60);
static_assert(offsetof(SegmentHeader, submission_ring_offset) == 64);
static_assert(offsetof(SegmentHeader, sequence_table_offset) == 96);
static_assert(offsetof(SegmentHeader, draft_record_bytes) == 104);
static_assert(offsetof(SegmentHeader, call_request_offset) == 112);
static_assert(offsetof(SegmentHeader, round_words_offset) == 120);
static_assert(offsetof(SegmentHeader, version) == 124);
static_assert(offsetof(SegmentHeader, max_path) == 128);
static_assert(sizeof(EngineLine) == 128 && offsetof(EngineLine, completions_consumed) == 8);
static_assert(sizeof(DaemonLine) == 128 && offsetof(DaemonLine, submissions_consumed) == 8 &&
              offsetof(DaemonLine, bound_outputs) == 16);
static_assert(sizeof(DoorbellLine) == 128 && offsetof(DoorbellLine, waiters) == 4);
static_assert(sizeof(SegmentPage) == kPageBytes);
static_assert(offsetof(SegmentPage, engine) == 256);
static_assert(offsetof(SegmentPage, daemon) == 384);
static_assert(offsetof(SegmentPage, submission_bell) == 512);
static_assert(offsetof(SegmentPage, completion_bell) == 640);
static_assert(sizeof(SubmissionEntry) == kEntryBytes);
static_assert(offsetof(SubmissionEntry, payload_offset) == 24);
static_assert(offsetof(SubmissionEntry, payload_bytes) == 32);
static_assert(offsetof(SubmissionEntry, flags) == 40);
static_assert(offsetof(SubmissionEntry, kind) == 44);
static_assert(sizeof(CompletionEntry) == kEntryBytes);
static_assert(offsetof(CompletionEntry, payload_offset) == 40);
static_assert(offsetof(CompletionEntry, payload_bytes) == 48);
static_assert(offsetof(CompletionEntry, flags) == 56);
static_assert(offsetof(CompletionEntry, kind) == 60);
static_assert(sizeof(RoundWords) == 2 * kLineBytes && kPageBytes % sizeof(RoundWords) == 0);
static_assert(offsetof(RoundWords, passed) == 8);
static_assert(offsetof(RoundWords, drafts) == 16);
static_assert(offsetof(RoundWords, done) == kLineBytes);
static_assert(offsetof(RoundWords, status) == kLineBytes + 8);
static_assert(sizeof(DraftRecord) == 16 && offsetof(DraftRecord, num_nodes) == 8);
static_assert(offsetof(DraftRecord, flags) == 12);
static_assert(sizeof(ResultRecord) == 56 && offsetof(ResultRecord, stop_token) == 28);
static_assert(offsetof(ResultRecord, scores_per_token) == 36);
static_assert(offsetof(ResultRecord, cumulative_logprob) == 40);
static_assert(offsetof(ResultRecord, bad_row) == 48);
static_assert(sizeof(SequenceLine) == 32 && offsetof(SequenceLine, cumulative_logprob) == 8);
static_assert(sizeof(TokenScore) == 12 && offsetof(TokenScore, rank) == 8);

}  // namespace specd
