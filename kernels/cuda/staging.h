// How a round's memory gets to a device and back: rows straight from where they lie, and everything
// else through one arena that exists on both sides.
//
// Arrays of a round are taken from the arena one after another. What is put in on the host has its
// place on the device too, so pointers are known before anything is copied, and a whole round's
// small arrays travel in one copy. Memory is taken once, by Resize; an arena that is full says so.
// Not for several threads at once; the driver must live longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/core/gpu_driver.h"

namespace specd {

// Owns one block of device memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { Release(); }

  // What was held before is given back first.
  GpuResult Allocate(GpuDriver* driver, size_t size_bytes);

  GpuDriver* driver() const { return driver_; }
  char* get() const { return static_cast<char*>(memory_); }

 private:
  void Release();

  GpuDriver* driver_ = nullptr;
  void* memory_ = nullptr;
};

// An array that exists on both sides.
template <typename T>
struct StagedArray {
  T* host = nullptr;
  T* device = nullptr;
};

class StagingArena {
 public:
  GpuResult Resize(GpuDriver* driver, size_t size_bytes);
  size_t size_bytes() const { return host_.size(); }

  // Room for an array. Null, and the arena is full from then on, if there is none.
  template <typename T>
  StagedArray<T> Take(int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const size_t begin = used_;
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    full_ = full_ || bytes > host_.size() - begin;
    if (full_ || count == 0) return {};
    used_ = Aligned(begin + bytes);
    return {reinterpret_cast<T*>(host_.data() + begin),
            reinterpret_cast<T*>(device_.get() + begin)};
  }

  // Copies an array in, and returns where it will be on the device. Null stays null.
  template <typename T>
  const T* Put(const T* source, int64_t count) {
    if (source == nullptr) return nullptr;
    const StagedArray<T> array = Take<T>(count);
    if (array.host != nullptr) std::memcpy(array.host, source, count * sizeof(T));
    return array.device;
  }

  bool full() const { return full_; }
  size_t used() const { return used_; }
  // Gives back everything that was taken.
  void Clear() {
    used_ = 0;
    full_ = false;
  }

  // Enqueues the copy of everything that was taken.
  GpuResult ToDevice();
  // Enqueues the copy of the first `size_bytes`.
  GpuResult ToHost(size_t size_bytes);

 private:
  static constexpr size_t kAlignment = 16;
  static size_t Aligned(size_t size_bytes) {
    return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  std::vector<char> host_;  // its size is a multiple of kAlignment
  DeviceMemory device_;
  size_t used_ = 0;  // a multiple of kAlignment
  bool full_ = false;
};

// Rows copied one after another to a place on the device. After a failed copy nothing more is
// copied; the failure is kept.
class RowStage {
 public:
  // REQUIRES: there is room at `memory` for all rows that will be appended.
  RowStage(GpuDriver* driver, void* memory, int64_t row_bytes)
      : driver_(driver), memory_(static_cast<char*>(memory)), row_bytes_(row_bytes) {}

  // Enqueues the copy of a row and returns which row it becomes.
  uint32_t Append(const void* row) {
    char* place = memory_ + num_rows_ * row_bytes_;
    if (result_.ok()) result_ = driver_->ToDevice(place, row, static_cast<size_t>(row_bytes_));
    return static_cast<uint32_t>(num_rows_++);
  }

  const GpuResult& result() const { return result_; }
  const void* memory() const { return memory_; }
  int64_t num_rows() const { return num_rows_; }

 private:
  GpuDriver* driver_;
  char* memory_;
  int64_t row_bytes_;
  int64_t num_rows_ = 0;
  GpuResult result_ = GpuResult::Ok();
};

}  // namespace specd
