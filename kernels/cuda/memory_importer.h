// MemoryImporter maps device memory of other processes for CudaContext, and unmaps it.
//
// There are three kinds (GpuMemoryKind): a handle, descriptors of pieces, and a pool. If a mapping
// fails halfway, Import takes back the first half. Safe from any thread, as the driver is.
#pragma once

#include "kernels/core/gpu_context.h"
#include "kernels/cuda/context_calls.h"

namespace specd {

class MemoryImporter {
 public:
  // `calls` must outlive the importer.
  explicit MemoryImporter(const ContextCalls& calls) : calls_(calls) {}

  GpuResult Import(const GpuImport& import, GpuMapping* mapping);
  GpuResult Close(const GpuMapping& mapping);

 private:
  GpuResult MapVmm(const GpuImport& import, GpuMapping* mapping);
  GpuResult MapPiece(GpuAddress address, const GpuPiece& piece);
  GpuResult CloseVmm(const GpuMapping& mapping);
  GpuResult MapPool(const GpuImport& import, GpuMapping* mapping);

  const ContextCalls& calls_;
};

}  // namespace specd
