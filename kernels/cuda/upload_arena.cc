#include "kernels/cuda/upload_arena.h"

#include <fmt/format.h>

namespace specd {

void ReportNotFreed(const GpuResult& result) {
  fmt::print(stderr, "specd: freeing memory of a device: {}\n", result.text());
}

GpuResult UploadArena::Resize(GpuDriver* driver, size_t size_bytes) {
  const size_t all = sizeof(FetchHeader) + Aligned(size_bytes);
  Reset(nullptr, nullptr, 0);
  GpuResult result = host_.Allocate(driver, all);
  if (result.ok()) result = device_.Allocate(driver, all);
  if (!result.ok()) return result;
  Reset(host_.get() + sizeof(FetchHeader), device_.get() + sizeof(FetchHeader),
        all - sizeof(FetchHeader));
  Seal();
  return result;
}

void UploadArena::Clear() {
  Reset(host_.get() + sizeof(FetchHeader), device_.get() + sizeof(FetchHeader), size_bytes());
}

void UploadArena::Seal() { *header() = {.size_bytes = sizeof(FetchHeader) + used()}; }

GpuResult UploadArena::ToDevice() {
  Seal();
  return device_.driver()->ToDevice(device_.get(), host_.get(), header()->size_bytes);
}

GpuResult UploadArena::LaunchFetch(size_t usual_bytes) {
  return device_.driver()->LaunchFetch({.source = host_.get(),
                                        .destination = device_.get(),
                                        .capacity_bytes = sizeof(FetchHeader) + size_bytes(),
                                        .usual_bytes = usual_bytes});
}

GpuResult AnswerArena::Resize(GpuDriver* driver, size_t size_bytes) {
  Reset(nullptr, nullptr, 0);
  const GpuResult result = memory_.Allocate(driver, Aligned(size_bytes));
  if (result.ok()) Reset(memory_.get(), memory_.get(), Aligned(size_bytes));
  return result;
}

}  // namespace specd
