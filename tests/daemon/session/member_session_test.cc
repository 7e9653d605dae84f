// A rank's place in a session when memory runs out. Every operator new of this program can be made
// to fail once.
#include "daemon/session/member_session.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <new>

#include "tests/support/session_fixture.h"

namespace {
// The number of this thread's allocations that still succeed before one fails; below 0 all succeed.
thread_local int allocations_left = -1;
}  // namespace

// GCC takes a free() of what operator new gave for a mistake once both are inlined.
__attribute__((noinline)) void* operator new(size_t size_bytes) {
  void* const memory =
      allocations_left < 0 || allocations_left-- > 0 ? std::malloc(size_bytes) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void* operator new(size_t size_bytes, const std::nothrow_t&) noexcept {
  return std::malloc(size_bytes);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("ranks: a join that finds no memory takes no place") {
    SessionFixture f;
    const auto token = f.session->ranks().MakeToken();
    REQUIRE(token.ok());
    int num_failed = 0;
    for (bool has_joined = false; !has_joined; ++num_failed) {
      REQUIRE(num_failed < 100);
      allocations_left = num_failed;
      try {
        has_joined = MemberSession::Join(f.session, *token, 3).ok();
      } catch (const std::bad_alloc&) {
      }
      allocations_left = -1;
      // After any failure the place is free.
      const auto next = MemberSession::Join(f.session, *token, 3);
      CAPTURE(num_failed);
      REQUIRE(next.ok());
      // While a rank has the place, it is not free.
      CHECK_FALSE(MemberSession::Join(f.session, *token, 3).ok());
    }
    CHECK(num_failed > 1);  // at least one allocation failed
  }
}

}  // namespace
}  // namespace specd
