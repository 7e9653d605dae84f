// Reading memory that another process may change at any moment.
//
// What was checked must be what is used, so every word or record of a peer is copied to private
// memory once, and the compiler must not fetch it again from where it came. These two functions are
// the only way in which ipc reads what a peer wrote, but for the atomics of rings and doorbells.
// They do not synchronize: an acquire load of the sequence number has come before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace specd {

template <class Word>
Word ReadOnce(const Word& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

inline void CopyOnce(void* to, const void* from, size_t size_bytes) {
  if (size_bytes == 0) return;
  std::memcpy(to, from, size_bytes);
  // From here on the compiler must assume that `from` has changed, so it cannot read it a second
  // time in place of the copy.
  asm volatile("" : : "r"(to), "r"(from) : "memory");
}

}  // namespace specd
