/* memory.h gives specd an engine's memory, on host or device, and names the tensors in it that
 * rounds use. Part of <specd/specd.h>. */
#ifndef SPECD_MEMORY_H_
#define SPECD_MEMORY_H_

#include "specd/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct specd_region {
  uint32_t id; /* named in specd_tensor */
  void* data;  /* its address in this process, 4096-byte aligned; NULL for an imported fd. The CPU
                  cannot read device memory at this address */
  uint64_t size_bytes;
} specd_region;

/* Allocates zeroed shared memory for rows and seals it against shrinking. All of its pages are
 * taken at once. If the machine or the process's control group has fewer bytes left, the call
 * returns SPECD_ERROR_EXHAUSTED with that number, also after many small allocations. A daemon
 * counts the region among the memory of the session (--session_memory_mib). */
SPECD_API int specd_alloc(specd_engine* engine, uint64_t size_bytes, specd_region* region);

/* Imports a memfd of the caller instead. The memfd must be sealed (F_SEAL_SHRINK) and hold at least
 * size_bytes: an unsealed file could be truncated while the daemon reads it. The descriptor stays
 * the caller's. */
SPECD_API int specd_import_fd(specd_engine* engine, int fd, uint64_t size_bytes,
                              specd_region* region);

/* Imports GPU memory of this process, in place, beginning at a device pointer. The memory comes
 * from cudaMalloc, from cuMemCreate, or from cudaMallocAsync with a pool that can be exported. It
 * may consist of several neighbouring pieces of cuMemCreate, as PyTorch's expandable segments do; a
 * daemon takes up to 250 pieces. Rounds must run on the same GPU: a daemon with --device=cuda, or
 * embedded:cuda. The caller must not free, resize or unmap the memory before specd_unregister has
 * answered SPECD_OK. If the daemon dies, its mapping ends too. */
SPECD_API int specd_import_device(specd_engine* engine, uint64_t address, uint64_t size_bytes,
                                  specd_region* region);

/* Lends host memory of this process, in place: rounds read the caller's rows without a copy. Only
 * an embedded engine takes it. A daemon is another process, cannot read ordinary memory of this
 * one, and refuses with SPECD_ERROR_UNSUPPORTED. With embedded:cuda rounds copy lent rows to the
 * device, as they copy rows from specd_alloc. The memory needs no alignment beyond that of its
 * elements. The caller must not free or unmap the memory before specd_unregister has answered
 * SPECD_OK. While a round is in flight, the caller must not write rows of that round. */
SPECD_API int specd_lend(specd_engine* engine, void* data, uint64_t size_bytes,
                         specd_region* region);

/* Ends a region that any of these calls made. Memory from specd_alloc is unmapped; any other memory
 * is the caller's alone again. The answer is SPECD_ERROR_STATE while a role is bound to the region.
 * Bind the role to other memory first, or close the engine. specd_close ends all regions. If device
 * memory is among them, specd_close waits for the daemon, for at most timeout_ms. After
 * SPECD_ERROR_TIMEOUT of this function or of specd_import_device, the memory may be freed after
 * specd_close. */
SPECD_API int specd_unregister(specd_engine* engine, uint32_t region);

/* Elements of rows are floats, elements of slot outputs are integers. */
enum { SPECD_FLOAT32 = 0, SPECD_BFLOAT16 = 1, SPECD_FLOAT16 = 2, SPECD_INT32 = 3, SPECD_INT64 = 4 };

/* The kind of a row's elements. Probabilities are SPECD_FLOAT32 and sum to 1 within 1e-3. */
enum {
  SPECD_LOGITS = 0,
  SPECD_PROBABILITIES = 1,      /* specd takes ln p and then the same steps as for logits */
  SPECD_FINAL_PROBABILITIES = 2 /* specd samples from them as they are. Sequences whose parameters
                                   would change a row are refused */
};

/* The elements of SPECD_DRAFT_MAP, as specd_tensor.kind. */
enum {
  SPECD_MAP_IDS = 0,    /* the id of each column */
  SPECD_MAP_OFFSETS = 1 /* the id of each column less the column, as EAGLE-3's d2t has them */
};

enum {
  SPECD_TARGET_ROWS = 1,  /* required before the first round, unless every draft brings
                             target_argmax */
  SPECD_DRAFT_ROWS = 2,   /* only for SPECD_SAMPLED draft tokens and specd_sample_draft */
  SPECD_GRAMMAR_MASK = 3, /* int32 rows of ceil(vocab_size / 32) words: bit i % 32 of word i / 32 is
                             1 where id i is allowed */
  SPECD_DRAFT_TOKENS = 16, /* int32 ids that specd reads, for SPECD_DRAFTS_BY_SLOT; see below */
  SPECD_DRAFT_MAP = 17,    /* the ids of the columns of draft rows with fewer columns; see below */
  /* The trees of SPECD_PARENTS_BY_SLOT, SPECD_INT32 (also by default) or SPECD_INT64; see below */
  SPECD_DRAFT_PARENTS = 18,      /* max_draft wide: the parent of each node, -1 = the kept tokens */
  SPECD_DRAFT_NEXT_CHILD = 19,   /* max_draft + 1 wide: SGLang's retrieve_next_token */
  SPECD_DRAFT_NEXT_SIBLING = 20, /* max_draft + 1 wide: SGLang's retrieve_next_sibling */
  /* Slot outputs: integers that specd writes for the next forward; see below. A row is one element
   * wide unless a width is given. */
  SPECD_NEXT_TOKEN = 4,     /* the last kept token */
  SPECD_KEPT_TOKENS = 32,   /* max_path + 1 wide: the kept tokens, then -1 */
  SPECD_NUM_KEPT = 40,      /* the number of kept tokens */
  SPECD_NUM_ACCEPTED = 48,  /* the number of accepted draft tokens */
  SPECD_TOTAL_KEPT = 56,    /* the output tokens of the sequence after the round; see below */
  SPECD_ACCEPTED_PATH = 64, /* max_path wide: the draft's accepted nodes, then -1 */
  SPECD_PREDICTS = 72,      /* max_draft + 1 wide: SGLang's predicts; see below */
  SPECD_ACCEPT_INDEX = 80   /* max_path + 1 wide: SGLang's accept_index; see below */
};

/* Slot outputs hold what the next forward of an engine with a KV cache needs: the new tokens, where
 * they go, and the nodes whose entries of the cache stay. The engine binds the slot outputs that it
 * reads. The values need not pass a CPU. If a sequence gets tokens in a round, specd writes the row
 * at the sequence's slot (specd_sequence_slot) in every bound slot output, padding included. The
 * values are those of the round's specd_result.
 *
 * specd writes nothing else there. Opening and forking write nothing. A sequence that gets no token
 * (it is discarded, refused, or meets a bad row at once) keeps its row of an earlier round. Take
 * positions from SPECD_TOTAL_KEPT therefore: a sum of SPECD_NUM_KEPT would count that row twice.
 * SPECD_TOTAL_KEPT counts output tokens, output_ids of the opening included, and not the prompt:
 * the last kept token stands at position (length of the prompt) + SPECD_TOTAL_KEPT - 1. After an
 * opening and after a fork the engine writes the row of the slot itself: the slot had another
 * owner. A round that ends with SPECD_STATUS_ABORTED writes nothing, however late the daemon is, so
 * a row that the engine then writes itself stays. The row of a finished sequence has no meaning.
 * The same holds for rows left by a round that ends with SPECD_STATUS_DEVICE_ERROR and by a daemon
 * that was killed.
 *
 * dtype is SPECD_INT32 or SPECD_INT64; for SPECD_NEXT_TOKEN the default means SPECD_INT32.
 * num_rows >= max_sequences. row_stride counts elements; by default rows have no gaps, and only
 * SPECD_KEPT_TOKENS, SPECD_ACCEPTED_PATH and SPECD_ACCEPT_INDEX may have gaps, which specd does not
 * write. Memory is the host's or a device's, as for any rows. Rounds inside a CUDA graph take
 * memory of their own device only.
 *
 * A role + 1 .. + 7 is a further copy, one for each tensor-parallel rank, on any GPU or in shared
 * memory. Rank 0 binds the rows once, and specd writes all copies. Ranks that are separate
 * processes bind their copies themselves: see specd_join.
 *
 * SPECD_PREDICTS and SPECD_ACCEPT_INDEX have the layout of SGLang's verification kernels, with the
 * slot as the index of the request. The kept tokens before the round are node 0, and node i of a
 * draft is node i + 1. Entry n of a row of SPECD_PREDICTS is the token that follows node n, or -1
 * where no such token was kept. SPECD_ACCEPT_INDEX names entries of SPECD_PREDICTS, counted from
 * slot 0 on (slot * (max_draft + 1) + n): node 0, then the accepted nodes, then -1. The kept tokens
 * are the entries of SPECD_PREDICTS that it names, in order. SGLang's num_draft_tokens is
 * max_draft + 1.
 *
 * SPECD_DRAFT_MAP: A drafter with a vocabulary of its own has draft rows with fewer columns than
 * vocab_size. The map is one row of `columns` ids, SPECD_INT32 or SPECD_INT64: the id of each
 * column, each id once. q is 0 for all other ids. specd copies the map at the call, so its memory
 * may then be used for something else. A map in device memory must be complete before the call: no
 * CUDA stream may still write it. The call unbinds SPECD_DRAFT_ROWS: bind these afterwards, with
 * the same number of columns. Draft tokens are ids of the target, never columns.
 *
 * SPECD_DRAFT_TOKENS: The drafter leaves draft tokens here, on the GPU for example, and the CPU
 * need not know them. Each slot has a row: num_rows >= max_sequences. row_stride counts ids from
 * row to row; it is at least max_draft, which is also the default.
 *
 * SPECD_DRAFT_PARENTS: The drafter leaves the parents of such draft tokens beside them, a row for
 * each slot. In their place it may leave SGLang's lists, which count the kept tokens as node 0 and
 * node i of the draft as node i + 1: the first child of each node and its next sibling, or -1.
 * SPECD_DRAFT_PARENTS counts if it is bound; otherwise both lists have to be. The children of a
 * place are verified in the order of docs/CONTRACT.md, section 5, whatever the order of a list. A
 * node that no list names is no part of the draft. SGLang's retrieve_index is not needed: rows lie
 * by slot, so it would be slot * (max_draft + 1) + node. In rounds on a GPU the lists may lie in
 * memory of the device, or of the host; in rounds inside a CUDA graph they lie on the device. */

typedef struct specd_tensor {
  uint32_t struct_size;
  uint32_t region;       /* specd_region.id */
  uint32_t dtype;        /* SPECD_FLOAT32, ... */
  uint32_t kind;         /* SPECD_LOGITS, ... */
  uint64_t offset_bytes; /* of row 0, a multiple of the element size */
  uint64_t num_rows;     /* 1 .. 2^31 - 1; specd_draft names rows by index */
  /* Distance from row to row, in elements, >= columns; default 0 = columns. A mask counts
   * words of 32 bits, default 0 = ceil(vocab_size / 32). Draft tokens count ids, default 0 =
   * max_draft. Slot outputs: default 0 = the width of a row. */
  uint64_t row_stride;
  float scale;          /* > 0: logits are multiplied by it on load; default 1 */
  float cap;            /* > 0: logits then become cap * tanh(x / cap); default 0 = off */
  uint32_t renormalise; /* 0 or 1; default 0. 1: probabilities need not sum to 1 */
  uint32_t columns;     /* of a draft row, 2 .. vocab_size; default 0 = vocab_size. Fewer need a
                           SPECD_DRAFT_MAP, which has as many */
} specd_tensor; /* masks, draft tokens and slot outputs do not use kind, scale, cap, renormalise and
                   columns, and only slot outputs of these use dtype: leave the defaults */

SPECD_API void specd_tensor_init(specd_tensor* tensor);

/* Binds a tensor to a role; a later call replaces it. No round may be in flight. */
SPECD_API int specd_bind(specd_engine* engine, int role, const specd_tensor* tensor);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_MEMORY_H_ */
