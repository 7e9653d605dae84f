/* calls.h: what an engine asks for between rounds: draft tokens, scores of given ids, and coins
 * for tests and replay. Part of <specd/specd.h>. */
#ifndef SPECD_CALLS_H_
#define SPECD_CALLS_H_

#include "specd/rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- specd as the drafter's sampler --------------------------------------------------------- */

enum {
  SPECD_WITH_REPLACEMENT = 0,
  SPECD_WITHOUT_REPLACEMENT = 1,
  SPECD_TOP_K_CHILDREN = 2 /* the most probable ones: SPECD_ONE_HOT drafts */
};

typedef struct specd_draft_request {
  uint32_t struct_size; /* sizeof(specd_draft_request), in every element */
  uint32_t reserved;    /* 0 */
  specd_sequence sequence;
  uint32_t row;     /* of SPECD_DRAFT_ROWS; read with the sequence's draft_... parameters */
  int32_t mask_row; /* of SPECD_GRAMMAR_MASK, with draft_edits; -1 = unconstrained. It must be the
                       row that mask_rows names for this place at verification: q is the draft row
                       with that mask */
  const int32_t* prefix; /* the draft tokens before this place */
  uint32_t num_prefix;   /* 0 .. max_path - 1 */
  uint32_t sampling;     /* SPECD_WITH_REPLACEMENT, ... */
  uint32_t num_children; /* 1 .. 64; a chain has one */
  uint32_t first_node;   /* the coins are those of nodes first_node, first_node + 1, ... of the
                            draft; 0 = num_prefix + 1, as in a chain */
} specd_draft_request;

/* Of this size in every version. */
typedef struct specd_draft_child {
  int32_t id;
  uint32_t count; /* how often it was drawn */
  float weight;   /* q(id) = weight / mass: draft_weights and draft_masses of specd_draft */
  uint32_t reserved;
  double mass;
} specd_draft_child;

typedef struct specd_draft_children {
  uint32_t struct_size; /* sizeof(specd_draft_children): set it in every element before the call */
  uint32_t reserved;
  specd_sequence sequence;
  uint32_t status;                   /* SPECD_STATUS_... */
  uint32_t num_children;             /* ids; they are distinct */
  const specd_draft_child* children; /* valid until the next call with this engine */
} specd_draft_children;

/* Draws draft tokens and waits for them, attached for timeout_ms of specd_options at most; at most
 * max_batch requests. No round may be in flight: what is drawn depends on the tokens that are kept.
 * One request out of range refuses all of them. SPECD_STATUS_BAD_DISTRIBUTION is said of the row
 * alone: here it ends no sequence. */
SPECD_API int specd_sample_draft(specd_engine* engine, const specd_draft_request* requests,
                                 uint32_t num_requests, specd_draft_children* results);

/* ---- scores of given ids --------------------------------------------------------------------- */

typedef struct specd_score_request {
  uint32_t struct_size; /* sizeof(specd_score_request), in every element */
  uint32_t mode;        /* SPECD_RAW_LOGPROB or SPECD_RAW_LOGIT */
  const uint32_t* rows; /* num_ids rows of SPECD_TARGET_ROWS */
  const int32_t* ids;   /* ids[i] is scored in rows[i] */
  uint32_t num_ids;     /* 1 .. max_path + 1 */
  uint32_t num_top;     /* best ids for each, 0 .. 64 */
  specd_ids chosen_ids; /* further ids for each, at most 64 */
} specd_score_request;

typedef struct specd_score_result {
  uint32_t struct_size; /* sizeof(specd_score_result): set it in every element before the call */
  uint32_t status;      /* SPECD_STATUS_... */
  uint32_t num_scored;  /* ids before the first row without a distribution */
  uint32_t scores_per_token;
  const specd_token_score* scores; /* as in specd_result; valid until the next call */
} specd_score_result;

/* Scores ids without a sequence and without state (a prompt's logprobs) and waits for the scores as
 * specd_sample_draft does; at most max_batch requests, at most max_scores_per_token scores for each
 * id. No round may be in flight. SPECD_STATUS_BAD_DISTRIBUTION ends nothing here. */
SPECD_API int specd_score(specd_engine* engine, const specd_score_request* requests,
                          uint32_t num_requests, specd_score_result* results);

/* ---- coins for tests and replay ------------------------------------------------------------- */

enum {
  SPECD_COIN_SAMPLE = 1,  /* draws from the target: plain, bonus, exact_match */
  SPECD_COIN_DRAFT = 2,   /* draws a draft token */
  SPECD_COIN_ACCEPT = 3,  /* accepts or rejects one */
  SPECD_COIN_RESIDUAL = 4 /* draws what follows a rejection */
};

/* The key of a coin, as docs/ALGORITHMS.md defines it, and the coin: value / 2^53. Of this size in
 * every version. */
typedef struct specd_coin {
  uint32_t position;   /* in the output, of the token it decides about */
  uint32_t round_base; /* kept tokens when the round starts; 0 for SPECD_COIN_SAMPLE */
  uint32_t node;       /* draft token i is node i + 1; 0 for SPECD_COIN_SAMPLE */
  uint32_t purpose;    /* SPECD_COIN_... */
  uint64_t value;      /* below 2^53 */
} specd_coin;

/* From now on this sequence meets these coins in place of its own; a key that is not among them
 * keeps the coin of the seed. Replaces the coins of an earlier call; at most 4096, and 2^20 for all
 * open sequences together. Waits as specd_sample_draft does; no round may be in flight. Coins that
 * were given up after timeout_ms may be set all the same, before the next round. A fork and a
 * re-opened sequence have none. */
SPECD_API int specd_set_coins(specd_engine* engine, specd_sequence sequence,
                              const specd_coin* coins, uint32_t num_coins);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_CALLS_H_ */
