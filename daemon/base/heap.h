// KeepFreedMemory makes the heap of a process keep what it has freed, for processes that take and
// free megabytes again and again.
//
// A text side that catches up takes a megabyte for each page of an answer. Otherwise the heap gives
// each back to the kernel, and a third of the time goes into fetching the pages of memory anew. Up
// to 16 MiB stay. Call it before there are threads.
#pragma once

#include <malloc.h>

namespace specd {

inline void KeepFreedMemory() {
  // Either of them alone would stop the heap from raising the other.
  (void)mallopt(M_MMAP_THRESHOLD, 8 << 20);
  (void)mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

}  // namespace specd
