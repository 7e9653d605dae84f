// The one main() of every test binary; doctest finds the cases.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#ifdef __SANITIZE_THREAD__
// What Debian's libraries do is not compiled for ThreadSanitizer, so that it misses what orders two
// threads there:
// - Threads share the text of an absl::Status by a count of references. ThreadSanitizer sees the
//   last thread free a text that another has read, and not the count.
// - libzmq hands the bytes of a message from the thread that sends to the thread that receives.
//   ThreadSanitizer sees both touch the bytes, and not the queue between them. The call may stand
//   in any function that the compiler has put it into, so the library is named. Where the bytes are
//   copied out of a message, no frame of the library is left.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:Status::UnrefNonInlined\n"
         "race:libzmq.so\n"
         "race:specd::ZmqSocket::\n";
}
#endif
