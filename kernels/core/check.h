// SPECD_CHECK stops the process for a condition that only our own code can break. The check is
// always on.
//
// If an outsider can cause the error (a bad file, message or parameter), return an absl::Status
// instead. A failed check prints the condition and the place, and aborts. A program that continued
// would hand out tokens that may be wrong. Usable on host and device.
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

// A loop over an array that must stay in a GPU's registers is unrolled, because registers have no
// variable index. SPECD_NO_UNROLL keeps a loop a loop.
#if defined(__CUDA_ARCH__)
#define SPECD_UNROLL _Pragma("unroll")
#define SPECD_NO_UNROLL _Pragma("unroll 1")
#else
#define SPECD_UNROLL
#define SPECD_NO_UNROLL
#endif

namespace specd::internal {

#if !defined(__CUDA_ARCH__)
[[noreturn]] __attribute__((always_inline)) inline void CheckFailed(const char* condition,
                                                                    const char* file, int line) {
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
