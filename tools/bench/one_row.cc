#include "tools/bench/one_row.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace specd::bench {

absl::Status BindOneRow(Session* session, TokenId best) {
  std::vector<float> row(session->options().limits.vocab_size);
  row[static_cast<size_t>(best)] = 100;
  const uint64_t size_bytes = row.size() * sizeof(float);
  UniqueFd fd(memfd_create("row", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (write(fd.get(), row.data(), size_bytes) != static_cast<ssize_t>(size_bytes) ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return absl::InternalError("the row of a scene has no memory");
  }
  const absl::StatusOr<uint32_t> region = session->RegisterRegion(std::move(fd), size_bytes);
  if (!region.ok()) return region.status();
  TensorSpec spec;
  spec.num_rows = 1;
  return session->Bind(TensorRole::kTargetRows, *region, spec);
}

}  // namespace specd::bench
