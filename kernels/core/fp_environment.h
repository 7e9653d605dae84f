// FpEnvironment gives floating point its IEEE 754 meaning for one scope of a CPU thread.
//
// A library built with -ffast-math turns denormals off for the whole process when it is loaded. A
// host program may change the rounding mode. Either would change tokens. Put an FpEnvironment on
// the stack before a call of kernel bodies on a CPU. The constructor sets the calling thread's
// MXCSR to the IEEE 754 default (round to nearest, denormals on, exceptions masked), and the
// destructor restores the old word. Compilers do not order arithmetic with respect to control
// registers. The work must therefore be in a function that the compiler cannot inline. On
// processors other than x86 the class does nothing.
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
