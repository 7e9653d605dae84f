/* graph_rounds.h: rounds inside a CUDA graph.
 * Part of <specd/specd.h>. */
#ifndef SPECD_GRAPH_ROUNDS_H_
#define SPECD_GRAPH_ROUNDS_H_

#include "specd/rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For embedded:cuda: rounds that are part of the engine's own graph, so that a step of generation
 * is one launch, and the engine learns of its tokens a round later, or more.
 *
 *   specd_enqueue_staged    once, while the stream captures: behind the forward
 *   specd_stage_round       a round, before each launch of the graph
 *   specd_poll              its answer, when there is time
 *
 * Each time what was enqueued runs, it does the oldest round that was staged and not yet run; with
 * none staged it does nothing. Rows, masks and draft tokens have to be there when the stream comes
 * to it, and to stay until it has ended; the answer need not be waited for. Without a capture it
 * runs once, as any launch. Launches must be in the order of the rounds whose rows they compute,
 * and behind one another, whatever streams they are on. num_sequences, 1 .. max_batch, is how many
 * sequences the launch is made wide for; rounds of any size are done. All roles must be bound to
 * memory of the device (specd_import_device) that cuda_stream is of; NULL is no stream here,
 * cudaStreamLegacy is the default one. The first call takes 1 MiB and more of page-locked memory
 * for each of max_batch sequences.
 *
 * SPECD_ERROR_UNSUPPORTED attached and with embedded:cpu: use specd_submit. SPECD_ERROR_STATE while
 * a role is bound to memory of the host or of another device. SPECD_ERROR_INVALID_ARGUMENT for
 * another width, and for a cuda_stream that is NULL or of another device than the rounds.
 * SPECD_ERROR_EXHAUSTED where the memory is not there.
 *
 * Nothing of what was enqueued may run, or be on a stream, once specd_close is called, nor while a
 * role is bound anew: synchronize first. */
SPECD_API int specd_enqueue_staged(specd_engine* engine, uint32_t num_sequences, void* cuda_stream);

/* As specd_submit, for the next run of what specd_enqueue_staged enqueued, which comes first. It
 * may be called while earlier rounds of the same sequences have not been answered, or not even run:
 * the position, the coins and the counts of penalties then go on, on the device, from where those
 * rounds end, and with SPECD_DRAFTS_BY_SLOT and SPECD_NEXT_TOKEN no id has to be known to the CPU.
 * A round for a sequence that has finished meanwhile is answered SPECD_STATUS_FINISHED and confirms
 * nothing, whatever it leaves in SPECD_NEXT_TOKEN; the slot of a closed sequence is nobody else's
 * before its staged rounds have been polled. Every staged round has to be run to be answered, one
 * whose sequences were all refused too.
 *
 * SPECD_FULL while 4 staged rounds, or ring_depth, are in flight: poll, then stage again.
 * SPECD_ERROR_STATE where specd_enqueue_staged has not succeeded yet, while a role is bound to
 * memory that it refuses, and while rounds of specd_submit are in flight, which have to be polled
 * first. SPECD_ERROR_UNSUPPORTED as specd_enqueue_staged.
 *
 * Parameters that look at tokens on the host (bad words of several tokens, no-repeat-n-gram, a
 * thinking budget, processors) need every round answered before the next is staged; otherwise
 * SPECD_STATUS_INVALID. So is the sequence whose lists of ids are the longest (penalties over
 * long prompts), and the next longest, until the others surely fit: 128 KiB for each of max_batch
 * sequences, and as much beside as any one of them may have. */
SPECD_API int specd_stage_round(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                                uint32_t num_drafts);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_GRAPH_ROUNDS_H_ */
