// MakeSealedMemory makes shared memory that a daemon can map: a memfd whose size is sealed.
//
// Any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"

namespace specd {

// All pages are taken now. An error is about size_bytes.
absl::StatusOr<UniqueFd> MakeSealedMemory(uint64_t size_bytes);

// The same with a copy of the bytes of another file from offset_bytes on.
absl::StatusOr<UniqueFd> CopySealed(int fd, uint64_t offset_bytes, uint64_t size_bytes);

}  // namespace specd
