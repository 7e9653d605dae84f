/* specd.h: attach an inference engine to specd.
 *
 * specd verifies speculative drafts and samples tokens. An engine writes logits rows into memory it
 * shares with specd, submits a round (for each sequence: draft tokens and which rows judge them),
 * and polls for the confirmed tokens. This header is the whole promise for engines; C99, no other
 * include needed. The sampling functions that need no engine are in <specd/ops.h>.
 *
 * Its parts, in reading order, are the headers beside it, which need not be named: answers.h (codes
 * and their words), engine.h (attach), memory.h, sequences.h, rounds.h; stream_rounds.h and
 * graph_rounds.h (rounds on a CUDA stream, and inside a graph); ranks.h (tensor-parallel
 * processes); calls.h (drafting and scoring between rounds).
 *
 *   uri                          where the verifier runs
 *   unix:/run/specd/specd.sock   in the daemon; text, stop strings and observers come with it
 *   embedded:cpu                 in this process, inside specd_poll; same results, no text side
 *   embedded:cuda                the same on this process's first GPU
 *
 * The life of an engine:
 *
 *   specd_open              attach, state the largest round that will come
 *   specd_alloc             memory for rows (or specd_import_fd for a memfd of your own)
 *   specd_bind              say where the target rows (and the draft rows) lie in it
 *   specd_open_sequence     one per generated stream, with its sampling parameters
 *   specd_submit            a round over any subset of the open sequences, each with 0..max_draft
 *                           draft tokens; several rounds may be in flight
 *   specd_poll              confirmed tokens, in the order of submission
 *   specd_sample_draft, specd_score     between rounds: draft tokens, scores of given ids
 *   specd_fork              a copy of a sequence, to go on another way
 *   specd_close_sequence, specd_close
 *
 * One sequence in one round. The engine proposes num_nodes tokens d[0] .. d[K-1] and brings K + 1
 * target rows: row i holds the target model's logits after the prompt, the kept tokens and
 * d[0] .. d[i-1]. specd answers with num_kept tokens: the accepted drafts d[0] .. d[num_accepted-1]
 * and then one more token of its own choice (fewer if the sequence finished on the way). num_nodes
 * may be 0: that is plain sampling, and needs one row. specd can also be the drafter's sampler
 * (specd_sample_draft), and score given ids (specd_score).
 *
 * Rows must not change between specd_submit and the completion of that round. (A round on a stream
 * or inside a graph reads them in the order of the stream: see there.)
 *
 * Threads: a specd_engine may be used by one thread at a time. Different engines are independent.
 *
 * Return values: SPECD_OK (0); positive values are normal answers that are not results (SPECD_FULL,
 * SPECD_EMPTY); negative values are errors, and specd_last_error() says in words which field is
 * wrong, what was found, what is allowed and what to do. After an error nothing has changed.
 *
 * A struct that begins with struct_size is filled with its _init function first; then set what you
 * need: new fields of later versions keep their defaults. A struct that stands in arrays has no
 * such function: set struct_size to its sizeof in every element, those that a call fills included,
 * and leave the rest zero. What this version cannot do is refused by name, never ignored.
 */
#ifndef SPECD_SPECD_H_
#define SPECD_SPECD_H_

#include "specd/answers.h"
#include "specd/calls.h"
#include "specd/engine.h"
#include "specd/graph_rounds.h"
#include "specd/memory.h"
#include "specd/ranks.h"
#include "specd/rounds.h"
#include "specd/sequences.h"
#include "specd/stream_rounds.h"

#endif /* SPECD_SPECD_H_ */
