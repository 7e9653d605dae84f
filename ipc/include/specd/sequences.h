/* sequences.h: the streams that an engine generates, and their sampling parameters.
 * Part of <specd/specd.h>. */
#ifndef SPECD_SEQUENCES_H_
#define SPECD_SEQUENCES_H_

#include "specd/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* A parameter that is one number, by its name in docs/PARAMETERS.md: a flag is 0 or 1, a choice the
 * number of its value. Of this size in every version. */
typedef struct specd_number {
  const char* name;
  double value;
} specd_number;
typedef struct specd_numbers {
  const specd_number* items;
  uint64_t count;
} specd_numbers;

/* A processor compiled into specd, by name. Of this size in every version. */
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

  specd_numbers numbers; /* parameters without a field above, or in the place of one that is left at
                            its default; each once, at most 64 together with the fields that are
                            set */
} specd_params;

SPECD_API void specd_params_init(specd_params* params);

enum {
  SPECD_PARAM_NUMBER = 0,
  SPECD_PARAM_INTEGER = 1,
  SPECD_PARAM_FLAG = 2,
  SPECD_PARAM_CHOICE = 3
};

/* A parameter that is one number. The texts stay for the life of the library. */
typedef struct specd_param_info {
  uint32_t struct_size;    /* sizeof(specd_param_info): set it before the call */
  uint32_t type;           /* SPECD_PARAM_... */
  const char* name;        /* here, and in specd_params.numbers */
  const char* vllm_name;   /* "": vLLM has no such parameter */
  const char* sglang_name; /* "": SGLang has no such parameter */
  const char* meaning;
  const char* range;     /* in words, such as "above 0 .. 1" */
  specd_strings choices; /* the names of a choice; the index is the value */
  double default_value;
  double minimum; /* of numbers: -INFINITY and INFINITY are no bounds */
  double maximum;
} specd_param_info;

/* Lists the parameters that `numbers` takes, from index 0 on, so that a binding in another language
 * has them without a list of its own. SPECD_EMPTY after the last. */
SPECD_API int specd_get_param_info(uint32_t index, specd_param_info* info);

typedef struct specd_sequence_info {
  uint32_t struct_size; /* sizeof(specd_sequence_info): set it in every element before the call */
  uint32_t verify;      /* GREEDY where the parameters leave no choice, otherwise as asked for */
  specd_sequence sequence;
  uint64_t seed; /* as given, or as drawn */
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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_SEQUENCES_H_ */
