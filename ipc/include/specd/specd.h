/* specd.h: attach an inference engine to specd.
 *
 * specd verifies speculative drafts and samples tokens. An engine writes logits rows into memory it
 * shares with specd, submits a round (for each sequence: draft tokens and which rows judge them),
 * and polls for the confirmed tokens. This header is the whole promise; C99, no other include
 * needed.
 *
 *   uri                          where the verifier runs
 *   unix:/run/specd/specd.sock   in the daemon; text, stop strings and observers come with it
 *   embedded:cpu                 in this process, inside specd_poll; same results, no text side
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
 *   specd_close_sequence, specd_close
 *
 * One sequence in one round. The engine proposes num_drafts tokens d[0] .. d[K-1] and brings K + 1
 * target rows: row i holds the target model's logits after the prompt, the kept tokens and
 * d[0] .. d[i-1]. specd answers with num_kept tokens: the accepted drafts d[0] .. d[num_accepted-1]
 * and then one more token of its own choice (fewer if the sequence finished on the way). num_drafts
 * may be 0: that is plain sampling, and needs one row.
 *
 * Rows must not change between specd_submit and the completion of that round.
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
  uint32_t timeout_ms;    /* for an attach or another control call, 1 .. 3600000; default 5000 */
  const char* name;       /* shown in the daemon's log, up to 64 bytes; default "engine" */
} specd_options;

SPECD_API void specd_options_init(specd_options* options);

/* On success *engine is set; free it with specd_close. */
SPECD_API int specd_open(const char* uri, const specd_options* options, specd_engine** engine);

/* Detaches: open sequences are aborted, memory from specd_alloc is unmapped. NULL is allowed. */
SPECD_API void specd_close(specd_engine* engine);

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct specd_region {
  uint32_t id; /* to be named in specd_tensor */
  void* data;  /* where this process sees it, 4096-byte aligned; NULL for an imported fd */
  uint64_t size_bytes;
} specd_region;

/* Shared memory for rows, zeroed, made by the library and sealed against shrinking. */
SPECD_API int specd_alloc(specd_engine* engine, uint64_t size_bytes, specd_region* region);

/* A memfd of your own instead. It must be sealed (F_SEAL_SHRINK) and hold at least size_bytes: an
 * unsealed file could be truncated under the daemon. The descriptor stays yours. */
SPECD_API int specd_import_fd(specd_engine* engine, int fd, uint64_t size_bytes,
                              specd_region* region);

enum { SPECD_FLOAT32 = 0, SPECD_BFLOAT16 = 1, SPECD_FLOAT16 = 2 };

enum {
  SPECD_TARGET_LOGITS = 1, /* required before the first round */
  SPECD_DRAFT_LOGITS = 2   /* only for SPECD_SAMPLED draft tokens */
};

typedef struct specd_tensor {
  uint32_t struct_size;
  uint32_t region;       /* specd_region.id */
  uint32_t dtype;        /* SPECD_FLOAT32, ... */
  uint32_t reserved;     /* 0 */
  uint64_t offset_bytes; /* of row 0, a multiple of the element size */
  uint64_t num_rows;     /* 1 .. 2^31 - 1; rows are named by index in specd_draft */
  uint64_t row_stride;   /* from row to row, in elements, >= vocab_size; default 0 = vocab_size */
} specd_tensor;

SPECD_API void specd_tensor_init(specd_tensor* tensor);

/* Binds the tensor of a role, or binds it anew. No round may be in flight. */
SPECD_API int specd_bind(specd_engine* engine, int role, const specd_tensor* tensor);

/* ---- sequences ----------------------------------------------------------------------------- */

/* A handle: slot and generation. 0 is never a sequence. */
typedef uint64_t specd_sequence;

enum {
  SPECD_VERIFY_AUTO = 0,        /* greedy at temperature 0, otherwise exact_match */
  SPECD_VERIFY_GREEDY = 1,      /* temperature 0: the argmax, lowest id on a tie */
  SPECD_VERIFY_EXACT_MATCH = 2, /* same seed, same text, for any drafts and any number of them */
  SPECD_VERIFY_TOKEN = 3        /* rejection sampling, for SPECD_SAMPLED drafts */
};

typedef struct specd_params {
  uint32_t struct_size;
  uint32_t verify;          /* SPECD_VERIFY_...; default AUTO */
  double temperature;       /* 0 .. 2, default 1; below 1e-5 is greedy */
  double draft_temperature; /* the temperature the drafter drew SPECD_SAMPLED tokens with,
                               1e-5 .. 2; default 1. Never taken from temperature. */
  uint64_t seed;            /* used if has_seed */
  uint32_t has_seed;        /* 0 or 1; default 0: a random seed is drawn and reported */
  uint32_t max_tokens;      /* 1 .. 2^31 - 1; default 16 */
  uint32_t ignore_eos;      /* 0 or 1; default 0. Drops the model's EOS ids only */
  uint32_t
      include_stop; /* 0 or 1; default 0: a stop string, or the text of a stop id, is not shown */
  uint32_t skip_special_tokens; /* 0 or 1; default 1: special tokens give no text */
  uint32_t num_stop_token_ids;  /* at most 64 */
  const int32_t* stop_token_ids;
  uint32_t num_stop_strings; /* at most 1024, non-empty, UTF-8, together at most 32 KiB;
                                a daemon with a tokenizer is needed */
  uint32_t reserved;         /* 0 */
  const char* const* stop_strings;
} specd_params;

SPECD_API void specd_params_init(specd_params* params);

typedef struct specd_sequence_info {
  specd_sequence sequence;
  uint64_t seed;   /* as given, or as drawn */
  uint32_t verify; /* what AUTO became */
  uint32_t reserved;
} specd_sequence_info;

/* request_id names the stream on the text side: 1 .. 128 bytes of UTF-8 without control characters;
 * two open sequences of one daemon may not share it. */
SPECD_API int specd_open_sequence(specd_engine* engine, const char* request_id,
                                  const specd_params* params, specd_sequence_info* info);

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
  uint32_t finish_reason; /* SPECD_FINISH_... */
  uint32_t kept_tokens;   /* meaningful once finished: tokens beyond this number are void */
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

typedef struct specd_draft {
  specd_sequence sequence;
  uint32_t num_drafts;   /* 0 .. max_draft */
  uint32_t reserved;     /* 0 */
  const int32_t* tokens; /* num_drafts ids; -1 = no token was drawn, the draft ends here. Any
                            other id outside the vocabulary is verified and rejected */
  const uint8_t* kinds;  /* num_drafts times SPECD_ONE_HOT or SPECD_SAMPLED; NULL: all one-hot */
  const uint32_t* target_rows; /* num_drafts + 1 rows of SPECD_TARGET_LOGITS */
  const uint32_t* draft_rows;  /* num_drafts rows of SPECD_DRAFT_LOGITS, read where kinds[i] is
                                  SPECD_SAMPLED; NULL if there is none */
} specd_draft;

/* Submits a round. round_id is yours and comes back with the completion. A sequence may stand in a
 * round once. Everything is copied; only the rows must stay as they are. */
SPECD_API int specd_submit(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                           uint32_t num_drafts);

enum {
  SPECD_STATUS_OK = 0,
  SPECD_STATUS_FINISHED = 1,         /* the sequence had finished before: nothing changed */
  SPECD_STATUS_BAD_DISTRIBUTION = 2, /* NaN, or no finite logit, in a row that was needed: the
                                        sequence ends here, tokens before that row stand */
  SPECD_STATUS_UNKNOWN_SEQUENCE = 3, /* never opened, or closed */
  SPECD_STATUS_INVALID = 4,          /* a row index, a kind or a count out of range: not verified,
                                        nothing changed for this sequence */
  SPECD_STATUS_DEVICE_ERROR = 5 /* the processor failed; nothing changed, the daemon restarts */
};

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
  const int32_t* tokens;  /* valid until the next specd_poll or specd_close */
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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_SPECD_H_ */
