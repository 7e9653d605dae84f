// ReadOnce and CopyOnce read memory that another process may change at any moment.
//
// The reader must use the value that it checked. It therefore copies every word or record of a peer
// to private memory once. The compiler must not fetch the value again from its source. ipc reads a
// peer's memory only through these two functions and through the atomics of rings and doorbells.
// The functions do not synchronize. REQUIRES: an acquire load of the sequence number came before.
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
  // The compiler must assume that `from` has changed here. It therefore cannot read `from` a second
  // time in place of the copy.
  asm volatile("" : : "r"(to), "r"(from) : "memory");
}

}  // namespace specd
