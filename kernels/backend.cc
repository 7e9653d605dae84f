#include "kernels/backend.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/core/check.h"

namespace specd {

namespace {

absl::Status NoGraphs(const Backend& backend) {
  return absl::UnimplementedError(
      fmt::format("backend \"{}\" runs no rounds inside a graph; submit them, or use \"cuda\"",
                  backend.name()));
}

}  // namespace

absl::Status Backend::ReadDraftTokens(const TokenRows& rows, std::span<const TokenRowRead> reads) {
  SPECD_CHECK(rows.space == MemorySpace::kHost);
  for (const TokenRowRead& read : reads) {
    const volatile TokenId* const from = rows.ids + read.slot * rows.row_stride;
    for (int32_t i = 0; i < read.num_ids; ++i) read.to[i] = from[i];
  }
  return absl::OkStatus();
}

absl::Status Backend::MarkDrafts(void*) {
  return absl::UnimplementedError(fmt::format(
      "backend \"{}\" has no device, so no CUDA stream writes draft tokens for it; verify rounds "
      "without marks, or open the engine with embedded:cuda",
      name()));
}

absl::Status Backend::FollowStream(void*) {
  return absl::UnimplementedError(fmt::format(
      "backend \"{}\" follows no CUDA stream; wait for the stream and leave cuda_stream "
      "NULL, or name the GPU in rows.device",
      name()));
}

absl::Status Backend::ReadMemory(std::span<const MemoryRead> reads) {
  for (const MemoryRead& read : reads) std::memcpy(read.to, read.from, read.size_bytes);
  return absl::OkStatus();
}

absl::Status Backend::EnqueueStaged(void*, int32_t) { return NoGraphs(*this); }
absl::Status Backend::Stage(const RoundBatch&) { return NoGraphs(*this); }
absl::StatusOr<bool> Backend::Collect() { return NoGraphs(*this); }

}  // namespace specd
