/* trees.h makes drafts that are trees: from the scores of a draft model, and from a sequence's own
 * text. It also says how long a draft should be. It needs no engine. What it gives goes into tokens
 * and parents of specd_draft (rounds.h). Threads: any. */
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
 * latest. The tree has the num_nodes best. The time is linear in the text, plus n log n of the n
 * occurrences for each level of the tree. The memory is at most 16 bytes for each id of the text.
 */
SPECD_API int specd_draft_ngram(const specd_ngrams* ngrams, int32_t* tokens, int32_t* parents,
                                uint32_t* num_nodes);

/* ---- how long a draft should be -------------------------------------------------------------- */

typedef struct specd_length_rule {
  uint32_t struct_size;
  uint32_t min_length; /* 0 .. max_length; default 1. With 0 the rule may end all drafts for good */
  uint32_t max_length; /* 1 .. 64; default 8 */
  uint32_t memory;     /* rounds, 1 .. 65536; default 32. Older rounds count less */
  double step_cost;    /* the time of one draft token over that of a round without a draft, 0 ..
                          1000; default 0.1 */
  /* The draft tokens that were judged and those that stood, 0 at the beginning. Calls change them;
   * the caller may keep them or copy them to another rule. */
  double judged;
  double accepted;
} specd_length_rule;

SPECD_API void specd_length_rule_init(specd_length_rule* rule);

/* Tells the rule what a round kept, num_accepted of a draft with num_drafts tokens on a path (both
 * 0: nothing yet), and gives the length of the next draft: the one with the most tokens for the
 * time of a round if each draft token stands as often as those before. The rule sees earlier rounds
 * only, so a sequence that follows it stays lossless under every method. A drafter that ends a
 * draft because of the tokens that it drew breaks docs/CONTRACT.md, section 2. One rule for each
 * sequence, or one for all of an engine. */
SPECD_API int specd_next_length(specd_length_rule* rule, uint32_t num_drafts, uint32_t num_accepted,
                                uint32_t* length);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_TREES_H_ */
