/* batches.h does rounds and openings of many sequences with arrays in and arrays out. Part of
 * <specd/specd.h>. A round of a batch is a round as any other: rounds.h describes it. */
#ifndef SPECD_BATCHES_H_
#define SPECD_BATCHES_H_

#include "specd/rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A specd_batch is a round, as arrays over all of its sequences. A field means what the field of
 * that name means in specd_draft. Sequence i brings the draft tokens draft_offsets[i] ..
 * draft_offsets[i + 1] - 1. Its places are one more, and begin at draft_offsets[i] + i. A draft
 * token, and so its parent, is counted within its sequence. */
typedef struct specd_batch {
  uint32_t struct_size;
  uint32_t num_sequences;          /* 1 .. max_batch */
  const specd_sequence* sequences; /* num_sequences handles, each once */
  const uint32_t* flags;           /* num_sequences times the flags of a draft; NULL: all 0 */
  /* num_sequences + 1 numbers: the first is 0 and none is below the one before. NULL: no draft
   * tokens. */
  const uint32_t* draft_offsets;

  /* One for each draft token. A sequence with SPECD_DRAFTS_BY_SLOT has entries too, and its tokens
   * are not read. */
  const int32_t* tokens;      /* NULL: every sequence with draft tokens has SPECD_DRAFTS_BY_SLOT */
  const int32_t* parents;     /* NULL: chains */
  const uint8_t* kinds;       /* NULL: all one-hot */
  const uint32_t* draft_rows; /* NULL: in order, so draft token j of the batch has row j */
  const float* draft_weights;
  const double* draft_masses;

  /* One for each place. A sequence with SPECD_DISCARD has entries too, and they are not read. */
  const uint32_t* target_rows; /* NULL: in order, so place j of the batch has row j; or
                                  target_argmax is given */
  const int32_t* mask_rows;    /* NULL: no place has a constraint of the engine */
  const int32_t* target_argmax;
} specd_batch;

SPECD_API void specd_batch_init(specd_batch* batch);

/* The arrays that a round's results go to. Element i is of sequence i of the round, and means what
 * the field of that name means in specd_result. An array that is NULL is not wanted. The arrays are
 * the caller's, so their values do not end with the next call. */
typedef struct specd_batch_results {
  uint32_t struct_size;
  uint32_t max_results; /* elements of each array: the number of sequences in the round, or more */
  uint32_t tokens_stride; /* ids in a row of tokens and of path: 1 + the most draft tokens that a
                             sequence of the round brings, or more */
  uint32_t scores_stride; /* scores for each token: max_scores_per_token of specd_open, or more. Not
                             read if scores is NULL */
  uint32_t* status;
  uint32_t* finish_reason;
  uint32_t* num_accepted;
  uint32_t* num_kept;
  uint32_t* total_kept;
  int32_t* stop_token;
  uint32_t* detail;
  uint32_t* bad_row;
  uint32_t* verify; /* SPECD_VERIFY_TYPICAL and above: lossy */
  uint32_t* scores_per_token;
  double* cumulative_logprob;
  int32_t* tokens; /* rows of tokens_stride ids: the kept tokens, then -1 */
  int32_t* path;   /* the same for the accepted nodes */
  /* Rows of tokens_stride x scores_stride scores: those of each kept token, then id -1. */
  specd_token_score* scores;

  /* Written by the call. */
  uint64_t round_id;
  uint64_t verify_ns; /* as in specd_completion */
  uint64_t total_ns;
  uint32_t num_results;
  uint32_t reserved;
} specd_batch_results;

SPECD_API void specd_batch_results_init(specd_batch_results* results);

/* specd_submit for a batch. The call copies the arrays. */
SPECD_API int specd_submit_batch(specd_engine* engine, uint64_t round_id, const specd_batch* batch);

/* specd_submit_on_stream for a batch: a CUDA stream is still writing the rows (stream_rounds.h). */
SPECD_API int specd_submit_batch_on_stream(specd_engine* engine, uint64_t round_id,
                                           const specd_batch* batch, void* cuda_stream);

/* specd_poll for arrays. It takes rounds of specd_submit too, as specd_poll takes those of a batch.
 * If the arrays are too small for the oldest round, the answer is an error, and the round can still
 * be taken. */
SPECD_API int specd_poll_batch(specd_engine* engine, specd_batch_results* results, int timeout_ms);

/* Submits a round and takes its results. SPECD_EMPTY: the round has not been answered within
 * timeout_ms (-1: waits without limit), and specd_poll_batch takes it later. While rounds are in
 * flight the answer is SPECD_ERROR_STATE. */
SPECD_API int specd_verify_batch(specd_engine* engine, uint64_t round_id, const specd_batch* batch,
                                 specd_batch_results* results, int timeout_ms);

#define SPECD_OPENINGS_MAX 1024u
#define SPECD_NO_OPENING 0xffffffffu

/* The call does not wait until the sequences are built (a long prompt, a new constraint). Their
 * handles, seeds and names are final when it returns, and the sequences are SPECD_SEQUENCE_PENDING.
 * Rounds for a pending sequence are answered SPECD_STATUS_NOT_READY and change nothing, and other
 * sequences of the engine go on. specd_get_sequence_state tells when a sequence is open, and
 * specd_await_opening waits for it. A parameter out of its range is refused by the call itself.
 * What only the building shows, such as a constraint that cannot be compiled, fails the sequences
 * of that opening alone. A pending sequence can be aborted and closed; it cannot be forked. */
#define SPECD_OPEN_PENDING 1u

/* Openings that are done in one call. */
typedef struct specd_openings {
  uint32_t struct_size;
  uint32_t num_openings;          /* 1 .. SPECD_OPENINGS_MAX */
  const char* const* request_ids; /* one for each opening */
  const specd_params* params;     /* one for each opening, with one struct_size */
  /* The sequences of the first opening, then those of the second, and so on. */
  specd_sequence_info* infos;
  uint32_t max_infos; /* elements of infos: the sum of all params.n, or more. The sum is at most
                         SPECD_OPENINGS_MAX */
  uint32_t refused;   /* written by the call: the index of the opening that was refused, or
                         SPECD_NO_OPENING */
  uint32_t flags;     /* SPECD_OPEN_PENDING, or 0 */
  uint32_t reserved;
} specd_openings;

SPECD_API void specd_openings_init(specd_openings* openings);

/* Opens the sequences of all openings, or none. It does what specd_open_sequence does for each, in
 * one exchange with a daemon. If an opening is refused, `refused` is its index, and the text of the
 * error begins with that index: leave the opening out and call again. The openings together have
 * 2^25 bytes at most. An id of a prompt takes 4 bytes, an opening without lists about 500. New
 * constraints are compiled one after another, within timeout_ms of specd_open; open such sequences
 * with SPECD_OPEN_PENDING, and up to four are compiled at a time. A line of specd_opening_warnings
 * begins with the index of its opening. */
SPECD_API int specd_open_sequences(specd_engine* engine, specd_openings* openings);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_BATCHES_H_ */
