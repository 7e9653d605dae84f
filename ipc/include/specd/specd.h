/* specd.h attaches an inference engine to specd.
 *
 * specd verifies speculative drafts and samples tokens. An engine writes logits rows into memory
 * that it shares with specd, submits rounds, and polls for the confirmed tokens. A round names, for
 * each sequence, draft tokens and the rows that judge them. This header is the whole interface for
 * engines. It is C99 and needs no other include. Three headers beside it need no engine:
 * <specd/ops.h> has sampling functions, <specd/grammar.h> has masks of constraints, and
 * <specd/trees.h> makes drafts of scores and of text.
 *
 * This header includes its parts, in this reading order:
 *
 *   answers.h          return codes and their texts
 *   engine.h           attach and detach
 *   memory.h           memory and the tensors in it
 *   sequences.h        sequences and their sampling parameters
 *   rounds.h           submit and poll
 *   stream_rounds.h    rounds on a CUDA stream
 *   graph_rounds.h     rounds inside a CUDA graph
 *   batches.h          rounds and openings of many sequences, as arrays
 *   ranks.h            tensor-parallel processes
 *   calls.h            drafting and scoring between rounds
 *
 * The argument `uri` of specd_open says where the verifier runs:
 *
 *   unix:/run/specd/specd.sock   in the daemon, which also has text, stop strings and observers
 *   embedded:cpu                 in this process, inside specd_poll; same results, no text side
 *   embedded:cuda                the same on this process's first GPU; embedded:cuda:1 on the next
 *   embedded:NAME                the same on a backend from outside (specd_load_backends)
 *
 * The life of an engine:
 *
 *   specd_open              attach and state the largest round that will come
 *   specd_alloc             memory for rows (or specd_import_fd for a memfd of your own; embedded,
 *                           specd_lend for any memory of your own)
 *   specd_bind              say where the target rows (and the draft rows) lie in it
 *   specd_open_sequence     one for each generated output, with its sampling parameters
 *   specd_submit            a round over any subset of the open sequences, each with 0..max_draft
 *                           draft tokens; several rounds may be in flight
 *   specd_poll              confirmed tokens, in the order of submission
 *   specd_open_sequences, specd_verify_batch    the same for many sequences in one call, as arrays
 *   specd_sample_draft, specd_score     between rounds: draft tokens, scores of given ids
 *   specd_forced_tokens                 between rounds: draft tokens that a constraint forces
 *   specd_fork              a copy of a sequence, which can continue in another way
 *   specd_close_sequence, specd_close
 *
 * One sequence in one round. The engine proposes num_nodes tokens d[0] .. d[K-1] and brings K + 1
 * target rows. Row i holds the target model's logits after the prompt, the kept tokens and d[0] ..
 * d[i-1]. The answer has num_kept tokens: the accepted drafts d[0] .. d[num_accepted-1] and then
 * one more token that specd chooses. If the sequence finishes on the way, there are fewer. If
 * num_nodes is 0, the round is plain sampling and needs one row. An engine can also use specd as
 * the drafter's sampler (specd_sample_draft) and to score given ids (specd_score).
 *
 * Rows must not change between specd_submit and the completion of that round. A round on a CUDA
 * stream or inside a CUDA graph has rules of its own (stream_rounds.h, graph_rounds.h).
 *
 * Threads: a specd_engine may be used by one thread at a time. If another thread is in a call of
 * the engine, a call returns SPECD_ERROR_STATE and does nothing; specd_close waits for that call.
 * Different engines are independent.
 *
 * Processes: an engine belongs to the process that opened it. In a child that was forked later, a
 * call returns SPECD_ERROR_STATE, and specd_close does nothing. The parent's engine goes on. Both
 * hold embedded and attached, and if other threads are in calls at the moment of the fork.
 *
 * Return values: SPECD_OK (0) is success. Positive values are normal answers without a result
 * (SPECD_FULL, SPECD_EMPTY). Negative values are errors; specd_last_error() then names the field,
 * the value found, the allowed range and the remedy. A call that returns an error has changed
 * nothing.
 *
 * Call the _init function of a struct that begins with struct_size, then set the fields you need.
 * New fields of later versions keep their defaults. A struct that is an array element has no _init
 * function: set struct_size to the struct's sizeof in every element and leave the rest zero. This
 * also holds for elements that a call fills. A request that this version cannot fulfil is refused
 * by name and never ignored.
 */
#ifndef SPECD_SPECD_H_
#define SPECD_SPECD_H_

#include "specd/answers.h"
#include "specd/batches.h"
#include "specd/calls.h"
#include "specd/engine.h"
#include "specd/graph_rounds.h"
#include "specd/memory.h"
#include "specd/ranks.h"
#include "specd/rounds.h"
#include "specd/sequences.h"
#include "specd/stream_rounds.h"

#endif /* SPECD_SPECD_H_ */
