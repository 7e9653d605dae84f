#include "kernels/cuda/next_tokens.h"

#include <algorithm>

namespace specd {

NextTokens::NextTokens(const RoundBatch& batch, int32_t first, int32_t count, Arena* arena)
    : places_(arena->Take<Place>(count).host), tokens_(arena->Take<TokenId>(count).host) {
  SPECD_CHECK(!arena->full());
  for (int32_t task = first; task < first + count; ++task) {
    const TokenId* const next = NextTokenOf(batch, task);
    if (next != nullptr) places_[count_++] = {batch.tasks[task].slot, *next};
  }
  std::sort(places_, places_ + count_,
            [](const Place& a, const Place& b) { return a.slot < b.slot; });
  for (int32_t i = 0; i < count_; ++i) tokens_[i] = places_[i].token;
}

void NextTokens::Store(TokenId* ids) const {
  for (int32_t i = 0; i < count_; ++i) ids[places_[i].slot] = places_[i].token;
}

GpuResult NextTokens::Copy(TokenId* ids, GpuDriver* driver) const {
  GpuResult result = GpuResult::Ok();
  for (int32_t begin = 0; begin < count_ && result.ok();) {
    int32_t end = begin + 1;
    while (end < count_ && places_[end].slot == places_[end - 1].slot + 1) ++end;
    result = driver->ToDevice(ids + places_[begin].slot, tokens_ + begin,
                              static_cast<size_t>(end - begin) * sizeof(TokenId));
    begin = end;
  }
  return result;
}

}  // namespace specd
