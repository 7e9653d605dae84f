#include "daemon/client/sealed_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

absl::StatusOr<UniqueFd> MakeSealedMemory(uint64_t size_bytes) {
  UniqueFd fd(memfd_create("specd-rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return MakeErrnoError(SPECD_ERROR_EXHAUSTED, "size_bytes", "no shared memory", errno);
  }
  // fallocate takes the pages now: a full machine is an error here and not a SIGBUS later.
  const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(size_bytes));
  if (error != 0) {
    return MakeErrnoError(SPECD_ERROR_EXHAUSTED, "size_bytes",
                          fmt::format("size_bytes = {} of shared memory", size_bytes), error);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return MakeErrnoError(SPECD_ERROR_INTERNAL, "size_bytes", "sealing", errno);
  }
  return fd;
}

absl::StatusOr<UniqueFd> CopySealed(int fd, uint64_t offset_bytes, uint64_t size_bytes) {
  absl::StatusOr<UniqueFd> copy = MakeSealedMemory(size_bytes);
  if (!copy.ok()) return copy.status();
  std::vector<char> bytes(size_bytes);
  const auto size = static_cast<ssize_t>(size_bytes);
  if (pread(fd, bytes.data(), size_bytes, static_cast<off_t>(offset_bytes)) != size ||
      pwrite(copy->get(), bytes.data(), size_bytes, 0) != size) {
    return MakeErrnoError(SPECD_ERROR_REGION, "region", "the memory could not be copied", errno);
  }
  return copy;
}

}  // namespace specd
