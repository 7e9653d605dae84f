// GuardedBytes is memory for tests around which nothing may be read or written.
//
// The memory ends `gap_bytes` before the end of a page. Every build notices an access after the
// page. Only AddressSanitizer notices an access to the gap, or before the memory.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include <cstddef>

namespace specd {

class GuardedBytes {
 public:
  explicit GuardedBytes(size_t size_bytes, size_t gap_bytes = 0) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t used = (size_bytes + gap_bytes + page - 1) / page * page;
    mapped_ = used + page;
    base_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(base_ != MAP_FAILED);
    REQUIRE(mprotect(base_ + used, page, PROT_NONE) == 0);
    data_ = base_ + used - gap_bytes - size_bytes;
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(base_, used - gap_bytes - size_bytes);
    __asan_poison_memory_region(data_ + size_bytes, gap_bytes);
#endif
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(base_, mapped_);
#endif
    munmap(base_, mapped_);
  }

  char* data() const { return data_; }

 private:
  char* base_ = nullptr;
  char* data_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace specd
