/* rounds.h submits drafts and polls for confirmed tokens. Part of <specd/specd.h>, which describes
 * a round. */
#ifndef SPECD_ROUNDS_H_
#define SPECD_ROUNDS_H_

#include "specd/sequences.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  SPECD_ONE_HOT = 0, /* chosen without chance: greedy, n-gram, forced. Lossless, however the token
                        was chosen */
  SPECD_SAMPLED = 1, /* drawn from softmax(draft row / draft_temperature); the draft row must be
                        given */
  SPECD_SAMPLED_REST = 2 /* drawn from that row without the ids of the one-hot siblings and of the
                            SPECD_SAMPLED_REST siblings with a lower index. All drawn siblings name
                            the row of their place, and have one kind */
};

enum {
  SPECD_DISCARD = 1,        /* the rows are padding or an unfinished prefill. specd samples nothing,
                               changes nothing and reads neither rows nor tokens; num_kept is 0 */
  SPECD_DRAFTS_BY_SLOT = 2, /* the draft tokens are the first num_nodes ids at the sequence's slot
                              in SPECD_DRAFT_TOKENS, which must not change, as rows must not; tokens
                              is NULL. For sequences whose parameters look at tokens on the host (a
                              constraint, bad words of several tokens, no-repeat-n-gram, a thinking
                              budget, processors) specd first copies the ids from the device
                              (specd_mark_drafts lets it build masks earlier). Rounds inside a CUDA
                              graph refuse these sequences */
  SPECD_PARENTS_BY_SLOT = 4 /* with SPECD_DRAFTS_BY_SLOT: the draft is a tree whose parents lie at
                               the sequence's slot in SPECD_DRAFT_PARENTS, or as SGLang's lists in
                               SPECD_DRAFT_NEXT_CHILD and SPECD_DRAFT_NEXT_SIBLING; parents is NULL.
                               Nobody but the drafter knows the place of a node, so draft_rows[i] is
                               the draft row of place i, for i = 0 .. num_nodes - 1. If a token was
                               drawn, each of them is a bound row; those of places without drawn
                               children are not read. If what lies there is no tree, the sequence is
                               answered SPECD_STATUS_INVALID. Such a draft counts as a tree for
                               verify = auto, even if it is a chain */
};

/* A specd_draft is the part of one sequence in a round: draft tokens, and the rows that judge them.
 * A draft token is a node. Node i follows its parent, which is an earlier node or the kept tokens.
 * Place 0 follows the kept tokens, place i + 1 follows node i; every place has a target row.
 * Without parents the draft is a chain: node i follows node i - 1. */
typedef struct specd_draft {
  uint32_t struct_size; /* sizeof(specd_draft), in every element; all other fields may be zero */
  uint32_t flags;       /* SPECD_DISCARD, SPECD_DRAFTS_BY_SLOT, SPECD_PARENTS_BY_SLOT, or 0 */
  specd_sequence sequence;
  uint32_t num_nodes;     /* 0 .. max_draft */
  uint32_t reserved;      /* 0 */
  const int32_t* tokens;  /* num_nodes ids; -1 = no token was drawn, the path ends here. It ends at
                             any other id outside the vocabulary too, which is counted in
                             invalid_drafts: a drafter's vocabulary may be wider */
  const int32_t* parents; /* num_nodes times an earlier node, or -1 for the kept tokens; NULL: a
                             chain */
  const uint8_t* kinds;   /* num_nodes times SPECD_ONE_HOT, SPECD_SAMPLED or SPECD_SAMPLED_REST;
                             NULL: all one-hot */
  const uint32_t* target_rows; /* num_nodes + 1 rows of SPECD_TARGET_ROWS, one for each place */
  const uint32_t* draft_rows;  /* num_nodes rows of SPECD_DRAFT_ROWS. Row i is read if kinds[i] is
                                  not  SPECD_ONE_HOT. NULL if there are none */
  const int32_t* mask_rows;    /* num_nodes + 1 rows of SPECD_GRAMMAR_MASK, -1 for a place without a
                                  constraint; NULL: no place has one. All -1 means the same as NULL
                                  and needs no bound mask */
  /* The side channel: the probability that tokens[i] was drawn with is draft_weights[i] /
   * draft_masses[i], as specd_sample_draft returns them. For a SPECD_SAMPLED_REST token this is q
   * over the mass that its siblings left. Both speak of the vocab_size columns, also where the
   * drafter's rows are wider. If it is given, a draft row is read only when a token is rejected.
   * Those of SPECD_ONE_HOT tokens are not read. Give both arrays or neither. */
  const float* draft_weights;
  const double* draft_masses;
  /* num_nodes + 1 argmax ids of the target, in place of its rows; target_rows is NULL then. Only
   * for greedy sequences without a parameter that needs a row. */
  const int32_t* target_argmax;
} specd_draft;

/* Submits a round. The caller chooses round_id, and the completion returns it. A sequence may occur
 * once in a round. The call copies everything except the rows, which are ready now and must not
 * change. If a draft needs a role that was never bound, the answer is SPECD_ERROR_STATE with the
 * name of the role. Masks of constraints are built in the round. In a round on a CUDA stream
 * (stream_rounds.h) they are built while the target model runs. While rounds of specd_stage_round
 * are in flight the answer is SPECD_ERROR_STATE: poll them first. */
SPECD_API int specd_submit(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                           uint32_t num_drafts);

enum {
  SPECD_STATUS_OK = 0,
  SPECD_STATUS_FINISHED = 1,         /* the sequence had finished before: nothing changed */
  SPECD_STATUS_BAD_DISTRIBUTION = 2, /* a row that was needed, or its side channel, is no
                                        distribution, or no memory was left for a mask of the
                                        sequence's constraint: see detail. The row is that of place
                                        num_kept, and bad_row is its index. The sequence ends here;
                                        tokens before that row remain */
  SPECD_STATUS_UNKNOWN_SEQUENCE = 3, /* never opened, or closed */
  SPECD_STATUS_INVALID = 4,          /* not verified, and nothing changed for this sequence: see
                                        detail */
  SPECD_STATUS_DEVICE_ERROR = 5,     /* the device failed, or cuda_stream was capturing: nothing
                                        changed. In embedded mode specd_last_error gives the reason
                                        after the call that returned this status; a daemon logs it and
                                        restarts */
  SPECD_STATUS_ABORTED = 6,  /* nothing was confirmed and nothing will be. A round on a CUDA stream:
                                the CUDA stream was released without an answer. A daemon: it
                                stopped in the middle of a long round, or a page of the bound
                                memory was missing when it was read (a hole without memory, no
                                huge page). After a missing page the session ends */
  SPECD_STATUS_NOT_READY = 7 /* the sequence is pending (SPECD_OPEN_PENDING): nothing changed, and
                                no coin was used. Submit the round again later */
};

/* The reason for SPECD_STATUS_INVALID, and, where a group below says so, for
 * SPECD_STATUS_BAD_DISTRIBUTION. */
enum {
  SPECD_DETAIL_NONE = 0,
  SPECD_DETAIL_SEQUENCE = 1,      /* not a handle that this session could have given out */
  SPECD_DETAIL_COUNT = 2,         /* num_nodes */
  SPECD_DETAIL_KIND = 3,          /* kinds */
  SPECD_DETAIL_TARGET_ROW = 4,    /* target_rows: an index is not below the number of bound rows */
  SPECD_DETAIL_DRAFT_ROW = 5,     /* draft_rows: the same for a sampled token */
  SPECD_DETAIL_FLAGS = 6,         /* flags */
  SPECD_DETAIL_MASK_ROW = 7,      /* mask_rows */
  SPECD_DETAIL_ARGMAX = 8,        /* target_argmax: an id outside the vocabulary */
  SPECD_DETAIL_TWICE = 9,         /* the sequence occurs twice in the round */
  SPECD_DETAIL_DRAFT_TOKENS = 10, /* SPECD_DRAFTS_BY_SLOT, but SPECD_DRAFT_TOKENS is not bound */
  SPECD_DETAIL_HOST_TOKENS = 11,  /* the sequence's parameters look at tokens that the host does not
                                     know: draft tokens by slot of a staged round, or tokens of
                                     staged rounds that were not polled */
  SPECD_DETAIL_NO_ROOM = 12,      /* the ids that the sequence's parameters ban, bias or count need
                                     more memory than a round on the device has for one sequence, or
                                     a staged round for all: docs/GPU.md, "Limits" */
  SPECD_DETAIL_PARENTS = 13,      /* parents: neither -1 nor an earlier node. In lists of children:
                                     a node comes twice, or not after its parent */
  SPECD_DETAIL_PATH = 14,         /* a path is longer than max_path */
  SPECD_DETAIL_TREE = 15,         /* parents: a tree, and verify = token or block is for chains */
  SPECD_DETAIL_FINAL_MASK = 16,   /* mask_rows over final probabilities */
  SPECD_DETAIL_ARGMAX_SAMPLED = 17, /* target_argmax for a sequence that is not greedy */
  SPECD_DETAIL_ARGMAX_EDITED = 18,  /* target_argmax for one with parameters or masks that change
                                       its rows */
  SPECD_DETAIL_ARGMAX_SCORED = 19,  /* target_argmax for one with logprobs */
  SPECD_DETAIL_TWO_MASKS = 20,      /* mask_rows for one with a constraint of specd's own */
  SPECD_DETAIL_STAGED_GRAMMAR = 21, /* a staged round of one with a constraint */
  /* SPECD_STATUS_BAD_DISTRIBUTION, and no row is to blame: the sequence's constraint met a limit of
   * docs/GRAMMARS.md, "Limits of a sequence". Tokens before that place remain. */
  SPECD_DETAIL_GRAMMAR_WAYS = 22,   /* the text can go on in too many ways at once */
  SPECD_DETAIL_GRAMMAR_MEMORY = 23, /* the states that may follow need too much memory */
  SPECD_DETAIL_GRAMMAR_WORK = 24,   /* the next mask takes too much work */
  /* SPECD_STATUS_INVALID: specd_bind was forgotten. specd_submit refuses such a round, so only an
   * engine without this library sees these. */
  SPECD_DETAIL_TARGET_UNBOUND = 25, /* target_rows, and SPECD_TARGET_ROWS is not bound */
  SPECD_DETAIL_DRAFT_UNBOUND = 26,  /* a sampled token, and SPECD_DRAFT_ROWS is not bound */
  SPECD_DETAIL_MASK_UNBOUND = 27,   /* mask_rows, and SPECD_GRAMMAR_MASK is not bound */
  SPECD_DETAIL_NO_DRAFT_ROW = 28,   /* a sampled token, and draft_rows is NULL */
  /* SPECD_STATUS_BAD_DISTRIBUTION: a row is no distribution. */
  SPECD_DETAIL_TARGET_NAN = 29,     /* a target row holds NaN, or a negative probability */
  SPECD_DETAIL_TARGET_NO_MASS = 30, /* it has no id above -inf, perhaps because of masks or bans */
  SPECD_DETAIL_TARGET_SUM = 31,     /* its probabilities do not sum to 1 within 1e-3 */
  SPECD_DETAIL_DRAFT_NAN = 32,      /* the same three for a draft row */
  SPECD_DETAIL_DRAFT_NO_MASS = 33,
  SPECD_DETAIL_DRAFT_SUM = 34,
  SPECD_DETAIL_DRAFT_SHARE = 35, /* draft_weights or draft_masses is out of range at place num_kept;
                                    bad_row is SPECD_NO_ROW */
  SPECD_DETAIL_ROW_CHANGED = 36, /* a target row was written while it was read */
  SPECD_DETAIL_BAD_TOKEN = 37,   /* an id that may not be emitted was drawn: a fault in specd */
  /* SPECD_STATUS_INVALID: children of one parent, and trees. */
  SPECD_DETAIL_SIBLING_ROWS = 38,   /* draft_rows: two drawn children name different rows */
  SPECD_DETAIL_SIBLING_KINDS = 39,  /* kinds: SPECD_SAMPLED beside SPECD_SAMPLED_REST */
  SPECD_DETAIL_SIBLING_TOKENS = 40, /* tokens: two children have one id, and neither is
                                       SPECD_SAMPLED */
  SPECD_DETAIL_SLOT_PARENTS = 41    /* SPECD_PARENTS_BY_SLOT, and no parents are bound, or
                                       SPECD_DRAFTS_BY_SLOT is missing */
};

/* specd_result.bad_row if no row is to blame. */
#define SPECD_NO_ROW 0xffffffffu

/* Returns "target_rows: an index is not below the number of rows bound", and so on; never NULL. */
SPECD_API const char* specd_detail_text(uint32_t detail);

/* This struct has the same size in every version. */
typedef struct specd_token_score {
  int32_t id;   /* -1 if the row has fewer ids than were asked for */
  float value;  /* as logprobs_mode says */
  int32_t rank; /* 1 + the number of ids with a greater value */
} specd_token_score;

typedef struct specd_result {
  specd_sequence sequence;
  uint32_t status; /* SPECD_STATUS_... */
  /* SPECD_FINISH_... after this round. The reason is provisional if the daemon's text side finds
   * the sequence's stop strings: there may be one in these tokens that ends the sequence earlier.
   * specd_sequence_final waits for the last word. */
  uint32_t finish_reason;
  uint32_t num_accepted; /* accepted draft tokens among the kept tokens */
  uint32_t num_kept;     /* ids in `tokens`: the tokens that the sequence gained in this round */
  uint32_t total_kept;   /* output tokens of the sequence after this round */
  int32_t stop_token;    /* the id that finished the sequence, or -1; -1 too at the end of a
                            grammar */
  uint32_t detail;       /* SPECD_DETAIL_...: why status is SPECD_STATUS_INVALID or
                            SPECD_STATUS_BAD_DISTRIBUTION */
  uint32_t scores_per_token;       /* 1 + logprobs + logprob_token_ids.count; 0 without logprobs */
  const int32_t* tokens;           /* valid until the next specd_poll or specd_close */
  const int32_t* path;             /* num_accepted nodes: the accepted path in order */
  const specd_token_score* scores; /* scores_per_token for each of `tokens`: the token itself, the
                                      best ids (greatest value first), logprob_token_ids. NULL
                                      without logprobs */
  /* The sum of the logprobs of the tokens that were kept since the sequence was opened, for ranking
   * n samples. The sum does not include output_ids; a fork continues with the sum of its source.
   * NaN without logprobs, and if logprobs_mode gives logits, which do not add up. */
  double cumulative_logprob;
  /* SPECD_VERIFY_... of this round, which shows what AUTO chose; AUTO: nothing was verified. Under
   * AUTO a round with a sampled token uses BLOCK. The text of a seed then depends on the drafts;
   * its law does not. */
  uint32_t verify;
  /* SPECD_STATUS_BAD_DISTRIBUTION: the row that is no distribution, an index into the bound target
   * or draft rows, as detail says. It is the row of place num_kept. SPECD_NO_ROW: none. */
  uint32_t bad_row;
  uint32_t lossy; /* 1: `verify` is a lossy method, so the tokens do not have the target's law */
  uint32_t reserved;
} specd_result;

typedef struct specd_completion {
  uint32_t struct_size; /* sizeof(specd_completion) */
  uint32_t result_size; /* sizeof(specd_result): set both before specd_poll */
  uint64_t round_id;
  uint32_t num_results; /* the same number and order as in specd_submit */
  uint32_t reserved;
  const specd_result* results; /* valid until the next specd_poll or specd_close */
  uint64_t verify_ns;          /* from the moment specd took the round to its completion */
  uint64_t total_ns;           /* from specd_submit to its completion */
} specd_completion;

/* Takes the oldest completion and waits for it for up to timeout_ms (0: not at all, -1: without
 * limit). If none comes, the answer is SPECD_EMPTY. If no round is in flight, the answer is
 * SPECD_EMPTY at once. Once the daemon is known to be gone, the answer is SPECD_ERROR_DISCONNECTED.
 * After SPECD_EMPTY the round goes on, and a later call has its answer.
 *
 * Embedded, the call itself does the work, in pieces of some milliseconds. It does one piece at
 * least, and ends between two pieces once timeout_ms has passed. A round of an ordinary engine has
 * one piece. */
SPECD_API int specd_poll(specd_engine* engine, specd_completion* completion, int timeout_ms);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_ROUNDS_H_ */
