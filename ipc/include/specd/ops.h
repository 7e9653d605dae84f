/* ops.h: the sampling functions of specd without an engine. Rows in, probabilities or ids out.
 *
 * The same bodies that verify drafts, called on rows that lie anywhere in this process: for a
 * sampler of your own, for tests, for what the sampling modules of FlashInfer and sgl-kernel are
 * used for. The results are those of a sequence with the same parameters, bit for bit: ids that tie
 * are ordered by id, exactly k survive top_k, and a row that has no distribution is a status and
 * never a silent token.
 *
 *   specd_rows rows;
 *   specd_rows_init(&rows);
 *   rows.data = logits; rows.num_rows = 4; rows.vocab_size = 32000;
 *   specd_sampling sampling;
 *   specd_sampling_init(&sampling);
 *   sampling.top_k.items = &k; sampling.seed.items = seeds; sampling.seed.stride = 1;
 *   specd_sample(&rows, &sampling, ids, NULL);
 *
 * Every function reads num_indices rows (indices NULL: all num_rows), writes one result for each in
 * that order, and returns SPECD_OK; statuses[i] (statuses may be NULL) is SPECD_STATUS_OK, or
 * SPECD_STATUS_BAD_DISTRIBUTION where row i holds NaN or no mass: its probabilities are all NaN,
 * its id is -1. Errors are those of specd.h; after one nothing has been written.
 *
 * Threads: any; a call works on the thread that makes it.
 */
#ifndef SPECD_OPS_H_
#define SPECD_OPS_H_

#include "specd/specd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct specd_rows {
  uint32_t struct_size;
  uint32_t vocab_size; /* columns, 1 .. 2^20; required */
  const void* data;    /* of row 0, aligned to an element */
  uint64_t num_rows;   /* 1 .. 2^31 - 1 */
  uint64_t row_stride; /* in elements, >= vocab_size; default 0 = vocab_size */
  uint32_t dtype;      /* SPECD_FLOAT32, ... */
  uint32_t kind; /* SPECD_LOGITS, ...; of SPECD_FINAL_PROBABILITIES nothing may change a row */
  float scale;   /* as in specd_tensor; default 1 */
  float cap;     /* default 0 */
  uint32_t renormalise;    /* 0 or 1; default 0 */
  uint32_t reserved;       /* 0 */
  const uint32_t* indices; /* num_indices rows, repeated or in any order; NULL: all */
  uint64_t num_indices;
} specd_rows;

SPECD_API void specd_rows_init(specd_rows* rows);

/* A parameter of each result: items[i * stride] belongs to result i. stride 0: one value for all;
 * 1: one each. items NULL: the default for all. */
typedef struct specd_row_doubles {
  const double* items;
  uint64_t stride;
} specd_row_doubles;
typedef struct specd_row_ints {
  const int32_t* items;
  uint64_t stride;
} specd_row_ints;
typedef struct specd_row_words {
  const uint64_t* items;
  uint64_t stride;
} specd_row_words;

/* out: vocab_size floats for each result, one row after another without gaps. */

/* Probabilities. temperature: 1e-5 and up, default 1. */
SPECD_API int specd_softmax(const specd_rows* rows, specd_row_doubles temperature, float* out,
                            uint32_t* statuses);

/* Probabilities, 0 outside the k best ids. top_k <= 0 or >= vocab_size: all stay. */
SPECD_API int specd_top_k_renorm(const specd_rows* rows, specd_row_ints top_k, float* out,
                                 uint32_t* statuses);

/* Probabilities, 0 outside the shortest prefix of the sorted ids whose mass reaches top_p, above 0
 * .. 1. */
SPECD_API int specd_top_p_renorm(const specd_rows* rows, specd_row_doubles top_p, float* out,
                                 uint32_t* statuses);

/* The elements themselves, -inf outside the k best ids. */
SPECD_API int specd_top_k_mask(const specd_rows* rows, specd_row_ints top_k, float* out,
                               uint32_t* statuses);

/* ids[i]: of the greatest element, the lowest on a tie. */
SPECD_API int specd_argmax(const specd_rows* rows, int32_t* ids, uint32_t* statuses);

typedef struct specd_sampling {
  uint32_t struct_size;
  uint32_t filter_order;         /* SPECD_FILTERS_...; default SEQUENTIAL: min_p, top_k, top_p */
  specd_row_doubles temperature; /* 0 and up, default 1; below 1e-5 is greedy */
  specd_row_doubles top_p;       /* above 0 .. 1, default 1 = off */
  specd_row_doubles min_p;       /* 0 .. 1, default 0 = off */
  specd_row_ints top_k;          /* default 0 = off; 1 is greedy */
  specd_row_words seed;          /* required unless every row is greedy */
  specd_row_words position;      /* below 2^32; default i. The coin depends on seed and position
                                    alone: it is that of a sequence's output token `position` */
} specd_sampling;

SPECD_API void specd_sampling_init(specd_sampling* sampling);

/* ids[i]: drawn from row i. */
SPECD_API int specd_sample(const specd_rows* rows, const specd_sampling* sampling, int32_t* ids,
                           uint32_t* statuses);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_OPS_H_ */
