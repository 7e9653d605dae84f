/* sequences.h opens, forks and closes the sequences that an engine generates, and has their
 * sampling parameters. Part of <specd/specd.h>. */
#ifndef SPECD_SEQUENCES_H_
#define SPECD_SEQUENCES_H_

#include "specd/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A handle: a slot, a generation, and the engine that opened the sequence. 0 is never a sequence. A
 * handle of another engine is refused by name (SPECD_DETAIL_SEQUENCE, or the text of the error),
 * also where both engines are attached to one daemon. Two engines have the same number in their
 * handles with a probability of 1 in 65,535. */
typedef uint64_t specd_sequence;

/* Returns the index of a sequence in the session's tables, below max_sequences. A later sequence
 * may get the same slot. */
SPECD_API uint32_t specd_sequence_slot(specd_sequence sequence);

enum {
  SPECD_VERIFY_AUTO = 0,        /* greedy at temperature 0. Otherwise exact_match in a round without
                                   drawn draft tokens. In any other round block for a chain and tree
                                   for a tree */
  SPECD_VERIFY_GREEDY = 1,      /* temperature 0: the argmax, lowest id on a tie */
  SPECD_VERIFY_EXACT_MATCH = 2, /* the same seed gives the same text, for any drafts and any number
                                   of them */
  SPECD_VERIFY_TOKEN = 3,       /* rejection sampling, for SPECD_SAMPLED drafts */
  SPECD_VERIFY_BLOCK = 4,       /* judges the whole chain at once; accepts at least as much as
                                   token */
  SPECD_VERIFY_TREE = 5,        /* children one after another; token on a chain */
  SPECD_VERIFY_TRAVERSAL = 6,   /* leaves one after another; block on a chain */
  SPECD_VERIFY_TARGET_ONLY = 7, /* one coin chooses among the children by the target alone */
  /* Lossy, from here to SYNTHETIC: the output does not have the distribution of the target. Refused
   * unless the daemon runs with --allow_lossy, or an embedded engine with
   * specd_options.allow_lossy. */
  SPECD_VERIFY_TYPICAL = 8,    /* typical_epsilon, typical_delta */
  SPECD_VERIFY_RELAXED = 9,    /* relaxed_n, relaxed_delta, relaxed_thinking; greedy too */
  SPECD_VERIFY_THRESHOLD = 10, /* threshold_single, threshold_acc */
  SPECD_VERIFY_SYNTHETIC = 11  /* synthetic_rates, for load tests; greedy too */
};

enum { SPECD_FILTERS_SEQUENTIAL = 0, SPECD_FILTERS_JOINT = 1 };

/* RAW: the score in the row as it arrived (scaled and capped). PROCESSED: the score after every
 * step, or for greedy sequences before the temperature. UNFILTERED: as PROCESSED, but before the
 * filters min_p, top_k and top_p. */
enum {
  SPECD_RAW_LOGPROB = 0,
  SPECD_PROCESSED_LOGPROB = 1,
  SPECD_RAW_LOGIT = 2,
  SPECD_PROCESSED_LOGIT = 3,
  SPECD_UNFILTERED_LOGPROB = 4
};

/* The kinds of constraints, and the text that each takes. */
enum {
  SPECD_GRAMMAR_NONE = 0,
  SPECD_GRAMMAR_JSON = 1,          /* a JSON Schema */
  SPECD_GRAMMAR_JSON_OBJECT = 2,   /* no text: any JSON object */
  SPECD_GRAMMAR_REGEX = 3,         /* a pattern that the whole output matches */
  SPECD_GRAMMAR_EBNF = 4,          /* a grammar in the dialect of GBNF and xgrammar, from `root` */
  SPECD_GRAMMAR_CHOICE = 5,        /* a JSON array of strings; the output is one */
  SPECD_GRAMMAR_STRUCTURAL_TAG = 6 /* a JSON object: tags and the triggers that begin them */
};

/* The order of the properties that a JSON Schema declares: its own, or the model's. */
enum { SPECD_KEY_ORDER_SCHEMA = 0, SPECD_KEY_ORDER_ANY = 1 };

/* Whitespace between the tokens of JSON: at most 64 characters in one place, or none. */
enum { SPECD_WHITESPACE_FLEXIBLE = 0, SPECD_WHITESPACE_COMPACT = 1 };

/* Lists are copied as specd_ids are. */
typedef struct specd_floats {
  const float* items;
  uint64_t count;
} specd_floats;

/* A parameter that is one number, by its name in docs/PARAMETERS.md. A flag is 0 or 1; a choice is
 * the number of its value. This struct has the same size in every version. */
typedef struct specd_number {
  const char* name;
  double value;
} specd_number;
typedef struct specd_numbers {
  const specd_number* items;
  uint64_t count;
} specd_numbers;

/* A processor compiled into specd, by its name. This struct has the same size in every version. */
typedef struct specd_processor {
  const char* name;
  const char* values; /* "key=value,key=value" with numbers; NULL: every default */
} specd_processor;

/* The parameters of a sequence, which docs/PARAMETERS.md explains. specd takes the steps in this
 * order: masks and id lists, logit_bias, min_tokens, penalties, bad words, processors, temperature,
 * min_p, top_k, top_p. */
typedef struct specd_params {
  uint32_t struct_size;
  uint32_t verify;   /* SPECD_VERIFY_...; default AUTO */
  uint64_t seed;     /* used if has_seed */
  uint32_t has_seed; /* 0 or 1; default 0: specd draws a random seed and reports it */
  uint32_t n;        /* sequences to open, 1 .. 64; default 1. Sequence i has seed + i; from i = 1
                        on its request id is "ID#i" */

  double temperature;    /* 0 .. 100, default 1; below 1e-5 is greedy */
  double top_p;          /* above 0 .. 1, default 1 = off */
  double min_p;          /* 0 .. 1, default 0 = off */
  int32_t top_k;         /* -1 and up; default 0 = off. vocab_size and above are off too; 1 is
                            greedy */
  uint32_t filter_order; /* SPECD_FILTERS_...; default SEQUENTIAL. JOINT: each filter judges the
                            distribution after the temperature, and ids that pass all three stay */

  double frequency_penalty;    /* -2 .. 2, default 0; counts the output */
  double presence_penalty;     /* -2 .. 2, default 0; counts the output */
  double repetition_penalty;   /* 0.01 .. 100, default 1; counts prompt and output */
  specd_ids logit_bias_ids;    /* at most 1024 */
  specd_floats logit_bias;     /* -100 .. 100, one for each of logit_bias_ids */
  specd_ids allowed_token_ids; /* default none = all */
  specd_ids disallowed_token_ids;
  specd_ids bad_word_ids;     /* the ids of all bad words, one word after another; at most 1024 */
  specd_ids bad_word_lengths; /* the number of ids of each word; at most 128 words */
  uint32_t no_repeat_ngram_size;   /* default 0 = off */
  uint32_t no_repeat_ngram_window; /* number of past tokens to search; default 0 = all */
  specd_ids no_repeat_ngram_whitelist;

  int32_t thinking_budget;     /* tokens of a thought, 0 and up; default -1 = off */
  int32_t thinking_start_id;   /* the marker that opens a thought; default -1 */
  int32_t thinking_newline_id; /* specd emits it before a forced end, unless it was just emitted;
                                  default -1 = none */
  uint32_t num_processors;     /* at most 8 */
  specd_ids thinking_end_ids;  /* the ids that close a thought; specd forces them when the budget is
                                  spent */
  const char* thinking_preset; /* "glm-4.5", "qwen3" or "deepseek-r1" in place of the ids above */
  const specd_processor* processors; /* in the order in which they run */

  uint32_t max_tokens;      /* 1 .. 2^31 - 1; default 16 */
  uint32_t min_tokens;      /* 0 .. max_tokens; default 0. No stop id, EOS or stop string ends the
                               output at this many tokens or fewer */
  specd_ids stop_token_ids; /* at most 64 */
  /* Stop strings: at most 1024, non-empty, together at most 32 KiB. A tokenizer is needed: the
   * daemon's, or that of an embedded engine. Embedded, and with the number stops = 1 (inline), the
   * round that keeps a stop string ends the sequence there. Otherwise the daemon's text side finds
   * it after the round. A stop string may begin in output_ids, never in prompt_ids. The text of
   * output_ids was given before: it is not given again, and a stop string that begins there takes
   * none back. */
  specd_strings stop_strings;
  uint32_t ignore_eos;          /* 0 or 1; default 0. Drops the model's EOS ids only */
  uint32_t include_stop;        /* 0 or 1; default 0: the text ends before a stop string and omits a
                                   stop id */
  uint32_t skip_special_tokens; /* 0 or 1; default 1: special tokens give no text */

  int32_t logprobs; /* scores reported for each kept token: this many best ids and the token itself,
                       0 .. 64; default -1 = none at all */
  uint32_t logprobs_mode; /* SPECD_RAW_LOGPROB, ...; default RAW_LOGPROB */
  /* 0 or 1; default 0. 1: every step before the temperature also applies to draft rows: masks, id
   * lists, biases, min_tokens, penalties, bad words, n-grams, thinking, processors (see draft_...
   * below). */
  uint32_t draft_edits;
  specd_ids logprob_token_ids; /* further ids to score, at most 64 */

  /* The steps that the drafter applied to its own rows before it drew SPECD_SAMPLED tokens. specd
   * never takes them from the sequence's own parameters. */
  double draft_temperature;    /* 1e-5 .. 100; default 1 */
  double draft_top_p;          /* default 1 = off */
  double draft_min_p;          /* default 0 = off */
  int32_t draft_top_k;         /* default 0 = off */
  uint32_t draft_filter_order; /* SPECD_FILTERS_... */

  /* The prompt, and tokens that were generated already; the output continues after them. All state
   * is rebuilt from these ids, so a sequence can be preempted, move to another engine and return.
   * Parameters that look back need them (penalties, n-grams, thinking), and so does a re-opened
   * sequence. The text needs them too: a code point may begin in either, and a stop string in the
   * outputs. */
  specd_ids prompt_ids;
  specd_ids output_ids;

  /* Parameters without a field above. A name may also replace a field that is left at its default.
   * Each name may occur once; together with the fields that are set there may be at most 64. */
  specd_numbers numbers;

  /* A constraint that the text of the whole output follows, at every place of a draft. The daemon's
   * tokenizer has the text of tokens, or specd_options.tokenizer does. An EOS or stop id is allowed
   * exactly where the text may end. Where the text is complete and cannot go on, the sequence
   * finishes by itself. */
  uint32_t grammar_kind;       /* SPECD_GRAMMAR_...; default NONE */
  uint32_t grammar_whitespace; /* SPECD_WHITESPACE_...; default FLEXIBLE */
  uint32_t grammar_lenient;    /* 0 or 1; default 0: a schema with a part that cannot be enforced is
                                  refused. 1: specd drops that part, and
                                  specd_opening_warnings names it */
  /* 0 or 1; default 0: where the model profile has a reasoning_end, the constraint begins after
   * that text. 1: it holds from the first token on. */
  uint32_t grammar_in_reasoning;
  uint32_t grammar_key_order; /* SPECD_KEY_ORDER_...; default SCHEMA */
  const char* grammar;        /* the text of the constraint, UTF-8, at most 4 MiB */
  uint64_t grammar_bytes;     /* default 0 = a NUL ends the text */

  /* Stop patterns: at most 64, regular expressions without ^, $ and lookarounds. They end the text
   * as stop strings do, at the first byte where one of either completes; of two at one byte a
   * string comes first. From each place the shortest match counts. A pattern that matches the empty
   * text is refused, and so is one whose match may be longer than 1024 bytes. */
  specd_strings stop_regex;

  specd_floats synthetic_rates; /* of SPECD_VERIFY_SYNTHETIC: 1 .. 64 rates in 0 .. 1, by depth */
} specd_params;

SPECD_API void specd_params_init(specd_params* params);

enum {
  SPECD_PARAM_NUMBER = 0,
  SPECD_PARAM_INTEGER = 1,
  SPECD_PARAM_FLAG = 2,
  SPECD_PARAM_CHOICE = 3
};

/* A parameter that is one number. The texts are valid for the life of the library. */
typedef struct specd_param_info {
  uint32_t struct_size;    /* sizeof(specd_param_info): set it before the call */
  uint32_t type;           /* SPECD_PARAM_... */
  const char* name;        /* the name here and in specd_params.numbers */
  const char* vllm_name;   /* "": vLLM has no such parameter */
  const char* sglang_name; /* "": SGLang has no such parameter */
  const char* meaning;
  const char* range;     /* in words, such as "above 0 .. 1" */
  specd_strings choices; /* the names of a choice; the index is the value */
  double default_value;
  double minimum; /* for numbers: -INFINITY and INFINITY mean no bound */
  double maximum;
} specd_param_info;

/* Describes the parameter at `index` of those that `numbers` takes. A binding in another language
 * can walk the indices from 0 on and needs no list of its own. After the last index the answer is
 * SPECD_EMPTY. */
SPECD_API int specd_get_param_info(uint32_t index, specd_param_info* info);

/* Says why specd refuses a name that users of vLLM, SGLang or the OpenAI API know, and what to do
 * instead. With a `value` it also knows single values, such as "standard" of "verify"; NULL: the
 * name alone. For any other name the answer is NULL. The text is valid for the life of the library.
 */
SPECD_API const char* specd_refused_param(const char* name, const char* value);

/* Refuses what an embedded engine with these options would refuse when it opens a sequence, with
 * the same code and text. No engine is needed: call it where requests come in, from any thread.
 * If the options name a tokenizer, each call reads it and compiles the constraint. */
SPECD_API int specd_params_check(const specd_params* params, const specd_options* options);

typedef struct specd_sequence_info {
  uint32_t struct_size; /* sizeof(specd_sequence_info): set it in every element before the call */
  uint32_t verify;      /* GREEDY if the parameters leave no choice, otherwise as asked for */
  specd_sequence sequence;
  uint64_t seed; /* as given or as drawn */
} specd_sequence_info;

/* Opens params.n sequences, all or none. The text side names the stream by request_id: 1 .. 128
 * bytes of UTF-8 without control characters, including the "#i" of sequence i. Two open sequences
 * of one daemon may not have the same request_id. The array info has params.n elements. */
SPECD_API int specd_open_sequence(specd_engine* engine, const char* request_id,
                                  const specd_params* params, specd_sequence_info* info);

/* Returns what the constraint of the engine's last specd_open_sequence does not enforce, one
 * warning a line: parts of a schema that grammar_lenient dropped, and formats that the standard
 * does not name. There are at most 64 lines of at most 512 bytes; "..." marks a text that was cut.
 * Between specd_open in embedded mode and the first opening there is one line if the tokenizer has
 * ids past the columns of a row: those are never drawn. (A daemon writes it into its log.) The text
 * is "" if there are no warnings, after an opening that was refused, if engine is NULL, and if
 * another thread is in a call of the engine. It is valid until the next specd_open_sequence or
 * specd_close of this engine; do not free it. */
SPECD_API const char* specd_opening_warnings(specd_engine* engine);

/* Waits until a sequence that was opened with SPECD_OPEN_PENDING (batches.h) is pending no more,
 * for up to timeout_ms (0: not at all, -1: without limit). SPECD_OK: it is open, or has ended
 * since. Then specd_opening_warnings has the warnings of its constraint. SPECD_EMPTY: it is pending
 * still. Any other answer is the error that an opening without the flag would have got; the
 * sequence has failed, and its slot and its name are free once it is closed. */
SPECD_API int specd_await_opening(specd_engine* engine, specd_sequence sequence, int timeout_ms);

/* Opens a copy of a sequence in its present state: same parameters, prompt and tokens, but a seed
 * and a request_id of its own. If seed is NULL, specd draws one and reports it. The copy's text
 * goes on where the source's text had been given, and a stop string may have begun before. If the
 * source's text had ended by then, the copy ends there too. Poll for rounds of the source that are
 * in flight first; otherwise each may count before the copy or after it. */
SPECD_API int specd_fork(specd_engine* engine, specd_sequence sequence, const char* request_id,
                         const uint64_t* seed, specd_sequence_info* info);

/* Frees the slot. A sequence that has not finished is aborted. Its rounds that are still in flight
 * are answered SPECD_STATUS_UNKNOWN_SEQUENCE. */
SPECD_API int specd_close_sequence(specd_engine* engine, specd_sequence sequence);

/* Ends a sequence with SPECD_FINISH_ABORT. The tokens kept so far remain. A finished sequence does
 * not change. */
SPECD_API int specd_abort(specd_engine* engine, specd_sequence sequence);

enum {
  SPECD_FINISH_NONE = 0,
  SPECD_FINISH_STOP = 1,   /* a stop id, an EOS id, a stop string, or the end of a grammar: the text
                              is complete and cannot go on */
  SPECD_FINISH_LENGTH = 2, /* max_tokens */
  SPECD_FINISH_ABORT = 3,  /* specd_abort, or the text side no longer wants the text */
  SPECD_FINISH_ERROR = 4   /* a row without a distribution: see the status of the round */
};

enum {
  SPECD_SEQUENCE_OPEN = 0,
  SPECD_SEQUENCE_PENDING = 1, /* opened with SPECD_OPEN_PENDING, and not built yet */
  SPECD_SEQUENCE_FAILED = 2,  /* specd_await_opening gives the reason; finish_reason is ERROR. Its
                                 opening failed, or the next daemon refused it (reconnect_ms) */
  SPECD_SEQUENCE_ENDED = 3
};

typedef struct specd_sequence_state {
  uint32_t finish_reason;    /* SPECD_FINISH_... */
  uint32_t kept_tokens;      /* valid once finished: tokens beyond this number are void */
  double cumulative_logprob; /* valid once finished: as in specd_result, over these tokens. NaN
                                before */
  uint32_t phase;            /* SPECD_SEQUENCE_... */
  uint32_t reserved;
} specd_sequence_state;

/* Reports whether the sequence has ended. The call reads shared memory and is cheap enough for
 * every step. The text side may have found a stop string after the next round was submitted. It may
 * also find one in the tokens of a sequence's last round, and then moves the end that was reported
 * before: specd_sequence_final waits for its last word. If rounds find the stop strings, nothing
 * moves. */
SPECD_API int specd_get_sequence_state(specd_engine* engine, specd_sequence sequence,
                                       specd_sequence_state* state);

/* Writes the state of a sequence that has finished, and waits until nothing can move its end any
 * more, for up to timeout_ms (0: not at all, -1: without limit). Only a sequence whose
 * stop_strings the text side finds waits, usually some milliseconds. Read finish_reason and
 * kept_tokens here before the length or the reason of such a sequence is used. SPECD_EMPTY: the
 * time has passed, and the state may still move. SPECD_ERROR_STATE: the sequence has not finished.
 */
SPECD_API int specd_sequence_final(specd_engine* engine, specd_sequence sequence,
                                   specd_sequence_state* state, int timeout_ms);

/* The text of a sequence that is new since the last call. */
typedef struct specd_text {
  uint32_t struct_size;   /* sizeof(specd_text): set it before the call */
  uint32_t finish_reason; /* SPECD_FINISH_... of the sequence */
  const char* text;     /* valid UTF-8, whole code points, without text that may still become a stop
                           string; a 0 byte follows the last one. "" if there is none */
  uint64_t size_bytes;  /* of text; it may have 0 bytes inside */
  uint64_t byte_offset; /* of text in the whole text of the sequence, which begins after
                           output_ids, or where a copy was made */
  uint64_t token_offset; /* output tokens, output_ids included, before those of ends */
  /* For each token that was kept since the last call: the size in bytes of the sequence's text
   * after that token, with text that is held back. A stop string that ends the text with one of
   * these tokens bounds them; cut those of earlier calls at the size of the whole text. */
  const uint64_t* ends;
  uint32_t num_tokens;     /* of ends */
  int32_t stop_index;      /* of the stop that ended the text: in stop_strings, followed by
                              stop_regex; -1: none */
  const char* stop_string; /* the same as text; NULL: none */
  /* If the model has a reasoning_end, an output begins with a thought, unless the prompt closed it.
   * The end marker is of the thought. */
  uint64_t reasoning_bytes;  /* of text, at its front: those of the thought */
  uint64_t reasoning_tokens; /* of all output tokens, output_ids included */
} specd_text;

/* Reads the text that an embedded engine's rounds have made of a sequence with stop_strings, or
 * with stops = inline (specd_params.numbers), since the last call. Call it after a round, or once
 * at the end: nothing is lost between. A second call before the sequence's next round gives the
 * same text again. An end that came from outside a round, such as specd_abort, brings what was held
 * back. The pointers are valid until the sequence's next round or end. SPECD_ERROR_STATE: the
 * sequence's rounds make no text. SPECD_ERROR_UNSUPPORTED: the engine is attached; a daemon
 * publishes the text.
 */
SPECD_API int specd_sequence_text(specd_engine* engine, specd_sequence sequence, specd_text* text);

/* The bytes that a token adds to a text, as of an id among the scores of a result: they may be a
 * part of a character, and a 0 byte follows the last one in no case. An id without text has 0
 * bytes. The pointer is valid as long as the engine is. SPECD_ERROR_UNSUPPORTED: the engine is
 * attached, or has no tokenizer. May be called while a round runs. */
SPECD_API int specd_token_bytes(specd_engine* engine, int32_t id, const char** bytes,
                                uint64_t* size_bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_SEQUENCES_H_ */
