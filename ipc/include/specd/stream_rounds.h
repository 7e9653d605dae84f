/* stream_rounds.h: rounds on a CUDA stream.
 * Part of <specd/specd.h>. */
#ifndef SPECD_STREAM_ROUNDS_H_
#define SPECD_STREAM_ROUNDS_H_

#include "specd/rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Submits a round whose rows a stream is still writing, with no wait of the CPU: enqueues on
 * cuda_stream (a CUstream or cudaStream_t of a device's primary context, the same device for all
 * rounds of an engine) that the rows are ready, and that the stream waits for the answer. What is
 * enqueued behind, such as the next forward, runs after specd has answered. The answer comes
 * through specd_poll, as every other; the rows may be written again by what is enqueued behind.
 *
 * The daemon takes rounds in the order of submission, each once its rows are ready: a forward may
 * take as long as it likes and disturbs no other engine, but rounds of this one that were submitted
 * later wait behind it. Use one engine per stream where streams are to be independent.
 *
 * Nothing in CUDA times out, so the library watches (a thread, from the first such call on). A
 * stream whose rows have been ready for stream_timeout_ms without an answer, or whose daemon is
 * gone, is released; then the results of the round are SPECD_STATUS_ABORTED: nothing was confirmed
 * and nothing will be, no sequence has changed, and the round can be submitted again. Until a slow
 * daemon has noticed, its place in the ring stays taken (SPECD_FULL once all are).
 * What is enqueued behind a round must therefore ask how it ended: see specd_get_verdict. Rounds of
 * the same sequences that are in flight behind an aborted one are judged as they come.
 *
 * SPECD_FULL as specd_submit, also while another stream has still to pass an earlier round.
 * SPECD_ERROR_UNSUPPORTED without a CUDA driver, and in embedded mode: synchronize the stream and
 * use specd_submit. SPECD_ERROR_INVALID_ARGUMENT for a stream of another device than the first
 * one's. Not while the stream records a graph: submit behind the graph's launch.
 *
 * Where streams have no memory operations, a host function (cuLaunchHostFunc) waits in the stream's
 * place: a CPU thread stands in each round, and specd_get_sharing says so from the first such round
 * on. CUDA may run the process's other host functions, of other engines too, behind the one that
 * waits. Rounds of one engine then pass in the order of submission, aborted or not: a stream is not
 * released before the rows of earlier rounds of other streams are ready.
 *
 * specd_close releases the streams and waits, up to timeout_ms, until they have passed their waits;
 * where one does not, some pages stay mapped. The verdict of a round that close released says that
 * it was not answered. */
SPECD_API int specd_submit_on_stream(specd_engine* engine, uint64_t round_id,
                                     const specd_draft* drafts, uint32_t num_drafts,
                                     void* cuda_stream);

typedef struct specd_verdict {
  uint64_t device_address; /* of a uint64_t that kernels of the stream may read behind the round */
  uint64_t answered;       /* what it holds if the round was answered; otherwise nothing was
                              confirmed, and its completion says why */
} specd_verdict;

/* Of the round submitted last with specd_submit_on_stream. Valid for what is enqueued on that
 * stream before ring_depth more rounds are, on this or another stream. */
SPECD_API int specd_get_verdict(specd_engine* engine, specd_verdict* verdict);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_STREAM_ROUNDS_H_ */
