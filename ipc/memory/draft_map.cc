#include "ipc/memory/draft_map.h"

#include <fmt/format.h>

#include <cstring>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

template <class Element>
int64_t ElementAt(std::span<const std::byte> bytes, int32_t column) {
  Element element;
  std::memcpy(&element, bytes.data() + static_cast<size_t>(column) * sizeof(Element),
              sizeof(Element));
  return element;
}

}  // namespace

absl::StatusOr<DraftMapView> BindDraftMap(const RowMemory& memory, const TensorSpec& spec,
                                          int32_t vocab_size) {
  if (spec.dtype != SPECD_INT32 && spec.dtype != SPECD_INT64) {
    return Invalid("dtype", fmt::format("dtype = {} of SPECD_DRAFT_MAP is neither SPECD_INT32 ({}) "
                                        "nor SPECD_INT64 ({}); set dtype to the one of its ids",
                                        spec.dtype, static_cast<uint32_t>(SPECD_INT32),
                                        static_cast<uint32_t>(SPECD_INT64)));
  }
  if (spec.kind > SPECD_MAP_OFFSETS) {
    return Invalid("kind", fmt::format("kind = {} of SPECD_DRAFT_MAP is neither SPECD_MAP_IDS ({}) "
                                       "nor SPECD_MAP_OFFSETS ({})",
                                       spec.kind, static_cast<uint32_t>(SPECD_MAP_IDS),
                                       static_cast<uint32_t>(SPECD_MAP_OFFSETS)));
  }
  if (spec.columns < 2 || spec.columns >= static_cast<uint64_t>(vocab_size)) {
    return Invalid("columns",
                   fmt::format("columns = {} of SPECD_DRAFT_MAP is outside 2 .. {}; give "
                               "the number of its ids. Draft rows with vocab_size "
                               "columns take no map",
                               spec.columns, vocab_size - 1));
  }
  const TensorSpec plain;
  if (spec.num_rows != 1 || spec.scale != plain.scale || spec.cap != plain.cap ||
      spec.renormalise) {
    return Invalid(
        "num_rows",
        "SPECD_DRAFT_MAP is one row without scale, cap or renormalise; set num_rows to 1 "
        "and leave the others at their defaults");
  }
  DraftMapView view{.space = memory.space,
                    .num_columns = static_cast<int32_t>(spec.columns),
                    .is_wide = spec.dtype == SPECD_INT64,
                    .are_offsets = spec.kind == SPECD_MAP_OFFSETS};
  const absl::Status is_inside =
      CheckRowsInside(memory, spec, spec.columns, view.size_bytes() / spec.columns);
  if (!is_inside.ok()) return is_inside;
  view.data = static_cast<const char*>(memory.data) + spec.offset_bytes;
  return view;
}

absl::StatusOr<std::vector<int32_t>> ColumnsOfMap(const DraftMapView& view,
                                                  std::span<const std::byte> copy,
                                                  int32_t vocab_size) {
  SPECD_CHECK(copy.size() == view.size_bytes());
  std::vector<int32_t> columns(static_cast<size_t>(vocab_size), -1);
  for (int32_t column = 0; column < view.num_columns; ++column) {
    const int64_t element =
        view.is_wide ? ElementAt<int64_t>(copy, column) : ElementAt<int32_t>(copy, column);
    // An id or an offset beyond the vocabulary is one outside it, and the sum cannot overflow.
    const bool is_near = element > -int64_t{vocab_size} && element < int64_t{vocab_size};
    const int64_t id = is_near && view.are_offsets ? element + column : element;
    if (!is_near || id < 0 || id >= vocab_size) {
      return Invalid("region", fmt::format("SPECD_DRAFT_MAP: column {} has {} {}, whose id is "
                                           "outside 0 .. {}; bind ids as SPECD_MAP_IDS, and ids "
                                           "less their columns as SPECD_MAP_OFFSETS",
                                           column, view.are_offsets ? "offset" : "id", element,
                                           vocab_size - 1));
    }
    int32_t& of_id = columns[id];
    if (of_id != -1) {
      return Invalid("region",
                     fmt::format("SPECD_DRAFT_MAP: columns {} and {} have the id {}; each "
                                 "id may have one column. Is the map one of offsets "
                                 "(SPECD_MAP_OFFSETS)?",
                                 of_id, column, id));
    }
    of_id = column;
  }
  return columns;
}

}  // namespace specd
