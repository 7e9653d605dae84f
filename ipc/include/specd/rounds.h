/* rounds.h: submit drafts, poll for confirmed tokens.
 * Part of <specd/specd.h>, which says what a round is. */
#ifndef SPECD_ROUNDS_H_
#define SPECD_ROUNDS_H_

#include "specd/sequences.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  SPECD_ONE_HOT = 0, /* chosen without chance: greedy, n-gram, forced. Lossless whatever chose it */
  SPECD_SAMPLED = 1  /* drawn from softmax(draft row / draft_temperature), which must be given */
};

enum {
  SPECD_DISCARD = 1,       /* the rows are padding or an unfinished prefill: nothing is sampled,
                              nothing changes, num_kept is 0. Rows and tokens are not looked at */
  SPECD_DRAFTS_BY_SLOT = 2 /* the draft tokens are the first num_nodes ids at the sequence's slot
                              in SPECD_DRAFT_TOKENS, which must stay as rows must; tokens is NULL.
                              Not for sequences with bad words of several tokens, no-repeat-n-gram,
                              a thinking budget or processors, which look at them on the host */
};

/* What one sequence brings to a round: draft tokens, and the rows that judge them. A draft token is
 * a node. Node i follows its parent, an earlier node, or the kept tokens. Place 0 follows the kept
 * tokens, place i + 1 follows node i; every place has a target row. Without parents the draft is a
 * chain: node i follows node i - 1. */
typedef struct specd_draft {
  uint32_t struct_size; /* sizeof(specd_draft), in every element; all else may be zero */
  uint32_t flags;       /* SPECD_DISCARD, SPECD_DRAFTS_BY_SLOT or 0 */
  specd_sequence sequence;
  uint32_t num_nodes;     /* 0 .. max_draft */
  uint32_t reserved;      /* 0 */
  const int32_t* tokens;  /* num_nodes ids; -1 = no token was drawn, the path ends here. Any other
                             id outside the vocabulary is verified and rejected */
  const int32_t* parents; /* num_nodes times an earlier node, or -1 for the kept tokens; NULL: a
                             chain. This version verifies chains: other trees are answered
                             SPECD_DETAIL_TREE */
  const uint8_t* kinds;   /* num_nodes times SPECD_ONE_HOT or SPECD_SAMPLED; NULL: all one-hot */
  const uint32_t* target_rows; /* num_nodes + 1 rows of SPECD_TARGET_ROWS, one for each place */
  const uint32_t* draft_rows;  /* num_nodes rows of SPECD_DRAFT_ROWS, read where kinds[i] is
                                  SPECD_SAMPLED; NULL if there is none */
  const int32_t* mask_rows;    /* num_nodes + 1 rows of SPECD_GRAMMAR_MASK, -1 where a place is
                                  unconstrained; NULL: all are. All -1 is as NULL and needs no
                                  mask bound */
  /* The side channel: q(tokens[i]) = draft_weights[i] / draft_masses[i], as specd_sample_draft
   * gives them, so that a draft row is read only where a token is rejected. Both or neither. */
  const float* draft_weights;
  const double* draft_masses;
  /* num_nodes + 1 argmax ids of the target in place of its rows (target_rows is NULL then). For
   * sequences that are greedy and have no parameter that needs a row. */
  const int32_t* target_argmax;
} specd_draft;

/* Submits a round. round_id is yours and comes back with the completion. A sequence may stand in a
 * round once. Everything is copied; only the rows must stay as they are. SPECD_ERROR_STATE while
 * rounds of specd_stage_round are in flight: poll them first. */
SPECD_API int specd_submit(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                           uint32_t num_drafts);

enum {
  SPECD_STATUS_OK = 0,
  SPECD_STATUS_FINISHED = 1,         /* the sequence had finished before: nothing changed */
  SPECD_STATUS_BAD_DISTRIBUTION = 2, /* NaN, or no mass, in a row (or its side channel) that was
                                        needed: the sequence ends here, tokens before that row
                                        stand */
  SPECD_STATUS_UNKNOWN_SEQUENCE = 3, /* never opened, or closed */
  SPECD_STATUS_INVALID = 4,      /* not verified, nothing changed for this sequence: see detail */
  SPECD_STATUS_DEVICE_ERROR = 5, /* the processor failed, or cuda_stream was capturing: nothing
                                    changed. Embedded, specd_last_error says why after the call that
                                    brought this; a daemon logs it and restarts */
  SPECD_STATUS_ABORTED = 6       /* of specd_submit_on_stream: the stream was released without an
                                    answer; nothing was confirmed, nothing will be */
};

/* What SPECD_STATUS_INVALID is about. */
enum {
  SPECD_DETAIL_NONE = 0,
  SPECD_DETAIL_SEQUENCE = 1,      /* no handle that this session could have given out */
  SPECD_DETAIL_COUNT = 2,         /* num_nodes */
  SPECD_DETAIL_KIND = 3,          /* kinds */
  SPECD_DETAIL_TARGET_ROW = 4,    /* target_rows: not below the rows that are bound */
  SPECD_DETAIL_DRAFT_ROW = 5,     /* draft_rows */
  SPECD_DETAIL_FLAGS = 6,         /* flags */
  SPECD_DETAIL_MASK_ROW = 7,      /* mask_rows */
  SPECD_DETAIL_ARGMAX = 8,        /* target_argmax: an id outside the vocabulary */
  SPECD_DETAIL_TWICE = 9,         /* the sequence stands in the round twice */
  SPECD_DETAIL_DRAFT_TOKENS = 10, /* SPECD_DRAFTS_BY_SLOT, but SPECD_DRAFT_TOKENS is not bound */
  SPECD_DETAIL_HOST_TOKENS = 11,  /* the sequence's parameters look at tokens that the host does not
                                     know: draft tokens by slot, or those of staged rounds that were
                                     not polled */
  SPECD_DETAIL_NO_ROOM = 12,      /* the ids that the sequence's parameters ban, bias or count need
                                     more memory than rounds on the device have for a sequence, or
                                     a staged round for all of them: docs/GPU.md, "Limits" */
  SPECD_DETAIL_PARENTS = 13,      /* parents: neither -1 nor an earlier node */
  SPECD_DETAIL_PATH = 14,         /* a path is longer than max_path */
  SPECD_DETAIL_TREE = 15,         /* parents: a tree, which this version does not verify */
  SPECD_DETAIL_FINAL_MASK = 16,   /* mask_rows over final probabilities */
  SPECD_DETAIL_ARGMAX_SAMPLED = 17, /* target_argmax for a sequence that is not greedy, */
  SPECD_DETAIL_ARGMAX_EDITED = 18,  /* for one with parameters or masks that change its rows, */
  SPECD_DETAIL_ARGMAX_SCORED = 19   /* or for one with logprobs */
};

/* "target_rows: an index is not below the number of rows bound", and so on; never NULL. */
SPECD_API const char* specd_detail_text(uint32_t detail);

/* Of this size in every version. */
typedef struct specd_token_score {
  int32_t id;   /* -1 where a row has fewer ids than were asked for */
  float value;  /* as logprobs_mode says */
  int32_t rank; /* 1 + the number of ids with a greater value */
} specd_token_score;

typedef struct specd_result {
  specd_sequence sequence;
  uint32_t status;        /* SPECD_STATUS_... */
  uint32_t finish_reason; /* SPECD_FINISH_... after this round. With stop strings it is provisional:
                             the text side may still find one in these tokens, and end the
                             sequence earlier (specd_get_sequence_state) */
  uint32_t num_accepted;  /* of the kept tokens, those that are accepted draft tokens */
  uint32_t num_kept;      /* tokens in `tokens`: what the stream gained in this round */
  uint32_t total_kept;    /* tokens of the sequence after this round */
  int32_t stop_token;     /* the id that finished it, or -1 */
  uint32_t detail;        /* SPECD_DETAIL_... where status is SPECD_STATUS_INVALID */
  uint32_t scores_per_token;       /* 1 + logprobs + logprob_token_ids.count; 0 without logprobs */
  const int32_t* tokens;           /* valid until the next specd_poll or specd_close */
  const int32_t* path;             /* num_accepted nodes: the accepted path from the first one on */
  const specd_token_score* scores; /* scores_per_token for each of `tokens`: itself, the best ones
                                      (greatest value first), logprob_token_ids. NULL without */
  double cumulative_logprob; /* the sum of the logprobs of the tokens kept since the sequence was
                                opened (output_ids do not count; a fork goes on with the sum of its
                                source), to rank n samples by. NaN without logprobs, and where
                                logprobs_mode gives logits, which do not add up */
} specd_result;

typedef struct specd_completion {
  uint32_t struct_size; /* sizeof(specd_completion), */
  uint32_t result_size; /* and sizeof(specd_result): set both before specd_poll */
  uint64_t round_id;
  uint32_t num_results; /* as many, and in the same order, as in specd_submit */
  uint32_t reserved;
  const specd_result* results; /* valid until the next specd_poll or specd_close */
  uint64_t verify_ns;          /* from the moment specd took the round to its completion */
  uint64_t total_ns;           /* from specd_submit to its completion */
} specd_completion;

/* Takes the oldest completion, waiting for up to timeout_ms (0: not at all, -1: without limit).
 * With no round in flight there is nothing to wait for, and the answer is SPECD_EMPTY at once.
 * SPECD_EMPTY if none came; SPECD_ERROR_DISCONNECTED as soon as the daemon is known to be gone. */
SPECD_API int specd_poll(specd_engine* engine, specd_completion* completion, int timeout_ms);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_ROUNDS_H_ */
