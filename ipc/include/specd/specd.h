/* specd.h: attach an inference engine to specd.
 *
 * specd verifies speculative drafts and samples tokens. An engine writes logits rows into memory it
 * shares with specd, submits a round (for each sequence: draft tokens and which rows judge them),
 * and polls for the confirmed tokens. This header is the whole promise for engines; C99, no other
 * include needed. The sampling functions that need no engine are in <specd/ops.h>.
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
 * One sequence in one round. The engine proposes num_drafts tokens d[0] .. d[K-1] and brings K + 1
 * target rows: row i holds the target model's logits after the prompt, the kept tokens and
 * d[0] .. d[i-1]. specd answers with num_kept tokens: the accepted drafts d[0] .. d[num_accepted-1]
 * and then one more token of its own choice (fewer if the sequence finished on the way). num_drafts
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
 * need: new fields of later versions keep their defaults. What this version cannot do is refused by
 * name, never ignored.
 */
#ifndef SPECD_SPECD_H_
#define SPECD_SPECD_H_

#include <stdint.h>

#if defined(__GNUC__)
#define SPECD_API __attribute__((visibility("default")))
#else
#define SPECD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SPECD_ABI_VERSION 1u

/* ---- answers ------------------------------------------------------------------------------- */

enum {
  SPECD_OK = 0,
  SPECD_FULL = 1,  /* as many rounds as ring_depth are in flight: poll, then submit again */
  SPECD_EMPTY = 2, /* no completion within the timeout */

  SPECD_ERROR_INVALID_ARGUMENT = -1, /* a value outside its range, a null pointer, a wrong size */
  SPECD_ERROR_UNSUPPORTED = -2,      /* meaningful, but not in this version or this mode */
  SPECD_ERROR_NOT_FOUND = -3,        /* no such socket, sequence, region or tensor */
  SPECD_ERROR_PERMISSION = -4,       /* the daemon does not serve this user */
  SPECD_ERROR_VERSION = -5,          /* library and daemon speak different protocol versions */
  SPECD_ERROR_VOCABULARY = -6,       /* vocab_size does not fit the daemon's tokenizer */
  SPECD_ERROR_REGION = -7,           /* memory that is too small, not sealed, or out of bounds */
  SPECD_ERROR_STATE = -8,         /* right call, wrong moment (bind with rounds in flight, ...) */
  SPECD_ERROR_EXHAUSTED = -9,     /* a limit named at specd_open, or memory, is used up */
  SPECD_ERROR_DISCONNECTED = -10, /* the daemon is gone; rounds in flight will not complete */
  SPECD_ERROR_SHUTDOWN =
      -11, /* the daemon is ending: nothing new is taken, what is open is aborted */
  SPECD_ERROR_INTERNAL = -12 /* a fault of ours; please report the text */
};

/* The last error of the calling thread, in words; "" if there was none. Valid until the next call
 * of this thread. */
SPECD_API const char* specd_last_error(void);

/* "SPECD_ERROR_REGION" for -7, and so on; never NULL. */
SPECD_API const char* specd_code_name(int code);

/* "0.1.0" */
SPECD_API const char* specd_version(void);

/* ---- attach -------------------------------------------------------------------------------- */

typedef struct specd_engine specd_engine;

typedef struct specd_options {
  uint32_t struct_size;
  uint32_t vocab_size;    /* columns of a row, 1 .. 2^20; required */
  uint32_t max_batch;     /* sequences in one round, 1 .. 4096; default 16 */
  uint32_t max_sequences; /* sequences open at once, max_batch .. 65536; default 0 = max_batch */
  uint32_t max_draft;     /* draft tokens per sequence in one round, 0 .. 64; default 8 */
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
                        enqueue later. While it captures there is no specd_open, and a round of
                        specd_submit ends SPECD_STATUS_DEVICE_ERROR: a graph has the rounds of
                        specd_enqueue_staged. NULL (default): a stream of specd's own */
} specd_options;

SPECD_API void specd_options_init(specd_options* options);

/* On success *engine is set; free it with specd_close. */
SPECD_API int specd_open(const char* uri, const specd_options* options, specd_engine** engine);

/* Detaches: open sequences are aborted, memory from specd_alloc is unmapped. NULL is allowed. */
SPECD_API void specd_close(specd_engine* engine);

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct specd_region {
  uint32_t id; /* to be named in specd_tensor */
  void* data;  /* where this process sees it, 4096-byte aligned; NULL for an imported fd; of device
                  memory its address, which the CPU cannot read */
  uint64_t size_bytes;
} specd_region;

/* Shared memory for rows, zeroed, made by the library and sealed against shrinking. */
SPECD_API int specd_alloc(specd_engine* engine, uint64_t size_bytes, specd_region* region);

/* A memfd of your own instead. It must be sealed (F_SEAL_SHRINK) and hold at least size_bytes: an
 * unsealed file could be truncated under the daemon. The descriptor stays yours. */
SPECD_API int specd_import_fd(specd_engine* engine, int fd, uint64_t size_bytes,
                              specd_region* region);

/* Memory of this process on a GPU, in place, from the device pointer on: of cudaMalloc, cuMemCreate
 * (also several pieces side by side, as PyTorch's expandable segments have; 250 for a daemon), or
 * cudaMallocAsync with a pool that can be exported. Rounds use it where they run on the same GPU: a
 * daemon with --device=cuda, or embedded:cuda. It must not be freed, resized or unmapped before
 * specd_unregister has answered SPECD_OK. If the daemon dies, so does its mapping. */
SPECD_API int specd_import_device(specd_engine* engine, uint64_t address, uint64_t size_bytes,
                                  specd_region* region);

/* Ends a region, whichever call made it: memory from specd_alloc is unmapped, any other is nobody's
 * but yours again. SPECD_ERROR_STATE while a role is bound to it: bind that to other memory first,
 * or close the engine. specd_close ends all regions, and waits for the daemon to do so, for
 * timeout_ms at most, where there is device memory among them. */
SPECD_API int specd_unregister(specd_engine* engine, uint32_t region);

enum { SPECD_FLOAT32 = 0, SPECD_BFLOAT16 = 1, SPECD_FLOAT16 = 2 };

/* What the elements of a row are. Probabilities are SPECD_FLOAT32 and sum to 1 within 1e-3. */
enum {
  SPECD_LOGITS = 0,
  SPECD_PROBABILITIES = 1,      /* enter as ln p and take the same steps as logits */
  SPECD_FINAL_PROBABILITIES = 2 /* what is sampled from: sequences whose parameters would change a
                                   row are refused */
};

enum {
  SPECD_TARGET_ROWS = 1,  /* required before the first round, unless every draft brings
                             target_argmax */
  SPECD_DRAFT_ROWS = 2,   /* only for SPECD_SAMPLED draft tokens and specd_sample_draft */
  SPECD_GRAMMAR_MASK = 3, /* int32 rows of ceil(vocab_size / 32) words: bit i % 32 of word i / 32 is
                             1 where id i is allowed */
  SPECD_NEXT_TOKEN = 4,   /* int32 ids that specd writes; below */
  SPECD_DRAFT_TOKENS = 16 /* int32 ids that specd reads, for SPECD_DRAFTS_BY_SLOT; below */
};

/* SPECD_NEXT_TOKEN: after every round in which a sequence gets tokens, the last of them, which its
 * next forward reads, lies at its slot (specd_sequence_slot). num_rows >= max_sequences, no gaps.
 * Nothing else is written there: nothing by opening and forking, and nothing by a round that ends
 * SPECD_STATUS_ABORTED, however late the daemon is, so what the engine puts there itself then
 * stays. What lies at the slot of a finished sequence means nothing, nor does what is left by a
 * round that ends SPECD_STATUS_DEVICE_ERROR and by a daemon that was killed. Roles
 * SPECD_NEXT_TOKEN + 1 .. + 7 are further copies, one for each tensor-parallel rank, on any GPU or
 * in shared memory: rows are bound once, by rank 0, and all copies are written. Ranks that are
 * processes of their own bind theirs themselves: specd_join.
 *
 * SPECD_DRAFT_TOKENS: draft tokens where the drafter leaves them, such as on the GPU, so that no
 * CPU has to know them. The row of a sequence is that of its slot: num_rows >= max_sequences,
 * row_stride ids from row to row, at least and by default max_draft. */

typedef struct specd_tensor {
  uint32_t struct_size;
  uint32_t region;       /* specd_region.id */
  uint32_t dtype;        /* SPECD_FLOAT32, ... */
  uint32_t kind;         /* SPECD_LOGITS, ... */
  uint64_t offset_bytes; /* of row 0, a multiple of the element size */
  uint64_t num_rows;     /* 1 .. 2^31 - 1; rows are named by index in specd_draft */
  uint64_t row_stride;   /* from row to row, in elements, >= vocab_size; default 0 = vocab_size.
                            Of a mask: in words of 32 bits, default 0 = ceil(vocab_size / 32); of
                            draft tokens: in ids, default 0 = max_draft */
  float scale;           /* > 0: logits are multiplied by it on load; default 1 */
  float cap;             /* > 0: and then become cap * tanh(x / cap); default 0 = not */
  uint32_t renormalise;  /* 0 or 1; default 0: probabilities need not sum to 1 */
  uint32_t reserved;     /* 0 */
} specd_tensor; /* masks and tokens have no use for dtype, kind, scale, cap and renormalise: leave
                   them */

SPECD_API void specd_tensor_init(specd_tensor* tensor);

/* Binds the tensor of a role, or binds it anew. No round may be in flight. */
SPECD_API int specd_bind(specd_engine* engine, int role, const specd_tensor* tensor);

/* ---- sequences ----------------------------------------------------------------------------- */

/* A handle: slot and generation. 0 is never a sequence. */
typedef uint64_t specd_sequence;

/* The place of a sequence in the session's tables, below max_sequences; a later sequence may have
 * it again. */
SPECD_API uint32_t specd_sequence_slot(specd_sequence sequence);

enum {
  SPECD_VERIFY_AUTO = 0,        /* greedy at temperature 0; otherwise block in a round with
                                   SPECD_SAMPLED drafts and exact_match in any other */
  SPECD_VERIFY_GREEDY = 1,      /* temperature 0: the argmax, lowest id on a tie */
  SPECD_VERIFY_EXACT_MATCH = 2, /* same seed, same text, for any drafts and any number of them */
  SPECD_VERIFY_TOKEN = 3,       /* rejection sampling, for SPECD_SAMPLED drafts */
  SPECD_VERIFY_BLOCK = 4        /* the whole chain judged at once: accepts at least as much */
};

enum { SPECD_FILTERS_SEQUENTIAL = 0, SPECD_FILTERS_JOINT = 1 };

/* Of the row as it arrived (scaled and capped), or after every step (greedy: before the
 * temperature). */
enum {
  SPECD_RAW_LOGPROB = 0,
  SPECD_PROCESSED_LOGPROB = 1,
  SPECD_RAW_LOGIT = 2,
  SPECD_PROCESSED_LOGIT = 3
};

/* Lists are copied by the call that takes them. items may be NULL where count is 0. */
typedef struct specd_ids {
  const int32_t* items;
  uint64_t count;
} specd_ids;
typedef struct specd_floats {
  const float* items;
  uint64_t count;
} specd_floats;
typedef struct specd_strings {
  const char* const* items; /* UTF-8 */
  uint64_t count;
} specd_strings;

/* A processor compiled into specd, by name. */
typedef struct specd_processor {
  const char* name;
  const char* values; /* "key=value,key=value" with numbers; NULL: every default */
} specd_processor;

/* The parameters of a sequence; docs/PARAMETERS.md explains each. The steps are taken in this
 * order: masks and id lists, logit_bias, min_tokens, penalties, bad words, processors, temperature,
 * min_p, top_k, top_p. */
typedef struct specd_params {
  uint32_t struct_size;
  uint32_t verify;   /* SPECD_VERIFY_...; default AUTO */
  uint64_t seed;     /* used if has_seed */
  uint32_t has_seed; /* 0 or 1; default 0: a random seed is drawn and reported */
  uint32_t n;        /* sequences to open, 1 .. 64; default 1. Sequence i has seed + i and, from 1
                        on, the request id "ID#i" */

  double temperature;    /* 0 .. 2, default 1; below 1e-5 is greedy */
  double top_p;          /* above 0 .. 1, default 1 = off */
  double min_p;          /* 0 .. 1, default 0 = off */
  int32_t top_k;         /* -1 and up; default 0 = off, as is vocab_size and above; 1 is greedy */
  uint32_t filter_order; /* SPECD_FILTERS_...; default SEQUENTIAL. JOINT: all three filters judge
                            the distribution after the temperature, and the survivors of all stay */

  double frequency_penalty;    /* -2 .. 2, default 0; counts the output */
  double presence_penalty;     /* -2 .. 2, default 0; the output */
  double repetition_penalty;   /* above 0 .. 2, default 1; prompt and output */
  specd_ids logit_bias_ids;    /* at most 1024 */
  specd_floats logit_bias;     /* -100 .. 100, one for each of logit_bias_ids */
  specd_ids allowed_token_ids; /* default none = all */
  specd_ids disallowed_token_ids;
  specd_ids bad_word_ids;     /* the ids of all bad words, one word after another; at most 1024 */
  specd_ids bad_word_lengths; /* how many ids each word has; at most 128 words */
  uint32_t no_repeat_ngram_size;   /* default 0 = off */
  uint32_t no_repeat_ngram_window; /* tokens looked back upon; default 0 = all */
  specd_ids no_repeat_ngram_whitelist;

  int32_t thinking_budget;     /* tokens of a thought, 0 and up; default -1 = off */
  int32_t thinking_start_id;   /* the marker that opens a thought; default -1 */
  int32_t thinking_newline_id; /* emitted before the end unless it just was; default -1 = not */
  uint32_t num_processors;     /* at most 8 */
  specd_ids thinking_end_ids;  /* what closes a thought, forced when the budget is spent */
  const char* thinking_preset; /* "glm-4.5", "qwen3" or "deepseek-r1" in place of the ids above */
  const specd_processor* processors; /* in the order in which they run */

  uint32_t max_tokens;        /* 1 .. 2^31 - 1; default 16 */
  uint32_t min_tokens;        /* 0 .. max_tokens; default 0. No stop id, EOS or stop string
                                 ends the output at so many tokens or fewer */
  specd_ids stop_token_ids;   /* at most 64 */
  specd_strings stop_strings; /* at most 1024, non-empty, together at most 32 KiB; a daemon with a
                                 tokenizer is needed. Refused where output_ids are given: what the
                                 text side has not seen of a stop string would be lost */
  uint32_t ignore_eos;        /* 0 or 1; default 0. Drops the model's EOS ids only */
  uint32_t include_stop;      /* 0 or 1; default 0: a stop string, or the text of a stop id, is not
                                 shown */
  uint32_t skip_special_tokens; /* 0 or 1; default 1: special tokens give no text */

  int32_t logprobs; /* for each kept token the scores of this many best ids and its own, 0 .. 64;
                       default -1 = none at all */
  uint32_t logprobs_mode;      /* SPECD_RAW_LOGPROB, ...; default RAW_LOGPROB */
  uint32_t draft_edits;        /* 0 or 1; default 0: every step before the temperature (masks, id
                                  lists, biases, min_tokens, penalties, bad words, n-grams,
                                  thinking, processors) is taken on draft rows as well (see
                                  draft_... below) */
  specd_ids logprob_token_ids; /* further ids whose scores are wanted, at most 64 */

  /* What the drafter did to its own rows before it drew SPECD_SAMPLED tokens; never taken from the
   * sequence's own parameters. */
  double draft_temperature;    /* 1e-5 .. 2; default 1 */
  double draft_top_p;          /* default 1 = off */
  double draft_min_p;          /* default 0 = off */
  int32_t draft_top_k;         /* default 0 = off */
  uint32_t draft_filter_order; /* SPECD_FILTERS_... */

  /* What came before: the prompt, and tokens generated already, after which the output goes on. All
   * state is rebuilt from them, so a sequence can be preempted, move to another engine and return.
   * Needed only for what looks back: penalties, n-grams, thinking, a re-opened sequence. */
  specd_ids prompt_ids;
  specd_ids output_ids;
} specd_params;

SPECD_API void specd_params_init(specd_params* params);

typedef struct specd_sequence_info {
  specd_sequence sequence;
  uint64_t seed;   /* as given, or as drawn */
  uint32_t verify; /* GREEDY where the parameters leave no choice, otherwise as asked for */
  uint32_t reserved;
} specd_sequence_info;

/* request_id names the stream on the text side: 1 .. 128 bytes of UTF-8 without control characters,
 * the "#i" of sequence i counted in; two open sequences of one daemon may not share it. info
 * has params.n entries. All n are opened or none. */
SPECD_API int specd_open_sequence(specd_engine* engine, const char* request_id,
                                  const specd_params* params, specd_sequence_info* info);

/* Opens a copy of a sequence as it stands: same parameters, same prompt and tokens, its own seed
 * (NULL: drawn and reported) and name. Its text begins with the next token. A sequence with
 * stop strings cannot be forked: what the text side has seen of one would be lost. Rounds of the
 * source that are in flight come after the copy or before it; poll for them first. */
SPECD_API int specd_fork(specd_engine* engine, specd_sequence sequence, const char* request_id,
                         const uint64_t* seed, specd_sequence_info* info);

/* Frees the slot. A sequence that has not finished is aborted. Rounds of it that are still in
 * flight are answered SPECD_STATUS_UNKNOWN_SEQUENCE. */
SPECD_API int specd_close_sequence(specd_engine* engine, specd_sequence sequence);

/* Ends a sequence with SPECD_FINISH_ABORT; tokens kept so far stand. A finished one stays as it is.
 */
SPECD_API int specd_abort(specd_engine* engine, specd_sequence sequence);

enum {
  SPECD_FINISH_NONE = 0,
  SPECD_FINISH_STOP = 1,   /* a stop id, an EOS id, or a stop string found by the text side */
  SPECD_FINISH_LENGTH = 2, /* max_tokens */
  SPECD_FINISH_ABORT = 3,  /* specd_abort, or the text side gave the stream up */
  SPECD_FINISH_ERROR = 4   /* a row without a distribution: see the status of the round */
};

typedef struct specd_sequence_state {
  uint32_t finish_reason;    /* SPECD_FINISH_... */
  uint32_t kept_tokens;      /* meaningful once finished: tokens beyond this number are void */
  double cumulative_logprob; /* once finished: as in specd_result, of these tokens; before, NaN */
} specd_sequence_state;

/* Has the sequence ended? A read of shared memory, cheap enough for every step: the text side may
 * have found a stop string while the next round was already on its way. */
SPECD_API int specd_get_sequence_state(specd_engine* engine, specd_sequence sequence,
                                       specd_sequence_state* state);

/* ---- rounds -------------------------------------------------------------------------------- */

enum {
  SPECD_ONE_HOT = 0, /* chosen without chance: greedy, n-gram, forced. Lossless whatever chose it */
  SPECD_SAMPLED = 1  /* drawn from softmax(draft row / draft_temperature), which must be given */
};

enum {
  SPECD_DISCARD = 1,       /* the rows are padding or an unfinished prefill: nothing is sampled,
                              nothing changes, num_kept is 0. Rows and tokens are not looked at */
  SPECD_DRAFTS_BY_SLOT = 2 /* the draft tokens are the first num_drafts ids at the sequence's slot
                              in SPECD_DRAFT_TOKENS, which must stay as rows must; tokens is NULL.
                              Not for sequences with bad words of several tokens, no-repeat-n-gram,
                              a thinking budget or processors, which look at them on the host */
};

typedef struct specd_draft {
  specd_sequence sequence;
  uint32_t num_drafts;   /* 0 .. max_draft */
  uint32_t flags;        /* SPECD_DISCARD, SPECD_DRAFTS_BY_SLOT or 0 */
  const int32_t* tokens; /* num_drafts ids; -1 = no token was drawn, the draft ends here. Any
                            other id outside the vocabulary is verified and rejected */
  const uint8_t* kinds;  /* num_drafts times SPECD_ONE_HOT or SPECD_SAMPLED; NULL: all one-hot */
  const uint32_t* target_rows; /* num_drafts + 1 rows of SPECD_TARGET_ROWS */
  const uint32_t* draft_rows;  /* num_drafts rows of SPECD_DRAFT_ROWS, read where kinds[i] is
                                  SPECD_SAMPLED; NULL if there is none */
  const int32_t* mask_rows;    /* num_drafts + 1 rows of SPECD_GRAMMAR_MASK, -1 where a place is
                                  unconstrained; NULL: all are. All -1 is as NULL and needs no
                                  mask bound */
  /* The side channel: q(tokens[i]) = draft_weights[i] / draft_masses[i], as specd_sample_draft
   * gives them, so that a draft row is read only where a token is rejected. Both or neither. */
  const float* draft_weights;
  const double* draft_masses;
  /* num_drafts + 1 argmax ids of the target in place of its rows (target_rows is NULL then). For
   * sequences that are greedy and have no parameter that needs a row. */
  const int32_t* target_argmax;
} specd_draft;

/* Submits a round. round_id is yours and comes back with the completion. A sequence may stand in a
 * round once. Everything is copied; only the rows must stay as they are. SPECD_ERROR_STATE while
 * rounds of specd_stage_round are in flight: poll them first. */
SPECD_API int specd_submit(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                           uint32_t num_drafts);

enum {
  SPECD_STATUS_OK = 0,
  SPECD_STATUS_FINISHED = 1,         /* the sequence had finished before: nothing changed */
  SPECD_STATUS_BAD_DISTRIBUTION = 2, /* NaN, or no mass, in a row (or its side channel) that was
                                        needed: the sequence ends here, tokens before that row
                                        stand */
  SPECD_STATUS_UNKNOWN_SEQUENCE = 3, /* never opened, or closed */
  SPECD_STATUS_INVALID = 4,      /* not verified, nothing changed for this sequence: see detail */
  SPECD_STATUS_DEVICE_ERROR = 5, /* the processor failed; nothing changed, the daemon restarts */
  SPECD_STATUS_ABORTED = 6       /* of specd_submit_on_stream: the stream was released without an
                                    answer; nothing was confirmed, nothing will be */
};

/* What SPECD_STATUS_INVALID is about. */
enum {
  SPECD_DETAIL_NONE = 0,
  SPECD_DETAIL_SEQUENCE = 1,   /* no handle that this session could have given out */
  SPECD_DETAIL_COUNT = 2,      /* num_drafts */
  SPECD_DETAIL_KIND = 3,       /* kinds */
  SPECD_DETAIL_TARGET_ROW = 4, /* target_rows: not below the rows that are bound */
  SPECD_DETAIL_DRAFT_ROW = 5,  /* draft_rows */
  SPECD_DETAIL_FLAGS = 6,      /* flags */
  SPECD_DETAIL_MASK_ROW = 7,   /* mask_rows */
  SPECD_DETAIL_ARGMAX = 8,     /* target_argmax: an id outside the vocabulary */
  SPECD_DETAIL_REFUSED = 9,    /* the sequence stands in the round twice, or cannot be verified with
                                  what is brought: target_argmax in place of rows that it needs,
                                  masks over final probabilities */
  SPECD_DETAIL_DRAFT_TOKENS = 10, /* SPECD_DRAFTS_BY_SLOT, but SPECD_DRAFT_TOKENS is not bound */
  SPECD_DETAIL_HOST_TOKENS = 11,  /* the sequence's parameters look at tokens that the host does not
                                     know: draft tokens by slot, or those of staged rounds that were
                                     not polled */
  SPECD_DETAIL_NO_ROOM = 12       /* the ids that the sequence's parameters ban, bias or count need
                                     more memory than rounds on the device have for a sequence, or
                                     a staged round for all of them: docs/ARCHITECTURE.md, Limits */
};

/* "target_rows: an index is not below the number of rows bound", and so on; never NULL. */
SPECD_API const char* specd_detail_text(uint32_t detail);

typedef struct specd_token_score {
  int32_t id;   /* -1 where a row has fewer ids than were asked for */
  float value;  /* as logprobs_mode says */
  int32_t rank; /* 1 + the number of ids with a greater value */
} specd_token_score;

typedef struct specd_result {
  specd_sequence sequence;
  uint32_t status;        /* SPECD_STATUS_... */
  uint32_t finish_reason; /* SPECD_FINISH_... after this round. With stop strings it is provisional:
                             the text side may still find one in these tokens, and end the
                             sequence earlier (specd_get_sequence_state) */
  uint32_t num_accepted;  /* of the kept tokens, those that are accepted drafts */
  uint32_t num_kept;      /* tokens in `tokens`: what the stream gained in this round */
  uint32_t total_kept;    /* tokens of the sequence after this round */
  int32_t stop_token;     /* the id that finished it, or -1 */
  uint32_t detail;        /* SPECD_DETAIL_... where status is SPECD_STATUS_INVALID */
  uint32_t scores_per_token;       /* 1 + logprobs + logprob_token_ids.count; 0 without logprobs */
  const int32_t* tokens;           /* valid until the next specd_poll or specd_close */
  const specd_token_score* scores; /* scores_per_token for each of `tokens`: itself, the best ones
                                      (greatest value first), logprob_token_ids. NULL without */
  double cumulative_logprob; /* the sum of the logprobs of the tokens kept since the sequence was
                                opened (output_ids do not count; a fork goes on with the sum of its
                                source), to rank n samples by. NaN without logprobs, and where
                                logprobs_mode gives logits, which do not add up */
} specd_result;

typedef struct specd_completion {
  uint64_t round_id;
  uint32_t num_results; /* as many, and in the same order, as in specd_submit */
  uint32_t reserved;
  const specd_result* results; /* valid until the next specd_poll or specd_close */
  uint64_t verify_ns;          /* from the moment specd took the round to its completion */
  uint64_t total_ns;           /* from specd_submit to its completion */
} specd_completion;

/* Takes the oldest completion, waiting for up to timeout_ms (0: not at all, -1: without limit).
 * With no round in flight there is nothing to wait for, and the answer is SPECD_EMPTY at once.
 * SPECD_EMPTY if none came; SPECD_ERROR_DISCONNECTED as soon as the daemon is known to be gone. */
SPECD_API int specd_poll(specd_engine* engine, specd_completion* completion, int timeout_ms);

/* ---- rounds on a CUDA stream ---------------------------------------------------------------- */

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

/* ---- rounds inside a CUDA graph -------------------------------------------------------------- */

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

/* ---- ranks in processes of their own --------------------------------------------------------- */

/* Tensor-parallel engines run a process for each GPU. Rank 0's is the specd_engine: its rows
 * decide. Every other process that needs the ids in memory of its own joins the session of that
 * engine:
 *
 *   specd_get_group          rank 0: a token, to be brought to the others by the engine's own means
 *   specd_join               rank k, with the token, to the same daemon
 *   specd_member_bind_...    rank k: where its next tokens are to lie
 *   specd_leave
 *
 * From then on every round of rank 0 writes there what it writes to SPECD_NEXT_TOKEN + k, under the
 * same rules: before its completion is published, and of a round on a stream before that stream
 * goes on; an aborted round writes nothing. Rank k may read once it knows that the round has been
 * answered: from rank 0 after specd_poll, or on its stream, behind a collective that rank 0's
 * stream takes part in behind the round. A round that is under way when rank k binds may have been
 * written to no rank k: wait for bound_ranks before the first round that needs it.
 *
 * A rank that leaves or dies takes nothing with it (a GPU that fails does, whosever it is): the
 * rounds go on for the others, and rank 0 is told nothing but by bound_ranks. Its place is free,
 * and its memory not written any more, once the daemon has seen it go: for a rank that calls
 * specd_leave, when that has answered. */

typedef struct specd_group {
  const char* token;    /* whoever has it may join: treat it as a password. Up to 64 bytes of text,
                           the same for the life of the engine. Valid until the next call of
                           specd_get_group or specd_close */
  uint32_t bound_ranks; /* bit k: the next tokens of rank k are bound, bit 0 being SPECD_NEXT_TOKEN,
                           whoever has bound them */
  uint32_t reserved;
} specd_group;

/* SPECD_ERROR_UNSUPPORTED in embedded mode, which other processes cannot join: bind
 * SPECD_NEXT_TOKEN + k to memory of this process, or attach to a daemon. */
SPECD_API int specd_get_group(specd_engine* engine, specd_group* group);

/* A rank's place in the session of another process. One thread at a time. */
typedef struct specd_member specd_member;

typedef struct specd_join_options {
  uint32_t struct_size;
  uint32_t rank;       /* 1 .. 7, as in SPECD_NEXT_TOKEN + rank; required */
  uint32_t timeout_ms; /* for every call that waits for the daemon, 1 .. 3600000; default 5000 */
  uint32_t reserved;   /* 0 */
  const char* name;    /* shown in the daemon's log, up to 64 bytes; default "rank" */
} specd_join_options;

SPECD_API void specd_join_options_init(specd_join_options* options);

/* On success *member is set; free it with specd_leave. SPECD_ERROR_PERMISSION for a token that is
 * not this session's, SPECD_ERROR_NOT_FOUND for one of a session that is not here (any more),
 * SPECD_ERROR_STATE for a rank that has joined already, or whose role the engine has bound itself.
 * A rank that has died may join again once the daemon has seen it go: try again for a moment. */
SPECD_API int specd_join(const char* uri, const char* token, const specd_join_options* options,
                         specd_member** member);

/* Where this rank's next tokens lie from now on, one int32 id for each of num_rows slots, of which
 * there are to be as many as rank 0's max_sequences at least. In memory of this process on a GPU
 * that the daemon sees, as specd_import_device takes it (the daemon needs --device=cuda); or in a
 * memfd, as specd_import_fd takes it, from offset_bytes on. What was bound before is given back;
 * this memory must not be freed before another is bound, or specd_leave has answered SPECD_OK.
 * After SPECD_ERROR_INTERNAL or SPECD_ERROR_DISCONNECTED nobody knows which of the two is bound:
 * then that holds for both. */
SPECD_API int specd_member_bind_device(specd_member* member, uint64_t address, uint64_t num_rows);
SPECD_API int specd_member_bind_fd(specd_member* member, int fd, uint64_t size_bytes,
                                   uint64_t offset_bytes, uint64_t num_rows);

/* SPECD_OK while the session goes on; SPECD_ERROR_DISCONNECTED once it or the daemon has ended, and
 * with it the membership: the memory is this process's alone again, but for what a GPU still had to
 * do for a daemon that was killed. Asks nobody, so cheap. */
SPECD_API int specd_member_check(specd_member* member);

/* Ends the membership, frees *member, and waits until nothing is written to its memory any more:
 * with SPECD_OK it may be freed. SPECD_ERROR_DISCONNECTED where timeout_ms has passed without the
 * daemon saying so: only the end of this process makes sure then. NULL is allowed. */
SPECD_API int specd_leave(specd_member* member);

/* ---- specd as the drafter's sampler --------------------------------------------------------- */

enum {
  SPECD_WITH_REPLACEMENT = 0,
  SPECD_WITHOUT_REPLACEMENT = 1,
  SPECD_TOP_K_CHILDREN = 2 /* the most probable ones: SPECD_ONE_HOT drafts */
};

typedef struct specd_draft_request {
  specd_sequence sequence;
  uint32_t row;     /* of SPECD_DRAFT_ROWS; read with the sequence's draft_... parameters */
  int32_t mask_row; /* of SPECD_GRAMMAR_MASK, with draft_edits; -1 = unconstrained. It must be the
                       row that mask_rows names for this place at verification: q is the draft row
                       with that mask */
  const int32_t* prefix; /* the draft tokens before this place */
  uint32_t num_prefix;   /* 0 .. max_draft - 1 */
  uint32_t sampling;     /* SPECD_WITH_REPLACEMENT, ... */
  uint32_t num_children; /* 1 .. 64; a chain has one */
  uint32_t first_node;   /* the coins are those of nodes first_node, first_node + 1, ... of the
                            draft; 0 = num_prefix + 1, as in a chain */
} specd_draft_request;

typedef struct specd_draft_child {
  int32_t id;
  uint32_t count; /* how often it was drawn */
  float weight;   /* q(id) = weight / mass: draft_weights and draft_masses of specd_draft */
  uint32_t reserved;
  double mass;
} specd_draft_child;

typedef struct specd_draft_children {
  specd_sequence sequence;
  uint32_t status;                   /* SPECD_STATUS_... */
  uint32_t num_children;             /* ids; they are distinct */
  const specd_draft_child* children; /* valid until the next call with this engine */
} specd_draft_children;

/* Draws draft tokens and waits for them, attached for timeout_ms of specd_options at most; at most
 * max_batch requests. No round may be in flight: what is drawn depends on the tokens that are kept.
 * One request out of range refuses all of them. SPECD_STATUS_BAD_DISTRIBUTION is said of the row
 * alone: here it ends no sequence. */
SPECD_API int specd_sample_draft(specd_engine* engine, const specd_draft_request* requests,
                                 uint32_t num_requests, specd_draft_children* results);

/* ---- scores of given ids --------------------------------------------------------------------- */

typedef struct specd_score_request {
  const uint32_t* rows; /* num_ids rows of SPECD_TARGET_ROWS */
  const int32_t* ids;   /* ids[i] is scored in rows[i] */
  uint32_t num_ids;     /* 1 .. max_draft + 1 */
  uint32_t mode;        /* SPECD_RAW_LOGPROB or SPECD_RAW_LOGIT */
  uint32_t num_top;     /* best ids for each, 0 .. 64 */
  uint32_t reserved;    /* 0 */
  specd_ids chosen_ids; /* further ids for each, at most 64 */
} specd_score_request;

typedef struct specd_score_result {
  uint32_t status;     /* SPECD_STATUS_... */
  uint32_t num_scored; /* ids before the first row without a distribution */
  uint32_t scores_per_token;
  uint32_t reserved;
  const specd_token_score* scores; /* as in specd_result; valid until the next call */
} specd_score_result;

/* Scores ids without a sequence and without state (a prompt's logprobs) and waits for the scores as
 * specd_sample_draft does; at most max_batch requests, at most max_scores_per_token scores for each
 * id. No round may be in flight. SPECD_STATUS_BAD_DISTRIBUTION ends nothing here. */
SPECD_API int specd_score(specd_engine* engine, const specd_score_request* requests,
                          uint32_t num_requests, specd_score_result* results);

/* ---- coins for tests and replay ------------------------------------------------------------- */

enum {
  SPECD_COIN_SAMPLE = 1,  /* draws from the target: plain, bonus, exact_match */
  SPECD_COIN_DRAFT = 2,   /* draws a draft token */
  SPECD_COIN_ACCEPT = 3,  /* accepts or rejects one */
  SPECD_COIN_RESIDUAL = 4 /* draws what follows a rejection */
};

/* The key of a coin, as docs/ALGORITHMS.md defines it, and the coin: value / 2^53. */
typedef struct specd_coin {
  uint32_t position;   /* in the output, of the token it decides about */
  uint32_t round_base; /* kept tokens when the round starts; 0 for SPECD_COIN_SAMPLE */
  uint32_t node;       /* draft token i is node i + 1; 0 for SPECD_COIN_SAMPLE */
  uint32_t purpose;    /* SPECD_COIN_... */
  uint64_t value;      /* below 2^53 */
} specd_coin;

/* From now on this sequence meets these coins in place of its own; a key that is not among them
 * keeps the coin of the seed. Replaces the coins of an earlier call; at most 4096, and 2^20 for all
 * open sequences together. Waits as specd_sample_draft does; no round may be in flight. Coins that
 * were given up after timeout_ms may be set all the same, before the next round. A fork and a
 * re-opened sequence have none. */
SPECD_API int specd_set_coins(specd_engine* engine, specd_sequence sequence,
                              const specd_coin* coins, uint32_t num_coins);

/* ---- what has happened ---------------------------------------------------------------------- */

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

#endif /* SPECD_SPECD_H_ */
