#include "kernels/cuda/device_reader.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace specd {

GpuResult DeviceReader::ReadTokens(const TokenRows& rows, std::span<const TokenRowRead> reads,
                                   int32_t max_draft, int32_t max_reads) const {
  const auto most = static_cast<size_t>(max_reads);
  GpuResult result = GpuResult::Ok();
  for (size_t done = 0; done < reads.size() && result.ok(); done += most) {
    result = ReadSome(rows, reads.subspan(done, std::min(most, reads.size() - done)), max_draft);
  }
  return result;
}

GpuResult DeviceReader::ReadSome(const TokenRows& rows, std::span<const TokenRowRead> reads,
                                 int32_t max_draft) const {
  answers_->Clear();
  const auto width = static_cast<size_t>(max_draft);
  TokenId* const pinned = answers_->Take<TokenId>(static_cast<int64_t>(reads.size() * width)).host;
  SPECD_CHECK(!answers_->full());
  GpuResult result = GpuResult::Ok();
  for (size_t i = 0; i < reads.size() && result.ok(); ++i) {
    SPECD_CHECK(reads[i].num_ids >= 0 && reads[i].num_ids <= max_draft);
    if (reads[i].num_ids == 0) continue;
    result = driver_->ToHost(pinned + i * width, rows.ids + reads[i].slot * rows.row_stride,
                             static_cast<size_t>(reads[i].num_ids) * sizeof(TokenId));
  }
  // Needed even after an error: copies may still run.
  const GpuResult copied = driver_->Synchronize();
  if (result.ok()) result = copied;
  if (!result.ok()) return result;
  for (size_t i = 0; i < reads.size(); ++i) {
    std::copy_n(pinned + i * width, reads[i].num_ids, reads[i].to);
  }
  return result;
}

GpuResult DeviceReader::Read(std::span<const MemoryRead> reads) const {
  GpuResult result = GpuResult::Ok();
  for (const MemoryRead& read : reads) {
    if (result.ok()) result = driver_->ToHost(read.to, read.from, read.size_bytes);
  }
  // Needed even after an error: copies may still run.
  const GpuResult copied = driver_->Synchronize();
  return result.ok() ? copied : result;
}

}  // namespace specd
