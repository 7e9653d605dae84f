#include "ipc/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "ipc/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::Status RegionError(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_REGION, field, text);
}

absl::Status Invalid(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field, text);
}

}  // namespace

absl::StatusOr<Region> Region::Import(UniqueFd fd, uint64_t size_bytes) {
  if (size_bytes < 1 || size_bytes > kRegionBytesMax) {
    return Invalid("size_bytes", fmt::format("size_bytes = {} is outside 1..{}; import the bytes "
                                             "that hold rows",
                                             size_bytes, kRegionBytesMax));
  }
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return RegionError("fd",
                       "fd is not a file in memory; pass a memfd (memfd_create with "
                       "MFD_ALLOW_SEALING)");
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) {
    return RegionError("fd",
                       "fd is an ordinary file and cannot be sealed; pass a memfd "
                       "(memfd_create with MFD_ALLOW_SEALING)");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return RegionError("fd",
                       "fd is not sealed: it could be truncated under the daemon; add "
                       "F_SEAL_SHRINK with fcntl(fd, F_ADD_SEALS, ...) (shm_open files "
                       "cannot be sealed, use a memfd)");
  }
  // Asked again now that the file can no longer shrink: between the first answer and the seal an
  // engine could have cut it, and reading past the end would be a SIGBUS.
  if (fstat(fd.get(), &info) != 0) return RegionError("fd", "fd cannot be examined");
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  if (file_bytes < size_bytes) {
    return RegionError("size_bytes", fmt::format("size_bytes = {} but the file holds {} bytes; "
                                                 "allowed is 1..{}, or enlarge it with ftruncate "
                                                 "before sealing",
                                                 size_bytes, file_bytes, file_bytes));
  }
  // Whole blocks: a mapping of huge pages can only be unmapped in whole huge pages.
  const auto block_bytes = static_cast<uint64_t>(info.st_blksize);
  const uint64_t map_bytes = (size_bytes + block_bytes - 1) / block_bytes * block_bytes;
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd.get(), map_bytes, MapAccess::kReadOnly);
  if (!mapping.ok()) return mapping.status();
  return Region(*std::move(mapping), size_bytes);
}

absl::StatusOr<TensorView> BindTensor(const Region& region, const TensorSpec& spec,
                                      int32_t vocab_size) {
  if (spec.dtype > static_cast<uint32_t>(DType::kFloat16)) {
    return Invalid("dtype", fmt::format("dtype = {} is unknown; allowed are 0 (float32), "
                                        "1 (bfloat16), 2 (float16)",
                                        spec.dtype));
  }
  const auto dtype = static_cast<DType>(spec.dtype);
  const auto element_bytes = static_cast<uint64_t>(SizeBytes(dtype));
  const auto row_elements = static_cast<uint64_t>(vocab_size);
  if (spec.num_rows < 1 || spec.num_rows > kTensorRowsMax) {
    return Invalid("num_rows",
                   fmt::format("num_rows = {} is outside 1..{}", spec.num_rows, kTensorRowsMax));
  }
  if (spec.offset_bytes % element_bytes != 0) {
    return Invalid("offset_bytes", fmt::format("offset_bytes = {} is no multiple of {}, the size "
                                               "of an element; align row 0",
                                               spec.offset_bytes, element_bytes));
  }
  const uint64_t row_stride = spec.row_stride == 0 ? row_elements : spec.row_stride;
  if (row_stride < row_elements || row_stride > kRegionBytesMax) {
    return Invalid("row_stride", fmt::format("row_stride = {} is outside {}..{} elements; rows may "
                                             "not overlap, so it is at least vocab_size (or 0 for "
                                             "vocab_size)",
                                             row_stride, row_elements, kRegionBytesMax));
  }
  // At most 2^31 * 2^40 * 4 + 2^22 + 2^64 bytes: far inside 128 bits.
  using Wide = unsigned __int128;
  const Wide span_bytes =
      (Wide{spec.num_rows - 1} * row_stride + row_elements) * Wide{element_bytes};
  if (Wide{spec.offset_bytes} + span_bytes > Wide{region.size_bytes()}) {
    const uint64_t row_bytes = row_elements * element_bytes;
    const uint64_t room_bytes =
        spec.offset_bytes < region.size_bytes() ? region.size_bytes() - spec.offset_bytes : 0;
    const uint64_t fit =
        room_bytes < row_bytes ? 0 : (room_bytes - row_bytes) / (row_stride * element_bytes) + 1;
    return RegionError(
        fit == 0 ? "offset_bytes" : "num_rows",
        fmt::format("offset_bytes = {}, num_rows = {}, row_stride = {}: the last row ends past the "
                    "region of {} bytes; from this offset it holds {} rows of {} bytes. Bind fewer "
                    "rows or allocate more",
                    spec.offset_bytes, spec.num_rows, row_stride, region.size_bytes(), fit,
                    row_bytes));
  }
  return TensorView{static_cast<const char*>(region.data()) + spec.offset_bytes, dtype,
                    static_cast<int64_t>(spec.num_rows), static_cast<int64_t>(row_stride),
                    vocab_size};
}

}  // namespace specd
