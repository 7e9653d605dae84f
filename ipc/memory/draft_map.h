// BindDraftMap finds the map of narrow draft rows in an engine's memory, and ColumnsOfMap turns its
// ids into the column of each id.
//
// A drafter with a vocabulary of its own (EAGLE-3) has rows with fewer columns than the target. The
// map says which id each column belongs to (CONTRACT §2). An outsider wrote every number. Pure
// functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/base/memory_specs.h"
#include "ipc/memory/region.h"

namespace specd {

// A map in memory, which may change until it is copied.
struct DraftMapView {
  const void* data = nullptr;
  MemorySpace space = MemorySpace::kHost;
  int32_t num_columns = 0;
  bool is_wide = false;      // int64 elements
  bool are_offsets = false;  // element c is the id less c

  size_t size_bytes() const {
    return static_cast<size_t>(num_columns) * (is_wide ? sizeof(int64_t) : sizeof(int32_t));
  }
};

absl::StatusOr<DraftMapView> BindDraftMap(const RowMemory& memory, const TensorSpec& spec,
                                          int32_t vocab_size);

// The column of each of vocab_size ids, -1: none. Refuses ids outside the vocabulary, and ids of
// two columns. `copy` holds the bytes of the view.
absl::StatusOr<std::vector<int32_t>> ColumnsOfMap(const DraftMapView& view,
                                                  std::span<const std::byte> copy,
                                                  int32_t vocab_size);

}  // namespace specd
