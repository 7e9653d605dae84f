/* calls.h asks specd, between rounds, for draft tokens, for ids that a constraint forces and for
 * scores of given ids, and sets coins for tests and replay. Part of <specd/specd.h>. */
#ifndef SPECD_CALLS_H_
#define SPECD_CALLS_H_

#include "specd/rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- specd as the drafter's sampler --------------------------------------------------------- */

enum {
  SPECD_WITH_REPLACEMENT = 0,    /* SPECD_SAMPLED children */
  SPECD_WITHOUT_REPLACEMENT = 1, /* SPECD_SAMPLED_REST children */
  SPECD_TOP_K_CHILDREN = 2,      /* the most probable ids: SPECD_ONE_HOT children */
  SPECD_MIXED_CHILDREN =
      3 /* the num_children - 1 most probable ids as SPECD_ONE_HOT children, and a
           SPECD_SAMPLED_REST child drawn from the others. Recommended for trees:
           of these ways it keeps the most tokens (docs/ALGORITHMS.md, "Drafts") */
};

typedef struct specd_draft_request {
  uint32_t struct_size; /* sizeof(specd_draft_request), in every element */
  uint32_t reserved;    /* 0 */
  specd_sequence sequence;
  uint32_t row; /* of SPECD_DRAFT_ROWS; read with the sequence's draft_... parameters */
  /* A row of SPECD_GRAMMAR_MASK, with draft_edits; -1 = unconstrained. Name the same row in
   * mask_rows for this place at verification: q is the draft row with that mask. */
  int32_t mask_row;
  const int32_t* prefix; /* the draft tokens before this place */
  uint32_t num_prefix;   /* 0 .. max_path - 1 */
  uint32_t sampling;     /* SPECD_WITH_REPLACEMENT, ... */
  uint32_t num_children; /* 1 .. 64; a chain has one */
  uint32_t first_node;   /* the coins of nodes first_node, first_node + 1, ... of the draft; 0 =
                            num_prefix + 1, as in a chain */
} specd_draft_request;

/* This struct has the same size in every version. As children in a tree, an id that was drawn
 * `count` times with replacement is that many SPECD_SAMPLED siblings, in the order of the draws
 * (specd_sample_draft): one for several draws would bias the output. */
typedef struct specd_draft_child {
  int32_t id;
  uint32_t count; /* how often the id was drawn */
  float weight;   /* draft_weights and draft_masses of specd_draft: weight / mass is the probability
                     that the id was drawn with, and q(id) for a SPECD_ONE_HOT id */
  uint32_t kind;  /* SPECD_ONE_HOT, ...: use as kinds of specd_draft */
  double mass;
} specd_draft_child;

typedef struct specd_draft_children {
  uint32_t struct_size; /* sizeof(specd_draft_children): set it in every element before the call */
  uint32_t detail;      /* SPECD_DETAIL_DRAFT_...: why status is SPECD_STATUS_BAD_DISTRIBUTION */
  specd_sequence sequence;
  uint32_t status;                   /* SPECD_STATUS_... */
  uint32_t num_children;             /* number of ids, which are distinct */
  const specd_draft_child* children; /* valid until the next call with this engine */
} specd_draft_children;

/* Draws draft tokens and waits for them. When attached it waits at most timeout_ms of
 * specd_options. At most max_batch requests, and several of them may be about nodes of one
 * sequence. Siblings by SPECD_WITH_REPLACEMENT take one request for each, with num_children = 1 and
 * the child's node as first_node: `count` does not tell the order of the draws, and any other order
 * would bias the output. No round may be in flight, because the draw depends on the tokens that are
 * kept. If one request is out of range, all are refused. SPECD_STATUS_BAD_DISTRIBUTION is about the
 * row alone: here it ends no sequence. For a sequence that has finished the status is
 * SPECD_STATUS_FINISHED, and there are no children. */
SPECD_API int specd_sample_draft(specd_engine* engine, const specd_draft_request* requests,
                                 uint32_t num_requests, specd_draft_children* results);

/* ---- ids that a constraint forces ------------------------------------------------------------ */

/* Writes to `ids` at most max_ids ids that the sequence's constraint forces after its kept tokens
 * and a draft prefix, and their number to *num_ids. The ids are drafts without a drafter: give them
 * in the next round as SPECD_ONE_HOT tokens. The round judges each of them, so no text depends on
 * them. They spell the text that must follow, always with the longest token, and end early where a
 * longer token could reach past it. The number is 0 where there is a choice, where the constraint
 * forbids the prefix, inside a thought, without a constraint, and for a sequence that has finished.
 * num_prefix is 0 .. max_path, and at most max_path + 1 ids are written. The call waits as
 * specd_sample_draft does; no round may be in flight. */
SPECD_API int specd_forced_tokens(specd_engine* engine, specd_sequence sequence,
                                  const int32_t* prefix, uint32_t num_prefix, int32_t* ids,
                                  uint32_t max_ids, uint32_t* num_ids);

/* ---- scores of given ids --------------------------------------------------------------------- */

typedef struct specd_score_request {
  uint32_t struct_size; /* sizeof(specd_score_request), in every element */
  uint32_t mode;        /* SPECD_RAW_LOGPROB or SPECD_RAW_LOGIT */
  const uint32_t* rows; /* num_ids rows of SPECD_TARGET_ROWS */
  const int32_t* ids;   /* ids[i] is scored in rows[i] */
  uint32_t num_ids;     /* 1 .. max_path + 1 */
  uint32_t num_top;     /* best ids for each row, 0 .. 64 */
  specd_ids chosen_ids; /* further ids for each row, at most 64 */
} specd_score_request;

typedef struct specd_score_result {
  uint32_t struct_size; /* sizeof(specd_score_result): set it in every element before the call */
  uint32_t status;      /* SPECD_STATUS_... */
  uint32_t num_scored;  /* ids before the first row without a distribution */
  uint32_t scores_per_token;
  const specd_token_score* scores; /* as in specd_result; valid until the next call */
  uint32_t detail; /* SPECD_DETAIL_TARGET_...: if status is SPECD_STATUS_BAD_DISTRIBUTION, why
                      rows[num_scored] is no distribution */
  uint32_t reserved;
} specd_score_result;

/* Scores ids without a sequence and without state, such as a prompt's logprobs. The call waits for
 * the scores as specd_sample_draft does. At most max_batch requests, and at most
 * max_scores_per_token scores for each id. No round may be in flight. SPECD_STATUS_BAD_DISTRIBUTION
 * ends nothing here. */
SPECD_API int specd_score(specd_engine* engine, const specd_score_request* requests,
                          uint32_t num_requests, specd_score_result* results);

/* ---- coins for tests and replay ------------------------------------------------------------- */

enum {
  SPECD_COIN_SAMPLE = 1,  /* draws from the target row: plain, bonus, exact_match */
  SPECD_COIN_DRAFT = 2,   /* draws a draft token */
  SPECD_COIN_ACCEPT = 3,  /* accepts or rejects one */
  SPECD_COIN_RESIDUAL = 4 /* draws the token that follows a rejection */
};

/* The key of a coin, as docs/ALGORITHMS.md defines it, and the coin: value / 2^53. This struct has
 * the same size in every version. */
typedef struct specd_coin {
  uint32_t position;   /* position in the output of the token that the coin decides about */
  uint32_t round_base; /* kept tokens when the round starts; 0 for SPECD_COIN_SAMPLE */
  uint32_t node;       /* draft token i is node i + 1; 0 for SPECD_COIN_SAMPLE */
  uint32_t purpose;    /* SPECD_COIN_... */
  uint64_t value;      /* below 2^53 */
} specd_coin;

/* Gives this sequence these coins in place of its own, from now on. A key that is not among them
 * keeps the coin of the seed. The call replaces the coins of an earlier call. At most 4096 coins,
 * and 2^20 for all open sequences together. The call waits as specd_sample_draft does; no round may
 * be in flight. If it is given up after timeout_ms, the coins may still be set, before the next
 * round. A fork and a re-opened sequence have no such coins. */
SPECD_API int specd_set_coins(specd_engine* engine, specd_sequence sequence,
                              const specd_coin* coins, uint32_t num_coins);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_CALLS_H_ */
