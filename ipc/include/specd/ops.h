/* ops.h has the sampling functions of specd without an engine: rows in, probabilities or ids out.
 *
 * These functions run the same code that verifies drafts, on rows anywhere in this process: rows in
 * the memory of a GPU are read there, and the call's work runs on that GPU. Use
 * them for a sampler of your own, for tests, and in place of the sampling modules of FlashInfer and
 * sgl-kernel. Probabilities, cuts and draws are those of a sequence with the same parameters, bit
 * for bit; the coins of specd_sample are its own. Ids that tie are ordered by id, and exactly k
 * survive top_k. A row that has no distribution is a status
 * and never a silent token.
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
 * that order, and returns SPECD_OK. statuses may be NULL. Otherwise statuses[i] is SPECD_STATUS_OK,
 * or SPECD_STATUS_BAD_DISTRIBUTION if row i holds NaN or no mass. The probabilities of such a row
 * are all NaN, and its id is -1. The errors are those of specd.h. A call that is
 * refused has written nothing; after an error of the device the results are undefined.
 *
 * All other arrays, those of parameters and results too, are host memory. A call returns when its
 * results are there.
 *
 * Threads: any. A call on the CPU works on the thread that makes it. A thread keeps the memory of
 * the last calls for its next ones, on a GPU too.
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
  const void* data;    /* address of row 0, aligned to an element; host or device memory */
  uint64_t num_rows;   /* 1 .. 2^31 - 1 */
  uint64_t row_stride; /* in elements, >= vocab_size; default 0 = vocab_size */
  uint32_t dtype;      /* SPECD_FLOAT32, ... */
  uint32_t kind; /* SPECD_LOGITS, ...; no parameter may change rows of SPECD_FINAL_PROBABILITIES */
  float scale;   /* as in specd_tensor; default 1 */
  float cap;     /* default 0 */
  uint32_t renormalise;    /* 0 or 1; default 0 */
  uint32_t reserved;       /* 0 */
  const uint32_t* indices; /* num_indices rows, in any order, repeated or not; NULL: all */
  uint64_t num_indices;
  /* Where the call works: "cpu", "cuda", "cuda:1", or a backend of specd_load_backends. NULL
   * (default): on the GPU in whose memory the rows are, else on the CPU. A GPU takes rows of host
   * memory too, and copies them. Results do not depend on it. If this library has no CUDA, rows in
   * device memory are refused with SPECD_ERROR_UNSUPPORTED.
   *
   * A thread makes a backend for its first call on a device ("cuda" is "cuda:0"). It makes another
   * one for rows with more columns than before, after an error of the device, and if it has used
   * four other devices since. If such a call is for a GPU, no CUDA stream of the process may
   * capture meanwhile. */
  const char* device;
  /* On a GPU: a cudaStream_t of that GPU; the default one is cudaStreamLegacy, and
   * cudaStreamPerThread is that of the calling thread. The call's work comes after the work that is
   * on it. NULL (default): the rows are complete, or no GPU is used. */
  void* cuda_stream;
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

/* In the functions below `out` has vocab_size floats for each result, one row after another without
 * gaps. */

/* Writes probabilities. temperature: 1e-5 and up, default 1. */
SPECD_API int specd_softmax(const specd_rows* rows, specd_row_doubles temperature, float* out,
                            uint32_t* statuses);

/* Writes probabilities, 0 outside the k best ids. top_k <= 0 or >= vocab_size: all stay. */
SPECD_API int specd_top_k_renorm(const specd_rows* rows, specd_row_ints top_k, float* out,
                                 uint32_t* statuses);

/* Writes probabilities, 0 outside the shortest prefix of the sorted ids whose mass reaches top_p,
 * above 0 .. 1. */
SPECD_API int specd_top_p_renorm(const specd_rows* rows, specd_row_doubles top_p, float* out,
                                 uint32_t* statuses);

/* Writes the elements themselves, -inf outside the k best ids. */
SPECD_API int specd_top_k_mask(const specd_rows* rows, specd_row_ints top_k, float* out,
                               uint32_t* statuses);

/* Writes to ids[i] the id of row i's greatest element, the lowest id on a tie. */
SPECD_API int specd_argmax(const specd_rows* rows, int32_t* ids, uint32_t* statuses);

typedef struct specd_sampling {
  uint32_t struct_size;
  uint32_t filter_order;         /* SPECD_FILTERS_...; default SEQUENTIAL: min_p, top_k, top_p */
  specd_row_doubles temperature; /* 0 and up, default 1; below 1e-5 is greedy */
  specd_row_doubles top_p;       /* above 0 .. 1, default 1 = off */
  specd_row_doubles min_p;       /* 0 .. 1, default 0 = off */
  specd_row_ints top_k;          /* default 0 = off; 1 is greedy */
  specd_row_words seed;          /* required unless every row is greedy */
  specd_row_words position;      /* below 2^32; default i */
  specd_row_words round_base;    /* below 2^32; default 0 */
} specd_sampling;

/* A coin depends on seed, position and round_base alone. No coin of a sequence equals it, whatever
 * the seeds are, so specd_sample may draw the drafts of a sequence with the sequence's own seed.
 * Such a drafter sets position to the draft token's position in the output and round_base to the
 * tokens kept before the round. Otherwise the next round meets the coins of tokens that this round
 * rejected, and verify = block would no longer have the target's law (docs/CONTRACT.md, section 4).
 * A drafter that gives no position twice needs no round_base. */

SPECD_API void specd_sampling_init(specd_sampling* sampling);

/* Writes to ids[i] an id drawn from row i. */
SPECD_API int specd_sample(const specd_rows* rows, const specd_sampling* sampling, int32_t* ids,
                           uint32_t* statuses);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_OPS_H_ */
