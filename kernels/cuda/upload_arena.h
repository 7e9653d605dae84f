// Arenas and row copies move a round's memory between host and device for CudaBackend and
// RoundQueue.
//
// Rows are copied from their own memory. All other input of a round goes through one arena that
// exists on both sides, and answers come through pinned memory. Arrays are taken from an arena one
// after another. An array on the host has its device address at once, so pointers are known before
// any copy. One copy moves all small arrays of a round. Resize takes the memory once; a full arena
// reports it. Not for several threads at once; the driver must live longer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/core/gpu_driver.h"

namespace specd {

// Reports on stderr that memory could not be freed. The caller can do nothing about it, but the
// error must be seen. In an embedded session there is no logger of ours.
void ReportNotFreed(const GpuResult& result);

// Owns one block of memory; the two functions of the driver choose its kind.
template <GpuResult (GpuDriver::*kAllocate)(size_t, void**), GpuResult (GpuDriver::*kFree)(void*)>
class DriverMemory {
 public:
  DriverMemory() = default;
  DriverMemory(const DriverMemory&) = delete;
  DriverMemory& operator=(const DriverMemory&) = delete;
  ~DriverMemory() { Release(); }

  // Frees the memory held before.
  GpuResult Allocate(GpuDriver* driver, size_t size_bytes) {
    Release();
    driver_ = driver;
    // For some drivers a zero-sized allocation is an error.
    return (driver->*kAllocate)(std::max<size_t>(size_bytes, 1), &memory_);
  }

  GpuDriver* driver() const { return driver_; }
  char* get() const { return static_cast<char*>(memory_); }

 private:
  void Release() {
    if (memory_ == nullptr) return;
    const GpuResult result = (driver_->*kFree)(memory_);
    if (!result.ok()) ReportNotFreed(result);
    memory_ = nullptr;
  }

  GpuDriver* driver_ = nullptr;
  void* memory_ = nullptr;
};

using DeviceMemory = DriverMemory<&GpuDriver::Allocate, &GpuDriver::Free>;
using ZeroedMemory = DriverMemory<&GpuDriver::AllocateZeroed, &GpuDriver::Free>;
using PinnedMemory = DriverMemory<&GpuDriver::AllocatePinned, &GpuDriver::FreePinned>;

// An array that exists on both sides.
template <typename T>
struct ArenaArray {
  T* host = nullptr;
  T* device = nullptr;
};

// Arrays in memory that has one address on the host and another, or the same, on the device.
class Arena {
 public:
  size_t size_bytes() const { return size_bytes_; }

  // Takes room for an array. If there is none, returns null, and the arena stays full.
  template <typename T>
  ArenaArray<T> Take(int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const size_t begin = used_;
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    full_ = full_ || bytes > size_bytes_ - begin;
    if (full_ || count == 0) return {};
    used_ = Aligned(begin + bytes);
    return {reinterpret_cast<T*>(host_ + begin), reinterpret_cast<T*>(device_ + begin)};
  }

  // Copies an array into the arena, and returns its device address. Null stays null.
  template <typename T>
  const T* Put(const T* source, int64_t count) {
    if (source == nullptr) return nullptr;
    const ArenaArray<T> array = Take<T>(count);
    if (array.host != nullptr) std::memcpy(array.host, source, count * sizeof(T));
    return array.device;
  }

  // The host address of the memory at this device address.
  template <typename T>
  const T* OnHost(const T* device) const {
    return reinterpret_cast<const T*>(host_ + (reinterpret_cast<const char*>(device) - device_));
  }

  bool full() const { return full_; }
  size_t used() const { return used_; }

  static constexpr size_t Aligned(size_t size_bytes) {
    return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

 protected:
  // Drops all arrays. `size_bytes` is a multiple of kAlignment.
  void Reset(char* host, char* device, size_t size_bytes) {
    host_ = host;
    device_ = device;
    size_bytes_ = size_bytes;
    used_ = 0;
    full_ = false;
  }

 private:
  static constexpr size_t kAlignment = kFetchUnit;

  char* host_ = nullptr;
  char* device_ = nullptr;
  size_t size_bytes_ = 0;
  size_t used_ = 0;  // a multiple of kAlignment
  bool full_ = false;
};

// The input of a round: filled in pinned memory, used in device memory.
class UploadArena : public Arena {
 public:
  GpuResult Resize(GpuDriver* driver, size_t size_bytes);
  // Drops all arrays.
  void Clear();

  // Enqueues the copy of all arrays.
  GpuResult ToDevice();
  // The same for captures: each run copies the arrays of the last Seal before it. `usual_bytes`:
  // FetchPlan.
  GpuResult LaunchFetch(size_t usual_bytes);
  void Seal();

 private:
  FetchHeader* header() const { return reinterpret_cast<FetchHeader*>(host_.get()); }

  PinnedMemory host_;  // a FetchHeader, then the arrays
  DeviceMemory device_;
};

// The answers of a round, which kernels write into host memory.
class AnswerArena : public Arena {
 public:
  GpuResult Resize(GpuDriver* driver, size_t size_bytes);
  // Drops all arrays.
  void Clear() { Reset(memory_.get(), memory_.get(), size_bytes()); }

 private:
  PinnedMemory memory_;
};

// Copies rows one after another to device memory. After a failed copy no other row is copied, and
// the failure is kept.
class RowUpload {
 public:
  // REQUIRES: there is room at `memory` for all rows that will be appended.
  RowUpload(GpuDriver* driver, void* memory, int64_t row_bytes)
      : driver_(driver), memory_(static_cast<char*>(memory)), row_bytes_(row_bytes) {}

  // Enqueues the copy of a row and returns the row's new number.
  uint32_t Append(const void* row) {
    AppendAt(row);
    return static_cast<uint32_t>(num_rows_ - 1);
  }
  // The same; returns the row's new address.
  const void* AppendAt(const void* row) {
    char* place = memory_ + num_rows_ * row_bytes_;
    if (result_.ok()) result_ = driver_->ToDevice(place, row, static_cast<size_t>(row_bytes_));
    ++num_rows_;
    return place;
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
