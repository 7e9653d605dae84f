/* grammar.h has the grammar engine of specd without an engine: a constraint and a tokenizer in,
 * rows of allowed ids out.
 *
 * These functions run the same code that constrains sequences (specd_params.grammar). Use them in
 * a sampler of your own, in place of libraries such as xgrammar and llguidance. A mask row has one
 * bit for each id: bit i % 32 of word i / 32 is 1 if id i may come next. It is exact: a text that
 * only ever took allowed ids can always be completed to a text of the constraint.
 *
 *   specd_tokenizer_options from;
 *   specd_tokenizer_options_init(&from);
 *   from.path = "tokenizer.json"; from.vocab_size = 128256; from.eos_token_ids = eos;
 *   specd_tokenizer_new(&from, &tokenizer);
 *   specd_grammar_options options;
 *   specd_grammar_options_init(&options);
 *   options.kind = SPECD_GRAMMAR_REGEX; options.text = "[0-9]+";
 *   specd_grammar_compile(tokenizer, &options, &grammar);
 *   specd_matcher_new(grammar, stop_ids, &matcher);
 *   specd_matcher_mask(matcher, words, (128256 + 31) / 32);   then sample an id from what is left
 *   specd_matcher_accept(matcher, id);
 *
 * Return values: SPECD_OK (0) is success. The functions that ask or try something return 1 for yes
 * and 0 for no. Negative values are the errors of specd.h; specd_last_error() then names the field,
 * the value, the range and the remedy. After an error nothing has changed, except that rows of
 * specd_fill_masks may have been written if memory ran out or a mask met a limit.
 *
 * Threads: a tokenizer and a grammar may be used by any number of threads at once, a matcher by
 * one at a time. Objects keep what they need: a grammar its tokenizer, a matcher its grammar. They
 * may therefore be freed in any order. NULL may be freed too.
 */
#ifndef SPECD_GRAMMAR_H_
#define SPECD_GRAMMAR_H_

#include "specd/specd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct specd_tokenizer specd_tokenizer;
typedef struct specd_grammar specd_grammar;
typedef struct specd_matcher specd_matcher;

/* The token with the id of its place in the array. This struct has the same size in every version.
 */
typedef struct specd_token {
  const char* bytes;   /* what the token adds to the text, any bytes */
  uint32_t size_bytes; /* 0 .. 65535; 0: an id without a text, which is never allowed */
  uint32_t special;    /* 1: control text, which no constrained text contains; 0 otherwise */
} specd_token;
typedef struct specd_tokens {
  const specd_token* items;
  uint64_t count;
} specd_tokens;

/* Give exactly one of path, json and tokens. */
typedef struct specd_tokenizer_options {
  uint32_t struct_size;
  uint32_t vocab_size;     /* columns of a row of logits, at least the ids of the tokenizer's model,
                              .. 2^20; required. Columns past the tokenizer's ids are padding and
                              never allowed. Added tokens past the columns are never drawn */
  const char* path;        /* of a file that docs/DAEMON.md, "Text", lists */
  const char* json;        /* the text of one of the JSON files */
  uint64_t json_bytes;     /* default 0 = a NUL ends the text */
  specd_tokens tokens;     /* every id's text; copied */
  specd_ids eos_token_ids; /* ids that end every text of this tokenizer, at most 64; default none */
} specd_tokenizer_options;

SPECD_API void specd_tokenizer_options_init(specd_tokenizer_options* options);

/* The call takes tens of milliseconds for a large vocabulary; share the tokenizer. */
SPECD_API int specd_tokenizer_new(const specd_tokenizer_options* options,
                                  specd_tokenizer** tokenizer);
SPECD_API void specd_tokenizer_free(specd_tokenizer* tokenizer);

typedef struct specd_grammar_options {
  uint32_t struct_size;
  uint32_t kind;       /* SPECD_GRAMMAR_..., not NONE; required */
  const char* text;    /* of the constraint, UTF-8, at most 4 MiB; SPECD_GRAMMAR_JSON_OBJECT has
                          none */
  uint64_t text_bytes; /* default 0 = a NUL ends the text */
  uint32_t whitespace; /* SPECD_WHITESPACE_...; default FLEXIBLE */
  uint32_t lenient;   /* 0 or 1; default 0: a schema with a part that cannot be enforced is refused.
                         1: the part is dropped, and a warning names it */
  uint32_t key_order; /* SPECD_KEY_ORDER_...; default SCHEMA */
} specd_grammar_options;

SPECD_API void specd_grammar_options_init(specd_grammar_options* options);

/* The tokenizer keeps what it has compiled: the same constraint again is found. */
SPECD_API int specd_grammar_compile(specd_tokenizer* tokenizer,
                                    const specd_grammar_options* options, specd_grammar** grammar);
SPECD_API void specd_grammar_free(specd_grammar* grammar);

/* The caller sets struct_size to the struct's sizeof. */
typedef struct specd_grammar_info {
  uint32_t struct_size;
  uint32_t vocab_size;
  uint64_t num_mask_words; /* of a mask row: vocab_size / 32, rounded up */
  uint64_t size_bytes;     /* of the compiled grammar now, without masks; it grows as it is used */
  specd_strings warnings;  /* what lenient dropped, and formats that the standard does not name. The
                              texts live as long as the grammar */
} specd_grammar_info;

SPECD_API int specd_get_grammar_info(const specd_grammar* grammar, specd_grammar_info* info);

/* A matcher follows one text through a grammar, from the beginning. The tokenizer's EOS ids and
 * `stop_ids` (at most 64) end the text. They are allowed exactly where the text may end, and never
 * as text. Without any, a mask has no id where the text is finished. */
SPECD_API int specd_matcher_new(const specd_grammar* grammar, specd_ids stop_ids,
                                specd_matcher** matcher);
/* Makes a matcher with the same history, which continues in its own way. */
SPECD_API int specd_matcher_fork(const specd_matcher* matcher, specd_matcher** fork);
SPECD_API void specd_matcher_free(specd_matcher* matcher);

/* Writes the row of ids that may come next; after a stop id, the stop ids. num_words is
 * num_mask_words of the grammar, no more and no less. Bits past vocab_size are 0. If the mask meets
 * a limit of the grammar engine, the answer is SPECD_ERROR_EXHAUSTED with its name
 * (docs/GRAMMARS.md, "Limits of a sequence"). */
SPECD_API int specd_matcher_mask(specd_matcher* matcher, int32_t* words, uint64_t num_words);

/* Advances over an id that the mask allows, and returns 1. For any other id it returns 0, and
 * nothing has changed. SPECD_ERROR_EXHAUSTED: a limit was met, and nothing has changed. */
SPECD_API int specd_matcher_accept(specd_matcher* matcher, int32_t id);
/* Takes back the last ids that were accepted. */
SPECD_API int specd_matcher_rollback(specd_matcher* matcher, uint64_t num_ids);
SPECD_API int specd_matcher_num_accepted(const specd_matcher* matcher, uint64_t* num_ids);

/* A stop id was accepted. */
SPECD_API int specd_matcher_is_terminated(specd_matcher* matcher);
/* The text may end here. */
SPECD_API int specd_matcher_is_accepting(specd_matcher* matcher);
/* The text may end here and cannot continue. SPECD_ERROR_EXHAUSTED: whether it can continue is not
 * known, because its mask meets a limit. */
SPECD_API int specd_matcher_is_finished(specd_matcher* matcher);

/* Sets *text to the bytes that every continuation begins with, not ended by a NUL; none where there
 * is a choice. They are valid until the next call with this matcher. */
SPECD_API int specd_matcher_forced_text(specd_matcher* matcher, const char** text,
                                        uint64_t* size_bytes);

/* Writes to `ids` at most max_ids ids that spell the beginning of the forced text, always the
 * longest token that fits. The list ends early where a longer token could reach past the end of the
 * forced text, because the model would take that one. The matcher accepts the ids one after
 * another, and does not move. They are drafts, not facts: offer them as one-hot drafts, and the
 * model judges how the text is cut into tokens. */
SPECD_API int specd_matcher_forced_tokens(specd_matcher* matcher, int32_t* ids, uint64_t max_ids,
                                          uint64_t* num_ids);

/* Where the masks of a batch go: matcher i writes row indices[i], or row i if indices is NULL. */
typedef struct specd_mask_rows {
  uint32_t struct_size;
  uint32_t threads;    /* 1 .. 16; default 0 = one for each usable CPU, at most 16. The rows do not
                          depend on it */
  int32_t* words;      /* address of row 0 */
  uint64_t num_rows;   /* rows there, 1 .. 2^31 - 1 */
  uint64_t row_stride; /* in words, >= num_mask_words; default 0 = num_mask_words */
  const uint32_t* indices;
} specd_mask_rows;

SPECD_API void specd_mask_rows_init(specd_mask_rows* rows);

/* Writes the masks of `count` matchers, each to a row of its own. Their grammars have one
 * vocab_size, and no matcher is there twice. The calling thread works too: it wakes other threads
 * once it has worked longer than waking them takes. A tokenizer keeps its threads. */
SPECD_API int specd_fill_masks(specd_matcher* const* matchers, uint64_t count,
                               const specd_mask_rows* rows);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_GRAMMAR_H_ */
