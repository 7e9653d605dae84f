// FpEnvironment: makes floating point mean the same thing whatever the process did before.
//
// A library built with -ffast-math turns denormals off for the whole process when it is loaded, and
// a host program may change the rounding mode. Either would change tokens. Put one of these on the
// stack before calling kernel bodies on a CPU; it sets the calling thread's MXCSR to the IEEE 754
// default (round to nearest, denormals on, exceptions masked) and gives the old word back. The work
// itself must be behind a call the compiler cannot see through, since compilers do not order
// arithmetic with respect to control registers. No-op on processors other than x86.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace specd {

class FpEnvironment {
 public:
#if defined(__x86_64__) || defined(__i386__)
  FpEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultMxcsr); }
  ~FpEnvironment() { _mm_setcsr(saved_); }
#else
  FpEnvironment() {}
  ~FpEnvironment() {}
#endif
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
#if defined(__x86_64__) || defined(__i386__)
  static constexpr uint32_t kDefaultMxcsr = 0x1F80;
  uint32_t saved_;
#endif
};

}  // namespace specd
