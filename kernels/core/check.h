// SPECD_CHECK: an assertion that is always on, for what only our own code can cause.
//
// What an outsider can cause (a bad file, a bad message, a bad parameter) is an absl::Status and
// never a check. A failed check prints the condition and the place and aborts, because going on
// would mean handing out tokens that nobody can vouch for. Usable on host and device.
#pragma once

#include <cstdio>
#include <cstdlib>

#if defined(__CUDACC__)
#define SPECD_HD __host__ __device__
#define SPECD_INLINE __host__ __device__ __forceinline__
#else
#define SPECD_HD
#define SPECD_INLINE inline __attribute__((always_inline))
#endif

// Before a loop whose array must stay in a GPU's registers: they have no variable index. And before
// one that is to stay a loop.
#if defined(__CUDA_ARCH__)
#define SPECD_UNROLL _Pragma("unroll")
#define SPECD_NO_UNROLL _Pragma("unroll 1")
#else
#define SPECD_UNROLL
#define SPECD_NO_UNROLL
#endif

namespace specd::internal {

#if !defined(__CUDA_ARCH__)
[[noreturn]] inline void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}
#endif

}  // namespace specd::internal

#if defined(__CUDA_ARCH__)
#define SPECD_CHECK(condition)  \
  do {                          \
    if (!(condition)) __trap(); \
  } while (false)
#else
#define SPECD_CHECK(condition)                                        \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::specd::internal::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
#endif
