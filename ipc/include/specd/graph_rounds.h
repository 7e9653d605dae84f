/* graph_rounds.h runs rounds inside the engine's own CUDA graph. The engine stages a round, a
 * launch of the graph runs it, and specd_poll returns its answer. Part of <specd/specd.h>. */
#ifndef SPECD_GRAPH_ROUNDS_H_
#define SPECD_GRAPH_ROUNDS_H_

#include "specd/rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For embedded:cuda. Staged rounds are part of the engine's own CUDA graph. A step of generation is
 * then one launch, and the engine learns its tokens a round later, or more.
 *
 *   specd_enqueue_staged    once, while the CUDA stream captures: after the forward
 *   specd_stage_round       a round, before each launch of the graph
 *   specd_poll              its answer, when there is time
 *
 * Each run of the enqueued work does the oldest round that was staged and has not run yet. If none
 * is staged, the run does nothing. Rows, masks and draft tokens must be there when the CUDA stream
 * reaches the round, and must not change until it has ended. The engine need not wait for the
 * answer. Without a capture the work runs once, like any launch. Launches must follow the order of
 * the rounds whose rows they compute, and must run one after another on any CUDA streams.
 *
 * num_sequences, 1 .. max_batch, is the width of the launch; rounds of any size are done. All roles
 * must be bound to memory (specd_import_device) of cuda_stream's device. A NULL cuda_stream is
 * refused; the default one is cudaStreamLegacy. The first call takes 1 MiB and more of page-locked
 * memory for each of max_batch sequences.
 *
 * The answer is SPECD_ERROR_UNSUPPORTED when attached and with embedded:cpu: use specd_submit. It
 * is SPECD_ERROR_STATE while a role is bound to memory of the host or of another device. It is
 * SPECD_ERROR_INVALID_ARGUMENT for another width, and for a cuda_stream that is NULL or of another
 * device than the rounds. It is SPECD_ERROR_EXHAUSTED if there is not enough memory.
 *
 * Synchronize before specd_close and before a role is bound anew: none of the enqueued work may run
 * or wait on a CUDA stream then. */
SPECD_API int specd_enqueue_staged(specd_engine* engine, uint32_t num_sequences, void* cuda_stream);

/* Submits a round, like specd_submit, for the next run of the work that specd_enqueue_staged
 * enqueued. Call specd_enqueue_staged first. Earlier rounds of the same sequences need not be
 * answered, nor even run. On the device the position, the coins and the counts of penalties
 * continue from the end of those rounds. The CPU need not know any id if the round uses
 * SPECD_DRAFTS_BY_SLOT and SPECD_NEXT_TOKEN.
 *
 * If a sequence has finished meanwhile, its round is answered SPECD_STATUS_FINISHED and confirms
 * nothing. The id that such a round leaves in SPECD_NEXT_TOKEN has no meaning. The slot of a closed
 * sequence is not given to another before its staged rounds have been polled. Every staged round
 * must run to be answered, even if all its sequences were refused.
 *
 * The answer is SPECD_FULL while 4 staged rounds, or ring_depth, are in flight: poll, then stage
 * again. It is SPECD_ERROR_STATE before specd_enqueue_staged has succeeded, and while a role is
 * bound to memory that specd_enqueue_staged refuses. It is SPECD_ERROR_STATE too while rounds of
 * specd_submit are in flight: poll them first. SPECD_ERROR_UNSUPPORTED is as for
 * specd_enqueue_staged.
 *
 * Some parameters look at tokens on the host: bad words of several tokens, no-repeat-n-gram, a
 * thinking budget, processors. They need every round answered before the next is staged; otherwise
 * the sequence is answered SPECD_STATUS_INVALID.
 *
 * Lists of ids, such as penalties over long prompts, have 128 KiB for each of max_batch sequences.
 * They have as much in addition as any one sequence may have. If the lists do not surely fit, the
 * sequences with the longest lists are answered SPECD_STATUS_INVALID until the others fit. */
SPECD_API int specd_stage_round(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                                uint32_t num_drafts);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_GRAPH_ROUNDS_H_ */
