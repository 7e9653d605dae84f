// DeviceReader copies memory of the device to the host for CudaBackend, after all work that was
// enqueued before.
//
// A view of the driver and of the memory for answers. Not for several threads at once.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/gpu_driver.h"
#include "kernels/core/types.h"
#include "kernels/cuda/upload_arena.h"

namespace specd {

class DeviceReader {
 public:
  // REQUIRES: the answers of the last round have been copied back.
  DeviceReader(GpuDriver* driver, AnswerArena* answers) : driver_(driver), answers_(answers) {}

  // Copies rows of ids by way of pinned memory, up to max_reads at a time. REQUIRES: as many reads
  // fit into the memory for answers with max_draft ids each, and none has more.
  GpuResult ReadTokens(const TokenRows& rows, std::span<const TokenRowRead> reads,
                       int32_t max_draft, int32_t max_reads) const;
  // Copies to any memory of the host.
  GpuResult Read(std::span<const MemoryRead> reads) const;

 private:
  GpuResult ReadSome(const TokenRows& rows, std::span<const TokenRowRead> reads,
                     int32_t max_draft) const;

  GpuDriver* driver_;
  AnswerArena* answers_;
};

}  // namespace specd
