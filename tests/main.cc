// The one main() of every test binary; doctest finds the cases.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#ifdef __SANITIZE_THREAD__
// Threads share the text of an absl::Status by a count of references. The count lies in Debian's
// library, which is not compiled for ThreadSanitizer: it sees the last thread free a text that
// another has read, and not the count that orders the two.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:Status::UnrefNonInlined\n"; }
#endif
