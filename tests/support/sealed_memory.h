// SealedMemory makes shared memory of zeros that cannot shrink, as an engine registers it, for
// tests of sessions and engines. Any thread; the memory is its descriptor's and goes with it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc/base/unique_fd.h"
#include "kernels/core/check.h"

namespace specd {

inline UniqueFd SealedMemory(uint64_t size_bytes) {
  UniqueFd fd(memfd_create("specd-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  SPECD_CHECK(ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0);
  SPECD_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  return fd;
}

}  // namespace specd
