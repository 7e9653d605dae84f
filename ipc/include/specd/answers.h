/* answers.h has the return codes of every call and their texts, and the list of ids. Part of
 * <specd/specd.h>, which explains the return values. */
#ifndef SPECD_ANSWERS_H_
#define SPECD_ANSWERS_H_

#include <stdint.h>

#if defined(__GNUC__)
#define SPECD_API __attribute__((visibility("default")))
#else
#define SPECD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SPECD_ABI_VERSION 2u

enum {
  SPECD_OK = 0,
  SPECD_FULL = 1,  /* ring_depth rounds are in flight: poll, then submit again */
  SPECD_EMPTY = 2, /* no completion within the timeout, or no parameter at the index */

  SPECD_ERROR_INVALID_ARGUMENT = -1, /* a value outside its range, a null pointer, a wrong size */
  SPECD_ERROR_UNSUPPORTED = -2,      /* valid, but not in this version or this mode */
  SPECD_ERROR_NOT_FOUND = -3,        /* no such socket, sequence, region or tensor */
  SPECD_ERROR_PERMISSION = -4,       /* the daemon does not serve this user */
  SPECD_ERROR_VERSION = -5,          /* library and daemon speak different protocol versions */
  SPECD_ERROR_VOCABULARY = -6,       /* vocab_size does not fit the daemon's tokenizer */
  SPECD_ERROR_REGION = -7,           /* memory is too small, not sealed, or out of bounds */
  SPECD_ERROR_STATE = -8,         /* the call is not allowed now, such as specd_bind with rounds in
                                     flight */
  SPECD_ERROR_EXHAUSTED = -9,     /* a limit named at specd_open, or memory, is used up */
  SPECD_ERROR_DISCONNECTED = -10, /* the daemon is gone; rounds in flight will not complete */
  SPECD_ERROR_SHUTDOWN = -11, /* the daemon is ending: it accepts nothing new and aborts the rest */
  SPECD_ERROR_INTERNAL = -12, /* a fault in specd: please report the text */
  SPECD_ERROR_TIMEOUT = -13   /* timeout_ms passed without an answer; the engine stays attached */
};

/* The last error of the calling thread, in words, or "" if there was none. The text is valid until
 * the next call of this thread. */
SPECD_API const char* specd_last_error(void);

/* Returns "SPECD_ERROR_REGION" for -7, and so on; never NULL. */
SPECD_API const char* specd_code_name(int code);

/* "0.1.0" */
SPECD_API const char* specd_version(void);

/* The call that takes a list copies it. If count is 0, items may be NULL. */
typedef struct specd_ids {
  const int32_t* items;
  uint64_t count;
} specd_ids;
typedef struct specd_strings {
  const char* const* items; /* UTF-8 */
  uint64_t count;
} specd_strings;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SPECD_ANSWERS_H_ */
