/* ranks.h: ranks of an engine that are processes of their own.
 * Part of <specd/specd.h>. */
#ifndef SPECD_RANKS_H_
#define SPECD_RANKS_H_

#include "specd/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_RANKS_H_ */
