#include "speculative/sequence/sequence_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/core/check.h"

namespace specd {

SequenceTable::SequenceTable(uint32_t capacity, uint32_t owner, uint32_t generation)
    : slots_(capacity), owner_(owner) {
  SPECD_CHECK(capacity <= kSlotsMax);
  SPECD_CHECK(owner <= kHandleOwnerMax);
  SPECD_CHECK(generation <= kHandleGenerationMax);
  for (Slot& slot : slots_) slot.generation = generation;
  free_slots_.reserve(capacity);
  for (uint32_t slot = capacity; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

bool SequenceTable::CanOpenAs(SequenceHandle handle) const {
  const uint32_t index = SlotOf(handle);
  return MayHaveGivenOut(handle) && GenerationOf(handle) != 0 && index < slots_.size() &&
         !slots_[index].open && slots_[index].num_holds == 0;
}

Sequence* SequenceTable::Open(SequenceHandle handle) {
  if (handle != 0 ? !CanOpenAs(handle) : free_slots_.empty()) return nullptr;
  // Handles that are asked for come in the order of their slots, and the lowest slot is the last.
  const auto found = handle != 0
                         ? std::find(free_slots_.rbegin(), free_slots_.rend(), SlotOf(handle))
                         : free_slots_.rbegin();
  const uint32_t index = *found;
  free_slots_.erase(std::next(found).base());
  Slot& slot = slots_[index];
  slot.generation = handle != 0 ? GenerationOf(handle) : NextGeneration(slot.generation);
  slot.open = true;
  slot.sequence.handle =
      MakeHandle({.generation = slot.generation, .owner = owner_, .slot = index});
  return &slot.sequence;
}

bool SequenceTable::Close(SequenceHandle handle, Sequence* removed) {
  if (Find(handle) == nullptr) return false;
  Slot& slot = slots_[SlotOf(handle)];
  slot.open = false;
  if (slot.num_holds > 0) return true;
  if (removed != nullptr) *removed = std::move(slot.sequence);
  Free(SlotOf(handle));
  return true;
}

void SequenceTable::Free(uint32_t index) {
  slots_[index].sequence = Sequence{};  // frees its memory
  free_slots_.push_back(index);
}

void SequenceTable::Release(uint32_t index) {
  Slot& slot = slots_[index];
  SPECD_CHECK(slot.num_holds > 0);
  if (--slot.num_holds == 0 && !slot.open) Free(index);
}

Sequence* SequenceTable::Find(SequenceHandle handle) {
  const uint32_t index = SlotOf(handle);
  if (index >= slots_.size()) return nullptr;
  Slot& slot = slots_[index];
  if (!slot.open || slot.sequence.handle != handle) return nullptr;
  return &slot.sequence;
}

std::string WhyPending(SequenceHandle handle) {
  return fmt::format(
      "sequence {:#x} is pending: it is not built yet; wait with specd_await_opening, then call "
      "again",
      handle);
}

std::string WhyForeign(SequenceHandle handle) {
  // The text of the refusal begins with the field: "sequence: ".
  const std::string_view text = RefusalText(Refusal::kSequence);
  return fmt::format("sequence {:#x}: {}", handle, text.substr(text.find(' ') + 1));
}

std::string SequenceTable::WhyNotFound(SequenceHandle handle) const {
  if (MayHaveGivenOut(handle)) return fmt::format("sequence {:#x} is not open", handle);
  return WhyForeign(handle);
}

}  // namespace specd
