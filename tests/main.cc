// The one main() of every test binary; doctest finds the cases.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// Debian's libraries are not compiled for ThreadSanitizer: it does not see the counter with which
// one of them orders a last read before the release, and calls the two a race.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libabsl_status.so\ncalled_from_lib:libspdlog.so\n";
}
#endif
#endif
