/* trees.h makes drafts that are trees: from the scores of a draft model, and from a sequence's own
 * text. It needs no engine. What it gives goes into tokens and parents of specd_draft (rounds.h).
 * Threads: any. */
#ifndef SPECD_TREES_H_
#define SPECD_TREES_H_

#include "specd/sequences.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most nodes of a draft. The arrays that a call fills have room for num_nodes elements of the
 * request, or for this many. */
enum { SPECD_NODES_MAX = 64 };

/* ---- the best nodes of those that a draft model proposes ------------------------------------- */

typedef struct specd_growth {
  uint32_t struct_size;
  uint32_t num_candidates; /* 0 .. 65536 */
  const int32_t* parents;  /* of each candidate: an earlier candidate, or -1 for the kept tokens */
  /* Of each candidate: the product of the draft model's probabilities on its path, or the sum of
   * their logarithms. No child has more than its parent. */
  const float* scores;
  uint32_t num_nodes; /* of the tree, 1 .. 64 */
  uint32_t max_depth; /* candidates further from the root are left out; default 0 = none is */
} specd_growth;

SPECD_API void specd_growth_init(specd_growth* growth);

/* Chooses the num_nodes candidates with the best scores; of equal scores the earlier candidates
 * come first. They are a tree, which is the largest expected number of accepted tokens that so many
 * nodes can have if the scores are right. candidates[i] is the candidate that node i of the draft
 * is, in ascending order, and parents[i] the node's parent. *num_nodes is below that of the growth
 * if there are fewer candidates.
 *
 * A drafter of EAGLE's kind calls this function once after each of its steps, for the candidates of
 * that step alone and with parents that are all -1, to know which candidates it expands next. At
 * the end it calls the function for all candidates. With the scores of a step in SGLang's order
 * that is the tree of SGLang's build_tree. */
SPECD_API int specd_grow_tree(const specd_growth* growth, uint32_t* candidates, int32_t* parents,
                              uint32_t* num_nodes);

/* Gives the parents of a tree whose shape is known before: each place at depth i has widths[i]
 * children, so that widths 4, 2, 1 have 4 + 8 + 8 nodes. Nodes go level by level, and siblings are
 * neighbours. parents has room for 64 nodes; a tree of more is refused. */
SPECD_API int specd_static_tree(const uint32_t* widths, uint32_t num_widths, int32_t* parents,
                                uint32_t* num_nodes);

/* ---- drafts from the text ------------------------------------------------------------------- */

typedef struct specd_ngrams {
  uint32_t struct_size;
  uint32_t min_ngram; /* 1 .. max_ngram; default 2 */
  uint32_t max_ngram; /* min_ngram .. 1024; default 8 */
  uint32_t num_nodes; /* at most this many draft tokens, 1 .. 64; default 8 */
  uint32_t max_depth; /* at most this many on one path, 1 .. 64; default 8 */
  uint32_t width;     /* at most this many children of one place, 1 .. 64; default 1 = a chain */
  specd_ids text;     /* the sequence's prompt and then its output; at most 2^24 ids */
} specd_ngrams;

SPECD_API void specd_ngrams_init(specd_ngrams* ngrams);

/* Proposes the tokens that followed the end of the text where it occurred before: as SPECD_ONE_HOT
 * tokens they need no draft model and no draft rows. The longest n-gram at the end of the text that
 * occurs before, of at most max_ngram ids, is what counts; one of fewer than min_ngram ids gives no
 * tokens. At each place the continuations with most occurrences come first, and of equal ones the
 * latest. The tree has the num_nodes best. The time is linear in the text, times max_depth. */
SPECD_API int specd_draft_ngram(const specd_ngrams* ngrams, int32_t* tokens, int32_t* parents,
                                uint32_t* num_nodes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_TREES_H_ */
