/* memory.h: an engine's memory, of host and device, and the tensors in it that rounds use.
 * Part of <specd/specd.h>. */
#ifndef SPECD_MEMORY_H_
#define SPECD_MEMORY_H_

#include "specd/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_MEMORY_H_ */
