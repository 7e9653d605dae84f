// Region imports an engine's memory for the daemon; BindTensor finds the rows in it.
//
// The engine sends a memfd that holds logits rows. The daemon accepts the memfd only if it cannot
// shrink, and maps it read-only. For slot outputs the memfd is mapped once more, for writing. These
// functions do all arithmetic on an engine's numbers; their results are trusted afterwards. Any
// thread may read a region; one thread at a time may call MapForWriting.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/base/fault_guard.h"
#include "ipc/base/limits.h"
#include "ipc/base/mapping.h"
#include "ipc/base/memory_specs.h"
#include "ipc/base/unique_fd.h"
#include "kernels/core/slot_output.h"
#include "kernels/core/slot_tree.h"
#include "kernels/core/types.h"

namespace specd {

inline constexpr uint64_t kRegionBytesMax = uint64_t{1} << 40;
inline constexpr uint64_t kTensorRowsMax = (uint64_t{1} << 31) - 1;

// Memory of an engine in which rows may lie, at the address of this process or its device. Only
// slot outputs are ever written to it.
struct RowMemory {
  const void* data = nullptr;
  uint64_t size_bytes = 0;
  MemorySpace space = MemorySpace::kHost;
};

class Region {
 public:
  // If a page is missing when it is read or written, `has_faulted` becomes true and the bytes are
  // void (ipc/base/fault_guard.h). The flag outlives the region. Null: SIGBUS ends the process.
  static absl::StatusOr<Region> Import(UniqueFd fd, uint64_t size_bytes,
                                       std::atomic<bool>* has_faulted = nullptr);

  operator RowMemory() const { return {data(), size_bytes()}; }
  // The same bytes, mapped for writing at the first call.
  absl::StatusOr<RowMemory> MapForWriting();

  const void* data() const { return mapping_.data(); }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  Region(UniqueFd fd, Mapping mapping, uint64_t size_bytes, std::atomic<bool>* has_faulted);
  UniqueFd fd_;
  std::atomic<bool>* has_faulted_;
  Mapping mapping_;
  std::optional<Mapping> writable_;
  std::vector<FaultGuard> guards_;  // guards of the mappings; destroyed before them
  uint64_t size_bytes_;
};

// Returns the view, or an error that names the field. The last row must end inside the region; the
// gap after it need not. The memory must outlive the view.
absl::StatusOr<TensorView> BindTensor(const RowMemory& memory, const TensorSpec& spec,
                                      int32_t vocab_size);
absl::StatusOr<MaskView> BindMask(const RowMemory& memory, const TensorSpec& spec,
                                  int32_t vocab_size);

// Binds a row for each slot of a session with these limits, in memory that may be written.
absl::StatusOr<SlotOutput> BindSlotOutput(const RowMemory& memory, const TensorSpec& spec,
                                          SlotField field, const SessionLimits& limits);

// The role in specd.h whose first replica has this content.
std::string_view NameOf(SlotField field);

// Binds a row of at least row_ids ids for each slot, which rounds read.
absl::StatusOr<TokenRows> BindTokenRows(const RowMemory& memory, const TensorSpec& spec,
                                        uint32_t num_slots, uint32_t row_ids);

// Binds a row of row_nodes integers for each slot, which rounds read: the parents of draft tokens,
// or SGLang's lists of children.
absl::StatusOr<NodeRows> BindNodeRows(const RowMemory& memory, const TensorSpec& spec,
                                      uint32_t num_slots, uint32_t row_nodes);

// Returns an error that names the field unless all rows of num_elements lie in the region.
absl::Status CheckRowsInside(const RowMemory& memory, const TensorSpec& spec, uint64_t num_elements,
                             uint64_t element_bytes);

// Returns how the elements are read, or an error that names the field. Rows without a region use
// this too.
absl::StatusOr<ElementRules> CheckRules(const TensorSpec& spec);

}  // namespace specd
