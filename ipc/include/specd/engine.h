/* engine.h attaches an engine to a verifier, detaches it, and reports on it meanwhile. Part of
 * <specd/specd.h>. */
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
  uint32_t timeout_ms;    /* for every call that waits for the daemon, except specd_poll; 1 ..
                             3600000; default 5000. After it the call returns SPECD_ERROR_TIMEOUT,
                             and the engine stays attached. If the daemon opens a sequence or
                             registers a region later, it ends them again by itself. All other
                             requests take effect late */
  uint32_t max_scores_per_token; /* for one kept token: 1 + logprobs + logprob_token_ids, 0 .. 129;
                                    default 21 */
  uint32_t threads; /* embedded mode: threads for one round, 1 .. 16; default 0 = one for each
                       usable CPU, at most 16. The results do not depend on it. A daemon has
                       --threads instead */
  uint32_t stream_timeout_ms; /* how long a CUDA stream waits for its answer before the library
                                 releases it (stream_rounds.h); 1 .. 3600000, default 0 = 250 */
  const char* name; /* in the daemon's log and specctl, up to 64 bytes; default "engine" */
  /* embedded:cuda: a cudaStream_t that the caller owns and that outlives the engine. Rounds run on
   * its device, after the work that is on it already and before later work. NULL (default): specd
   * makes a CUDA stream of its own. If this CUDA stream is capturing, specd_open returns
   * SPECD_ERROR_STATE. specd cannot check other CUDA streams, so none may capture then. If this
   * CUDA stream captures later, a round that specd_poll runs, specd_sample_draft and specd_score
   * end with SPECD_STATUS_DEVICE_ERROR. For rounds inside a CUDA graph use specd_enqueue_staged. */
  void* cuda_stream;
  uint32_t max_path; /* draft tokens on one path of a tree draft, 0 .. max_draft; default 0 =
                        max_draft. A sequence gains at most max_path + 1 tokens in a round */
  uint32_t reserved; /* 0 */
  /* The path of the model's tokenizer (docs/DAEMON.md, "Text"). Embedded mode: sequences may
   * have constraints (specd_params.grammar); NULL (default): ids only. Attached: a daemon has
   * --tokenizer. If a path is given, the library sends a hash of its ids and their bytes. A daemon
   * with another tokenizer refuses the engine with SPECD_ERROR_VOCABULARY, because its texts would
   * be wrong. */
  const char* tokenizer;
  /* Embedded mode: the ids that end an output, at most 64; default none. A daemon has --eos_tokens
   * and --eos_token_ids instead. */
  specd_ids eos_token_ids;
  /* Embedded mode: the texts that begin and end the model's reasoning, such as "<think>" and
   * "</think>", at most 64 bytes each. Constraints begin after reasoning_end. NULL (default): the
   * model does not reason. If reasoning_start alone is NULL, every output begins with reasoning. A
   * daemon has --reasoning_start and --reasoning_end instead. */
  const char* reasoning_start;
  const char* reasoning_end;
  /* Attached: the name of the model among those of the daemon (its flag --profile), at most 64
   * bytes. NULL (default): the model that the daemon's other flags name. */
  const char* profile;
  /* Embedded mode: the path of a JSON file with the facts of the model, as the daemon's --profile
   * reads them. A fact that is in the file must not be given above. NULL (default): none. */
  const char* profile_file;
  /* Embedded mode: the directory of a trace of all rounds (docs/TRACES.md). NULL (default): no
   * trace. A daemon has --trace instead. */
  const char* trace;
  /* Embedded mode, with trace: what is recorded, such as "level=rows,every=100,flight=64". NULL
   * (default): the decisions of every round. A daemon has --trace_options instead. */
  const char* trace_options;
  /* Embedded mode: the ids that end an output, by the text of the added tokens of `tokenizer` or of
   * the profile_file's, such as "<|endoftext|>"; at most 64, besides those of eos_token_ids.
   * Without a tokenizer give eos_token_ids. */
  specd_strings eos_tokens;
  /* Attached: how long a wait for an answer may look for it before it sleeps, in microseconds, -1
   * to 1000000. A waiter that sleeps is woken tens of microseconds late, but one that looks
   * occupies a CPU. A wait spins for about twice the time of recent answers. If these took longer
   * than spin_us, it sleeps at once. -1 (default): 2000 on a machine with a spare CPU, that is,
   * where the calling thread may use more than two; else 0. The daemon's own waits have --spin_us.
   */
  int32_t spin_us;
  /* Embedded mode: what the compile of one constraint may take, CPU time in milliseconds and memory
   * in MiB. A constraint that takes more is refused. 1 .. 60000, default 0 = 2000; 16 .. 4096,
   * default 0 = 256. A daemon has --compile_ms and --compile_mib instead. */
  uint32_t compile_ms;
  uint32_t compile_mib;
  /* Attached: if the daemon is gone, how long the engine waits for the next one at the same socket,
   * in milliseconds, 0 .. 3600000. That daemon gets the session's memory, its sequences with their
   * outputs, and the rounds in flight again. All handles stay valid and all answers are the same,
   * so the engine sees a long round and no error. Calls wait for the daemon meanwhile. A
   * specd_poll waits its own timeout, and timeout_ms more if a daemon takes the engine and is slow.
   * Only a call finds the next daemon: an engine that has nothing to submit polls every second,
   * because readers give up a stream that its engine has not brought within 10 seconds, and ranks
   * give up after their own reconnect_ms.
   * The library keeps a copy of each opening and of its outputs. A sequence that the next daemon
   * refuses fails alone (SPECD_SEQUENCE_FAILED). A round on a CUDA stream is answered
   * SPECD_STATUS_ABORTED if its daemon is gone; submit it again. Such rounds and others are not in
   * flight at once. Device memory must stay allocated until specd_close. Not with
   * specd_mark_drafts, specd_set_coins or a SPECD_DRAFT_MAP in device memory; poll before
   * specd_fork. Ranks that have joined need it too (specd_join_options), and the engine awaits them
   * at the next daemon. Default 0: every call fails with SPECD_ERROR_DISCONNECTED. */
  uint32_t reconnect_ms;
  /* Embedded mode: 1: sequences may name a lossy method (SPECD_VERIFY_TYPICAL and above). 0
   * (default): such a sequence is refused. A daemon has --allow_lossy instead. */
  uint32_t allow_lossy;
} specd_options;

SPECD_API void specd_options_init(specd_options* options);

/* Loads a shared object with sampler backends (docs/BACKENDS.md). Embedded engines of this process
 * then run rounds on a backend that it names "mine" with the URI "embedded:mine", and library calls
 * with the device "mine". The path begins with "/". SPECD_ERROR_STATE: the name of a backend is
 * taken. SPECD_ERROR_UNSUPPORTED: the shared object was compiled with other headers, by another
 * compiler or with another standard library than this library. A daemon has --backend_plugin
 * instead. Threads: any. */
SPECD_API int specd_load_backends(const char* path);

/* On success *engine is set; free it with specd_close. */
SPECD_API int specd_open(const char* uri, const specd_options* options, specd_engine** engine);

/* Detaches the engine: specd aborts open sequences and unmaps memory from specd_alloc. NULL is
 * allowed. */
SPECD_API void specd_close(specd_engine* engine);

enum {
  SPECD_SHARING_NONE = 0,        /* rounds run on the CPU or in this process */
  SPECD_SHARING_MPS = 1,         /* through one MPS server: kernels of both processes may run at the
                                    same time */
  SPECD_SHARING_TIME_SLICED = 2, /* two processes without MPS take turns on one GPU: a round may
                                    wait for a time slice of the engine, and the engine for a time
                                    slice of a round */
  SPECD_SHARING_UNKNOWN = 3
};

typedef struct specd_sharing {
  uint32_t mode; /* SPECD_SHARING_... */
  uint32_t reserved;
  const char* text; /* the mode in words, with the remedy; never NULL, not to be freed. Valid until
                       the next call of specd_get_sharing or specd_close */
} specd_sharing;

/* Reports how this process and the daemon share the GPU. The call asks the CUDA driver of this
 * process. */
SPECD_API int specd_get_sharing(specd_engine* engine, specd_sharing* sharing);

/* Sums since specd_open, or since the present daemon was attached (reconnect_ms). */
typedef struct specd_engine_stats {
  uint32_t struct_size;
  uint32_t reattached; /* how often another daemon took the place of the one before */
  uint64_t rounds;
  uint64_t sequence_rounds; /* counts each sequence in each round */
  uint64_t drafted;         /* draft tokens judged */
  uint64_t accepted;        /* accepted draft tokens that were kept */
  uint64_t kept;
  uint64_t bad_target_rows; /* SPECD_STATUS_BAD_DISTRIBUTION caused by a target row */
  uint64_t bad_draft_rows;  /* the same, caused by a draft row */
  uint64_t empty_residuals; /* rounding left nothing of p - q, so p was sampled */
  uint64_t invalid_drafts;  /* draft tokens outside the vocabulary or masked */
  uint64_t point_masses;    /* tokens that are +inf in their row */
  uint64_t invalid_records; /* SPECD_STATUS_INVALID */
  uint64_t bad_tokens;      /* ids that a kernel refused to emit: a fault in specd */
  uint64_t discarded;
} specd_engine_stats;

SPECD_API void specd_engine_stats_init(specd_engine_stats* stats);
SPECD_API int specd_get_engine_stats(specd_engine* engine, specd_engine_stats* stats);

typedef struct specd_trace_dump {
  const char* path; /* of the file; a daemon's file lies on the daemon's side. Never NULL, not to be
                       freed. Valid until the next call of specd_dump_trace or specd_close */
  uint64_t num_rounds; /* rounds in the file */
  uint64_t num_lost;   /* rounds since specd_open that were not recorded, or without their rows,
                          because the buffer was full or the disk took no more */
} specd_trace_dump;

/* Writes the trace of this engine, and names the file. A flight recorder writes the rounds that it
 * has into a file of their own. Without a flight recorder the present file is brought up to date,
 * and the engine continues to write to it. SPECD_ERROR_UNSUPPORTED if no trace is recorded. */
SPECD_API int specd_dump_trace(specd_engine* engine, specd_trace_dump* dump);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_ENGINE_H_ */
