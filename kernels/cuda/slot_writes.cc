#include "kernels/cuda/slot_writes.h"

#include <algorithm>

namespace specd {

SlotWrites::SlotWrites(const RoundBatch& batch, int32_t first, int32_t count, Arena* arena)
    : batch_(batch), arena_(arena), places_(arena->Take<Place>(count).host) {
  SPECD_CHECK(!arena->full());
  for (int32_t task = first; task < first + count; ++task) {
    if (WritesSlot(batch, task)) places_[count_++] = {batch.tasks[task].slot, task};
  }
  std::sort(places_, places_ + count_,
            [](const Place& a, const Place& b) { return a.slot < b.slot; });
}

void SlotWrites::Store(const SlotOutput& output) const {
  for (int32_t i = 0; i < count_; ++i) {
    WriteSlotRowOf(batch_, places_[i].task, output, RowOf(output, places_[i].slot));
  }
}

GpuResult SlotWrites::Copy(const SlotOutput& output, GpuDriver* driver) const {
  const int64_t row_bytes = output.row_length * ElementBytes(output);
  char* const rows = arena_->Take<char>(count_ * row_bytes).host;
  SPECD_CHECK(!arena_->full());
  for (int32_t i = 0; i < count_; ++i) {
    WriteSlotRowOf(batch_, places_[i].task, output, rows + i * row_bytes);
  }
  GpuResult result = GpuResult::Ok();
  for (int32_t begin = 0; begin < count_ && result.ok();) {
    int32_t end = begin + 1;
    while (end < count_ && IsJoined(output, end - 1)) ++end;
    result = driver->ToDevice(RowOf(output, places_[begin].slot), rows + begin * row_bytes,
                              static_cast<size_t>((end - begin) * row_bytes));
    begin = end;
  }
  return result;
}

bool SlotWrites::IsJoined(const SlotOutput& output, int32_t i) const {
  return output.row_stride == output.row_length && places_[i + 1].slot == places_[i].slot + 1;
}

}  // namespace specd
