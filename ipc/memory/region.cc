#include "ipc/memory/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmath>
#include <string>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::Status RegionError(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_REGION, field, text);
}

// The elements of a row.
struct RowShape {
  uint64_t num_elements;
  uint64_t element_bytes;
};

// Returns the stride to use, once every row is known to lie in the region.
absl::StatusOr<uint64_t> CheckBounds(const RowMemory& memory, const TensorSpec& spec,
                                     const RowShape& shape) {
  if (spec.num_rows < 1 || spec.num_rows > kTensorRowsMax) {
    return Invalid("num_rows",
                   fmt::format("num_rows = {} is outside 1..{}", spec.num_rows, kTensorRowsMax));
  }
  if (spec.offset_bytes % shape.element_bytes != 0) {
    return Invalid("offset_bytes", fmt::format("offset_bytes = {} is no multiple of {}, the size "
                                               "of an element; align row 0",
                                               spec.offset_bytes, shape.element_bytes));
  }
  const uint64_t row_stride = spec.row_stride == 0 ? shape.num_elements : spec.row_stride;
  if (row_stride < shape.num_elements || row_stride > kRegionBytesMax) {
    return Invalid("row_stride",
                   fmt::format("row_stride = {} is outside {}..{} elements; rows may not overlap, "
                               "so it is at least one row (or 0 for rows without gaps)",
                               row_stride, shape.num_elements, kRegionBytesMax));
  }
  // At most 2^31 * 2^40 * 4 + 2^22 + 2^64 bytes, which 128 bits hold easily.
  using Wide = unsigned __int128;
  const Wide span_bytes =
      (Wide{spec.num_rows - 1} * row_stride + shape.num_elements) * Wide{shape.element_bytes};
  if (Wide{spec.offset_bytes} + span_bytes > Wide{memory.size_bytes}) {
    const uint64_t row_bytes = shape.num_elements * shape.element_bytes;
    const uint64_t room_bytes =
        spec.offset_bytes < memory.size_bytes ? memory.size_bytes - spec.offset_bytes : 0;
    const uint64_t fit = room_bytes < row_bytes
                             ? 0
                             : (room_bytes - row_bytes) / (row_stride * shape.element_bytes) + 1;
    return RegionError(
        fit == 0 ? "offset_bytes" : "num_rows",
        fmt::format("offset_bytes = {}, num_rows = {}, row_stride = {}: the last row ends past the "
                    "region of {} bytes; from this offset it holds {} rows of {} bytes. Bind fewer "
                    "rows or allocate more",
                    spec.offset_bytes, spec.num_rows, row_stride, memory.size_bytes, fit,
                    row_bytes));
  }
  return row_stride;
}

absl::StatusOr<DType> CheckDType(uint32_t dtype) {
  if (dtype <= static_cast<uint32_t>(DType::kFloat16)) return static_cast<DType>(dtype);
  return Invalid("dtype", fmt::format("dtype = {} is unknown; allowed are 0 (float32), "
                                      "1 (bfloat16), 2 (float16)",
                                      dtype));
}

}  // namespace

Region::Region(UniqueFd fd, Mapping mapping, uint64_t size_bytes, std::atomic<bool>* has_faulted)
    : fd_(std::move(fd)),
      has_faulted_(has_faulted),
      mapping_(std::move(mapping)),
      size_bytes_(size_bytes) {
  if (has_faulted_ == nullptr) return;
  guards_.emplace_back(FaultGuard::Memory{mapping_.data(), mapping_.size_bytes()}, has_faulted_);
}

absl::StatusOr<Region> Region::Import(UniqueFd fd, uint64_t size_bytes,
                                      std::atomic<bool>* has_faulted) {
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
  // The size is read again now that the file can no longer shrink. An engine could have cut the
  // file between the first answer and the seal. Reading past its end would be a SIGBUS.
  if (fstat(fd.get(), &info) != 0) return RegionError("fd", "fd cannot be examined");
  const uint64_t file_bytes = info.st_size;
  if (file_bytes < size_bytes) {
    return RegionError("size_bytes", fmt::format("size_bytes = {} but the file holds {} bytes; "
                                                 "allowed is 1..{}, or enlarge it with ftruncate "
                                                 "before sealing",
                                                 size_bytes, file_bytes, file_bytes));
  }
  // Whole blocks: a mapping of huge pages can only be unmapped in whole huge pages.
  const uint64_t block_bytes = info.st_blksize;
  const uint64_t map_bytes = (size_bytes + block_bytes - 1) / block_bytes * block_bytes;
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd.get(), map_bytes, MapAccess::kReadOnly);
  if (!mapping.ok()) return mapping.status();
  return Region(std::move(fd), *std::move(mapping), size_bytes, has_faulted);
}

absl::StatusOr<RowMemory> Region::MapForWriting() {
  if (!writable_.has_value()) {
    absl::StatusOr<Mapping> mapping =
        Mapping::Map(fd_.get(), mapping_.size_bytes(), MapAccess::kReadWrite);
    if (!mapping.ok()) {
      return RegionError("region",
                         fmt::format("the region cannot be written: {}; slot outputs need memory "
                                     "from specd_alloc, or a memfd that is open for writing and "
                                     "has neither F_SEAL_WRITE nor F_SEAL_FUTURE_WRITE",
                                     std::string(mapping.status().message())));
    }
    if (has_faulted_ != nullptr) {
      guards_.emplace_back(FaultGuard::Memory{mapping->data(), mapping->size_bytes(), true},
                           has_faulted_);
    }
    writable_ = *std::move(mapping);
  }
  return RowMemory{writable_->data(), size_bytes_};
}

absl::StatusOr<ElementRules> CheckRules(const TensorSpec& spec) {
  if (spec.kind > static_cast<uint32_t>(RowKind::kFinalProbabilities)) {
    return Invalid("kind", fmt::format("kind = {} is unknown; allowed are 0 (logits), "
                                       "1 (probabilities), 2 (final probabilities)",
                                       spec.kind));
  }
  const ElementRules rules{.kind = static_cast<RowKind>(spec.kind),
                           .renormalise = spec.renormalise,
                           .scale = static_cast<float>(spec.scale),
                           .cap = static_cast<float>(spec.cap)};
  // Checked as a float, because rows are multiplied by a float.
  if (!(rules.scale > 0) || !std::isfinite(rules.scale)) {
    return Invalid("scale", fmt::format("scale = {} must be above 0 and finite; 1 leaves logits as "
                                        "they are",
                                        spec.scale));
  }
  if (!(rules.cap >= 0) || !std::isfinite(rules.cap)) {
    return Invalid("cap",
                   fmt::format("cap = {} must be 0 (no cap) or above, and finite", spec.cap));
  }
  if (rules.kind == RowKind::kLogits) {
    if (rules.renormalise) {
      return Invalid("renormalise",
                     "renormalise = true is for probabilities; logits need no sum. Leave it, or "
                     "set kind");
    }
    return rules;
  }
  if (spec.dtype != static_cast<uint32_t>(DType::kFloat32)) {
    return Invalid("dtype", fmt::format("dtype = {} with kind = {}: probabilities must be float32 "
                                        "(0); bind logits instead",
                                        spec.dtype, spec.kind));
  }
  if (rules.scale != 1 || rules.cap != 0) {
    return Invalid(rules.scale != 1 ? "scale" : "cap",
                   fmt::format("scale = {}, cap = {} apply to logits; with kind = {} they must be "
                               "1 and 0",
                               spec.scale, spec.cap, spec.kind));
  }
  return rules;
}

absl::Status CheckRowsInside(const RowMemory& memory, const TensorSpec& spec, uint64_t num_elements,
                             uint64_t element_bytes) {
  return CheckBounds(memory, spec, {num_elements, element_bytes}).status();
}

absl::StatusOr<TensorView> BindTensor(const RowMemory& memory, const TensorSpec& spec,
                                      int32_t vocab_size) {
  const uint64_t num_ids = vocab_size;
  if (spec.columns > num_ids) {
    return Invalid("columns", fmt::format("columns = {} is outside 1 .. {} (vocab_size), or 0 for "
                                          "vocab_size; a row with more columns takes a row_stride",
                                          spec.columns, vocab_size));
  }
  const bool is_narrow = spec.columns != 0 && spec.columns < num_ids;
  const absl::StatusOr<DType> dtype = CheckDType(spec.dtype);
  if (!dtype.ok()) return dtype.status();
  const absl::StatusOr<ElementRules> rules = CheckRules(spec);
  if (!rules.ok()) return rules.status();
  const absl::StatusOr<uint64_t> row_stride = CheckBounds(
      memory, spec, {is_narrow ? spec.columns : num_ids, static_cast<uint64_t>(SizeBytes(*dtype))});
  if (!row_stride.ok()) return row_stride.status();
  return TensorView{.data = static_cast<const char*>(memory.data) + spec.offset_bytes,
                    .dtype = *dtype,
                    .num_rows = static_cast<int64_t>(spec.num_rows),
                    .row_stride = static_cast<int64_t>(*row_stride),
                    .vocab_size = vocab_size,
                    .rules = *rules,
                    .space = memory.space,
                    .num_columns = is_narrow ? static_cast<int32_t>(spec.columns) : 0};
}

// A tensor of integers has one type.
absl::Status CheckPlain(const TensorSpec& spec, std::string_view what, bool has_dtype = false) {
  const TensorSpec plain;
  if ((has_dtype || spec.dtype == plain.dtype) && spec.kind == plain.kind &&
      spec.scale == plain.scale && spec.cap == plain.cap && spec.renormalise == plain.renormalise &&
      spec.columns == plain.columns) {
    return absl::OkStatus();
  }
  return Invalid("role",
                 fmt::format("{} no use for {}kind, scale, cap, renormalise or columns; leave them "
                             "at their defaults",
                             what, has_dtype ? "" : "dtype, "));
}

absl::StatusOr<MaskView> BindMask(const RowMemory& memory, const TensorSpec& spec,
                                  int32_t vocab_size) {
  if (absl::Status status = CheckPlain(spec, "a mask has"); !status.ok()) return status;
  const uint64_t num_words = (static_cast<uint64_t>(vocab_size) + 31) / 32;
  const absl::StatusOr<uint64_t> row_stride =
      CheckBounds(memory, spec, {num_words, sizeof(uint32_t)});
  if (!row_stride.ok()) return row_stride.status();
  const char* data = static_cast<const char*>(memory.data) + spec.offset_bytes;
  return MaskView{.words = reinterpret_cast<const uint32_t*>(data),
                  .num_rows = static_cast<int64_t>(spec.num_rows),
                  .row_stride = static_cast<int64_t>(*row_stride),
                  .space = memory.space};
}

absl::Status CheckSlots(const TensorSpec& spec, uint32_t num_slots, std::string_view what) {
  if (spec.num_rows >= num_slots) return absl::OkStatus();
  return Invalid("num_rows",
                 fmt::format("num_rows = {} is below max_sequences = {}; {} for each slot",
                             spec.num_rows, num_slots, what));
}

absl::StatusOr<TokenRows> BindTokenRows(const RowMemory& memory, const TensorSpec& spec,
                                        uint32_t num_slots, uint32_t row_ids) {
  if (row_ids == 0) {
    return Invalid("role",
                   "draft tokens cannot be bound with max_draft = 0: no draft has any; leave the "
                   "role unbound, or attach with a larger max_draft");
  }
  if (absl::Status status = CheckPlain(spec, "draft tokens have"); !status.ok()) return status;
  if (absl::Status status = CheckSlots(spec, num_slots, "draft tokens need a row"); !status.ok()) {
    return status;
  }
  const absl::StatusOr<uint64_t> row_stride = CheckBounds(memory, spec, {row_ids, sizeof(TokenId)});
  if (!row_stride.ok()) return row_stride.status();
  return TokenRows{
      reinterpret_cast<const TokenId*>(static_cast<const char*>(memory.data) + spec.offset_bytes),
      static_cast<int64_t>(*row_stride), memory.space};
}

absl::StatusOr<NodeRows> BindNodeRows(const RowMemory& memory, const TensorSpec& spec,
                                      uint32_t num_slots, uint32_t row_nodes) {
  const bool is_wide = spec.dtype == SPECD_INT64;
  if (!is_wide && spec.dtype != SPECD_INT32 && spec.dtype != TensorSpec{}.dtype) {
    return Invalid(
        "dtype", fmt::format("dtype = {} of parents or lists of children is neither SPECD_INT32 "
                             "({}) nor SPECD_INT64 ({}); set dtype to the one that the tensor has",
                             spec.dtype, static_cast<uint32_t>(SPECD_INT32),
                             static_cast<uint32_t>(SPECD_INT64)));
  }
  if (row_nodes == 0) {
    return Invalid("role",
                   "parents cannot be bound with max_draft = 0: no draft has any; leave the role "
                   "unbound, or attach with a larger max_draft");
  }
  if (absl::Status status = CheckPlain(spec, "parents have", true); !status.ok()) return status;
  if (absl::Status status = CheckSlots(spec, num_slots, "parents need a row"); !status.ok()) {
    return status;
  }
  const uint64_t element_bytes = is_wide ? sizeof(int64_t) : sizeof(int32_t);
  const absl::StatusOr<uint64_t> row_stride = CheckBounds(memory, spec, {row_nodes, element_bytes});
  if (!row_stride.ok()) return row_stride.status();
  return NodeRows{.data = static_cast<const char*>(memory.data) + spec.offset_bytes,
                  .is_wide = is_wide,
                  .row_stride = static_cast<int64_t>(*row_stride),
                  .space = memory.space};
}

std::string_view NameOf(SlotField field) {
  constexpr std::string_view kNames[kNumSlotFields] = {
      "SPECD_NEXT_TOKEN", "SPECD_KEPT_TOKENS",   "SPECD_NUM_KEPT", "SPECD_NUM_ACCEPTED",
      "SPECD_TOTAL_KEPT", "SPECD_ACCEPTED_PATH", "SPECD_PREDICTS", "SPECD_ACCEPT_INDEX"};
  return kNames[static_cast<size_t>(field)];
}

// The elements of a row of a slot output.
uint32_t RowLength(SlotField field, const SessionLimits& limits) {
  switch (field) {
    case SlotField::kNextToken:
    case SlotField::kNumKept:
    case SlotField::kNumAccepted:
    case SlotField::kTotalKept:
      break;
    case SlotField::kKeptTokens:
    case SlotField::kAcceptIndex:
      return limits.max_output();
    case SlotField::kAcceptedPath:
      return limits.path_max();
    case SlotField::kPredicts:
      return limits.max_draft + 1;
  }
  return 1;
}

absl::StatusOr<bool> IsWide(SlotField field, uint32_t dtype) {
  if (dtype == SPECD_INT64) return true;
  // Next tokens had no dtype once: SPECD_FLOAT32, the default, is int32 there.
  const bool has_default = field == SlotField::kNextToken && dtype == SPECD_FLOAT32;
  if (dtype == SPECD_INT32 || has_default) return false;
  return Invalid("dtype",
                 fmt::format("dtype = {} of {} is neither SPECD_INT32 ({}) nor SPECD_INT64 ({}); "
                             "set dtype to the one that the tensor has",
                             dtype, NameOf(field), static_cast<uint32_t>(SPECD_INT32),
                             static_cast<uint32_t>(SPECD_INT64)));
}

absl::StatusOr<SlotOutput> BindSlotOutput(const RowMemory& memory, const TensorSpec& spec,
                                          SlotField field, const SessionLimits& limits) {
  const absl::StatusOr<bool> is_wide = IsWide(field, spec.dtype);
  if (!is_wide.ok()) return is_wide.status();
  const std::string what = fmt::format("the elements of {} have", NameOf(field));
  if (absl::Status status = CheckPlain(spec, what, true); !status.ok()) return status;
  const uint32_t row_length = RowLength(field, limits);
  if (row_length == 0) {
    return Invalid("role", fmt::format("{} cannot be bound with max_draft = 0: no node is ever "
                                       "accepted; leave the role unbound, or attach with a larger "
                                       "max_draft",
                                       NameOf(field)));
  }
  const bool may_have_gaps = row_length > 1 && field != SlotField::kPredicts;
  if (!may_have_gaps && spec.row_stride > row_length) {
    return Invalid("row_stride", fmt::format("row_stride = {} of {} must be 0 or {}: its rows lie "
                                             "one after another",
                                             spec.row_stride, NameOf(field), row_length));
  }
  const std::string need = fmt::format("{} needs a row", NameOf(field));
  if (absl::Status status = CheckSlots(spec, limits.max_sequences, need); !status.ok()) {
    return status;
  }
  const SlotOutput shape{.field = field, .is_wide = *is_wide};
  const absl::StatusOr<uint64_t> row_stride =
      CheckBounds(memory, spec, {row_length, static_cast<uint64_t>(ElementBytes(shape))});
  if (!row_stride.ok()) return row_stride.status();
  const char* const first = static_cast<const char*>(memory.data) + spec.offset_bytes;
  // For host memory this is the address that MapForWriting gave.
  return SlotOutput{.data = const_cast<char*>(first),
                    .space = memory.space,
                    .field = field,
                    .is_wide = *is_wide,
                    .row_length = static_cast<int32_t>(row_length),
                    .row_stride = static_cast<int64_t>(*row_stride),
                    .num_nodes = static_cast<int32_t>(limits.max_draft + 1)};
}

}  // namespace specd
