/* stream_rounds.h submits rounds whose rows a CUDA stream is still writing. Use it when the CPU
 * must not wait for the GPU. Part of <specd/specd.h>. */
#ifndef SPECD_STREAM_ROUNDS_H_
#define SPECD_STREAM_ROUNDS_H_

#include "specd/rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Submits a round whose rows a CUDA stream is still writing; the CPU does not wait. This comment
 * holds for specd_submit_batch_on_stream (batches.h) too: a batch is a round. The call
 * enqueues two things on cuda_stream: the rows are ready, and the CUDA stream waits for the answer.
 * The daemon has the round at once, and builds the masks of constrained sequences until the rows
 * are ready; for draft tokens that lie on the device, see specd_mark_drafts. Work that is enqueued
 * later, such as the next forward, runs after specd has answered. It may write the rows again. The
 * answer comes through specd_poll, like every other.
 *
 * The argument cuda_stream is a CUstream or cudaStream_t of a device's primary context. All rounds
 * of an engine use the same device.
 *
 * The daemon takes rounds in the order of submission, each once its rows are ready. A forward may
 * take any time and delays no other engine, but later rounds of its own engine wait for it. If CUDA
 * streams are to be independent, use one engine for each.
 *
 * Nothing in CUDA times out, so a thread of the library watches, from the first such call on. The
 * library releases a CUDA stream whose rows have been ready for stream_timeout_ms without an
 * answer, or whose daemon is gone. The results of that round are then SPECD_STATUS_ABORTED: nothing
 * was confirmed and nothing will be. No sequence has changed, and the round can be submitted again.
 * The round's ring entry stays taken until a slow daemon has noticed; if all entries are taken, the
 * answer is SPECD_FULL. Work that is enqueued after a round must therefore ask how the round ended:
 * see specd_get_round_end. Rounds of the same sequences that are in flight after an aborted one are
 * judged as they come.
 *
 * The answer is SPECD_FULL as for specd_submit, and also while another CUDA stream has still to
 * pass an earlier round. It is SPECD_ERROR_UNSUPPORTED without a CUDA driver, and in embedded mode:
 * synchronize the CUDA stream and use specd_submit or specd_submit_batch. It is
 * SPECD_ERROR_INVALID_ARGUMENT for a CUDA stream of another device than the first one's. Do not
 * call this while the CUDA stream records a CUDA graph: submit after the graph's launch.
 *
 * If a device has no memory operations on CUDA streams, a host function (cuLaunchHostFunc) waits in
 * their place. A CPU thread then waits in each round, and specd_get_sharing says so from the first
 * such round on. CUDA may run other host functions of the process, those of other engines too,
 * after the one that waits. Rounds of one engine then pass in the order of submission, aborted or
 * not. A CUDA stream is not released before the rows of earlier rounds on other CUDA streams are
 * ready.
 *
 * specd_close releases the CUDA streams and waits, up to timeout_ms, until they have passed their
 * waits. If one does not pass, some pages stay mapped. The word of specd_get_round_end says of a
 * round that specd_close released that it was not answered. */
SPECD_API int specd_submit_on_stream(specd_engine* engine, uint64_t round_id,
                                     const specd_draft* drafts, uint32_t num_drafts,
                                     void* cuda_stream);

/* Says that the draft tokens of the next round are in SPECD_DRAFT_TOKENS once the work that is on
 * cuda_stream now is done. An engine whose drafter runs on the device calls this after it has
 * enqueued the drafter and before it enqueues the target model:
 *
 *   drafter<<<..., stream>>>(...);
 *   specd_mark_drafts(engine, stream);
 *   target<<<..., stream>>>(...);
 *   specd_submit_on_stream(engine, ..., stream);      (embedded:cuda: specd_submit, specd_poll)
 *
 * specd then copies the draft tokens of constrained sequences while the target model runs, and
 * builds the masks of all their places. Without the mark it builds those of the first places
 * (embedded: none) and the others after the target model. The round reads its draft tokens again
 * once its rows are ready, so a mark that comes too early only wastes work. Only at the bounds of
 * the grammar engine can an answer depend on the mark: masks that were built early have taken their
 * work and memory then (docs/GRAMMARS.md).
 *
 * The next round is the engine's next submission. A call such as specd_sample_draft is a submission
 * too and uses the mark up.
 *
 * Attached, the CUDA stream writes a word, and the rules of specd_submit_on_stream hold for
 * cuda_stream: the first round or mark decides the device. Only rounds of specd_submit_on_stream
 * and of specd_submit_batch_on_stream profit. If the first mark of a round has come, a second mark
 * replaces it. If the first mark has not come, a second mark changes nothing. If a host function
 * stands for the word (docs/GPU.md), work enqueued after the mark waits for the host functions
 * enqueued before the mark.
 *
 * Embedded, the mark needs embedded:cuda, else the answer is SPECD_ERROR_UNSUPPORTED. The last mark
 * replaces every earlier one, so only one round ahead profits. It helps if rounds run on the
 * engine's CUDA stream (cuda_stream of specd_options) and specd_poll is called while the target
 * model runs.
 *
 * SPECD_FULL: ring_depth rounds are in flight, or a mark of an earlier round has not come. In the
 * second case the round may be submitted all the same, without a mark. While
 * cuda_stream records a CUDA graph, the answer is SPECD_ERROR_STATE. Rounds inside a CUDA graph
 * have no use for marks, because they refuse constrained sequences. */
SPECD_API int specd_mark_drafts(specd_engine* engine, void* cuda_stream);

typedef struct specd_round_end {
  uint64_t device_address; /* address of a uint64_t that kernels on the CUDA stream may read after
                              the round */
  uint64_t answered;       /* the value of that uint64_t if the round was answered. If the value
                              differs, nothing was confirmed, and the completion says why */
} specd_round_end;

/* Describes the round submitted last with specd_submit_on_stream or specd_submit_batch_on_stream.
 * The address is valid for work that is enqueued on the round's CUDA stream before ring_depth more
 * rounds are, on any CUDA stream. */
SPECD_API int specd_get_round_end(specd_engine* engine, specd_round_end* end);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_STREAM_ROUNDS_H_ */
