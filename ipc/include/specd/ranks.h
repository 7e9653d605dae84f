/* ranks.h lets ranks that are separate processes join the session of an engine. Part of
 * <specd/specd.h>. */
#ifndef SPECD_RANKS_H_
#define SPECD_RANKS_H_

#include "specd/engine.h"
#include "specd/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tensor-parallel engines run a process for each GPU. The process of rank 0 has the specd_engine,
 * and its rows decide. Every other process that needs the ids in memory of its own joins the
 * session of that engine:
 *
 *   specd_get_group          rank 0: a token, which the engine brings to the other ranks itself
 *   specd_join               rank k, with the token, to the same daemon
 *   specd_member_bind_...    rank k: the places of its slot outputs
 *   specd_leave
 *
 * After the bind every round of rank 0 writes the same there as to the role + k (SPECD_NEXT_TOKEN +
 * k), under the same rules. A round writes them before its completion is published. A round on a
 * CUDA stream writes them before that CUDA stream continues. An aborted round writes nothing.
 *
 * Rank k may read once it knows that the round has been answered. Rank 0 can tell it after
 * specd_poll. On a CUDA stream, rank k reads after a collective that rank 0's CUDA stream joins
 * after the round. A round that is running when rank k binds may write to no rank k. Wait for
 * bound_ranks before the first round that needs rank k.
 *
 * A rank that leaves or dies does not disturb the others, but a GPU that fails does, whichever rank
 * it belongs to. The rounds continue, and rank 0 sees the change only in bound_ranks. Once the
 * daemon has seen the rank go, its place is free and its memory is no longer written. If the rank
 * calls specd_leave, that is when specd_leave has answered.
 *
 * With reconnect_ms (specd_options, specd_join_options) rank 0 and the ranks outlive their daemon.
 * At the next one rank 0 waits until all slot outputs that ranks had bound are bound again, so no
 * round misses a rank. If one does not come within rank 0's reconnect_ms, counted anew, rank 0's
 * calls fail and name it. A process that is started in its place may join with the same token
 * meanwhile. Rank 0 comes in its calls: while it pauses it polls, or the ranks give up. */

typedef struct specd_group {
  /* A process that has the token may join, and with reconnect_ms may be rank 0 at the next daemon:
   * treat it as a password. Up to 64 bytes of text, the same for the life of the engine. Valid
   * until the next call of specd_get_group or specd_close. */
  const char* token;
  uint32_t bound_ranks; /* bit k: the next tokens of rank k are bound, by the engine or by a member;
                           bit 0 is SPECD_NEXT_TOKEN */
  uint32_t reserved;
} specd_group;

/* Gets the token and the bound ranks. In embedded mode the answer is SPECD_ERROR_UNSUPPORTED,
 * because other processes cannot join: bind SPECD_NEXT_TOKEN + k to memory of this process, or
 * attach to a daemon. */
SPECD_API int specd_get_group(specd_engine* engine, specd_group* group);

/* A specd_member is a rank's place in the session of another process. One thread may use it at a
 * time. */
typedef struct specd_member specd_member;

typedef struct specd_join_options {
  uint32_t struct_size;
  uint32_t rank;       /* 1 .. 7, as in SPECD_NEXT_TOKEN + rank; required */
  uint32_t timeout_ms; /* for every call that waits for the daemon, 1 .. 3600000; default 5000 */
  /* If the daemon is gone, how long the rank waits for the next one, and then for rank 0's session
   * there, in milliseconds, 0 .. 3600000. The rank then joins again with the same token and binds
   * the same memory, in a thread of the library. specd_join waits as long, if the daemon or the
   * session is not there yet. It waits for a place that is taken, and after
   * SPECD_ERROR_PERMISSION, no longer than timeout_ms. Set it for rank 0 and all others, or for
   * none. Default 0: the membership ends with its daemon. */
  uint32_t reconnect_ms;
  const char* name; /* shown in the daemon's log, up to 64 bytes; default "rank" */
} specd_join_options;

SPECD_API void specd_join_options_init(specd_join_options* options);

/* On success *member is set; free it with specd_leave. The answer is SPECD_ERROR_PERMISSION for a
 * token that is not this session's, SPECD_ERROR_NOT_FOUND for a token whose session is not here,
 * and SPECD_ERROR_STATE for one whose session has ended. It is SPECD_ERROR_STATE too if the rank
 * has joined already, or if the engine has bound the rank's role itself. If a rank has died, it may
 * join again once the daemon has seen it go: retry for a moment, or set reconnect_ms. */
SPECD_API int specd_join(const char* uri, const char* token, const specd_join_options* options,
                         specd_member** member);

/* Binds this rank's next tokens: one int32 id for each of num_rows slots, at least rank 0's
 * max_sequences. The daemon gives back memory that was bound before. The caller must not free the
 * new memory before other memory is bound or specd_leave has answered SPECD_OK. After
 * SPECD_ERROR_INTERNAL or SPECD_ERROR_DISCONNECTED either memory may be bound: free neither. A
 * daemon that does not answer within timeout_ms ends the membership. With reconnect_ms the call
 * goes on at the next daemon if its own ends meanwhile, and fails after five that do.
 *
 * specd_member_bind_device takes memory of this process on a GPU that the daemon sees, under the
 * rules of specd_import_device. The daemon needs --device=cuda. specd_member_bind_fd takes a memfd
 * under the rules of specd_import_fd, from offset_bytes on. */
SPECD_API int specd_member_bind_device(specd_member* member, uint64_t address, uint64_t num_rows);
SPECD_API int specd_member_bind_fd(specd_member* member, int fd, uint64_t size_bytes,
                                   uint64_t offset_bytes, uint64_t num_rows);

/* Binds any slot output of this rank under the same rules. role is that of the first replica
 * (SPECD_KEPT_TOKENS, ...); the rank's number is added. The tensor says dtype, offset_bytes,
 * num_rows and row_stride, as for specd_bind, and its region is 0. Bind SPECD_NEXT_TOKEN last:
 * bound_ranks then shows that all of them are there. */
SPECD_API int specd_member_bind_device_tensor(specd_member* member, int role, uint64_t address,
                                              uint64_t size_bytes, const specd_tensor* tensor);
SPECD_API int specd_member_bind_fd_tensor(specd_member* member, int role, int fd,
                                          uint64_t size_bytes, const specd_tensor* tensor);

/* Returns SPECD_OK while the session continues, and SPECD_ERROR_DISCONNECTED once the session or
 * the daemon has ended. With reconnect_ms the end of the daemon counts only once the rank has
 * waited in vain; until then its memory has to stay. The membership has then ended too, and the
 * memory is this process's alone again. One exception: a GPU may still write for a daemon that was
 * killed. If rank 0 has gone on without the rank, that is an end too. The call sends no message, so
 * it is cheap. */
SPECD_API int specd_member_check(specd_member* member);

/* Ends the membership, frees *member, and waits until specd no longer writes to its memory. After
 * SPECD_OK the memory may be freed. If timeout_ms passes without word from the daemon, the answer
 * is SPECD_ERROR_DISCONNECTED; only the end of this process makes the memory safe then. A rank that
 * is joining again at that moment takes up to five times timeout_ms. NULL is allowed. */
SPECD_API int specd_leave(specd_member* member);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_RANKS_H_ */
