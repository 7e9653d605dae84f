/* engine.h: attach to a verifier and detach, and what is to be known of the engine meanwhile.
 * Part of <specd/specd.h>. */
#ifndef SPECD_ENGINE_H_
#define SPECD_ENGINE_H_

#include "specd/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct specd_engine specd_engine;

typedef struct specd_options {
  uint32_t struct_size;
  uint32_t vocab_size;    /* columns of a row, 1 .. 2^20; required */
  uint32_t max_batch;     /* sequences in one round, 1 .. 4096; default 16 */
  uint32_t max_sequences; /* sequences open at once, max_batch .. 65536; default 0 = max_batch */
  uint32_t max_draft;     /* draft tokens (nodes) per sequence in one round, 0 .. 64; default 8 */
  uint32_t ring_depth;    /* rounds in flight, a power of two, 1 .. 64; default 4 */
  uint32_t timeout_ms;    /* for every call that waits for the daemon, but for specd_poll, 1 ..
                             3600000; default 5000. SPECD_ERROR_DISCONNECTED when it has passed */
  uint32_t max_scores_per_token; /* of one kept token: 1 + logprobs + logprob_token_ids, 0 .. 129;
                                    default 21 */
  uint32_t threads; /* embedded mode: for one round, 1 .. 16; default 0 = as many as usable CPUs, at
                       most 16. The results do not depend on it. A daemon has --threads instead */
  uint32_t stream_timeout_ms; /* how long a stream waits for its answer before it is released
                                 (specd_submit_on_stream), 1 .. 3600000; default 0 = 250 */
  const char* name;           /* shown in the daemon's log, up to 64 bytes; default "engine" */
  void* cuda_stream; /* embedded:cuda: a cudaStream_t of yours that outlives the engine. Rounds run
                        on its device, behind what you have enqueued on it and before what you
                        enqueue later. While it captures specd_open is SPECD_ERROR_STATE (other
                        streams are not asked: let none capture then); a round that specd_poll
                        runs, specd_sample_draft and specd_score end SPECD_STATUS_DEVICE_ERROR:
                        a graph has the rounds of specd_enqueue_staged. NULL (default): a stream
                        of specd's own */
  uint32_t max_path; /* draft tokens on one path of a draft that is a tree, 0 .. max_draft; default
                        0 = max_draft. A sequence gains max_path + 1 tokens in a round at most */
  uint32_t reserved; /* 0 */
} specd_options;

SPECD_API void specd_options_init(specd_options* options);

/* On success *engine is set; free it with specd_close. */
SPECD_API int specd_open(const char* uri, const specd_options* options, specd_engine** engine);

/* Detaches: open sequences are aborted, memory from specd_alloc is unmapped. NULL is allowed. */
SPECD_API void specd_close(specd_engine* engine);

enum {
  SPECD_SHARING_NONE = 0,        /* rounds run on the CPU, or in this process */
  SPECD_SHARING_MPS = 1,         /* through one MPS server: kernels of both may run at once */
  SPECD_SHARING_TIME_SLICED = 2, /* two processes on one GPU without it take turns: a round may wait
                                    for a time slice of the engine, and the engine for one of it */
  SPECD_SHARING_UNKNOWN = 3
};

typedef struct specd_sharing {
  uint32_t mode; /* SPECD_SHARING_... */
  uint32_t reserved;
  const char* text; /* the same in words, with the remedy; never NULL, never to be freed, valid
                       until the next call of specd_get_sharing or specd_close */
} specd_sharing;

/* How this process and the daemon share the GPU. Asks the CUDA driver of this process. */
SPECD_API int specd_get_sharing(specd_engine* engine, specd_sharing* sharing);

/* Sums since specd_open. */
typedef struct specd_engine_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t rounds;
  uint64_t sequence_rounds; /* a sequence in a round */
  uint64_t drafted;         /* draft tokens judged */
  uint64_t accepted;        /* of these, kept ones */
  uint64_t kept;
  uint64_t bad_target_rows; /* SPECD_STATUS_BAD_DISTRIBUTION because of a target row */
  uint64_t bad_draft_rows;  /* or of a draft row */
  uint64_t empty_residuals; /* rounding left nothing of p - q: p was sampled */
  uint64_t invalid_drafts;  /* draft tokens outside the vocabulary or masked */
  uint64_t point_masses;    /* tokens that are +inf in their row */
  uint64_t invalid_records; /* SPECD_STATUS_INVALID */
  uint64_t bad_tokens;      /* ids the kernels refused to emit: a fault of ours */
  uint64_t discarded;
} specd_engine_stats;

SPECD_API void specd_engine_stats_init(specd_engine_stats* stats);
SPECD_API int specd_get_engine_stats(specd_engine* engine, specd_engine_stats* stats);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_ENGINE_H_ */
