// GpuResult and GpuDevice are the answers of a GPU's driver for GpuDriver (rounds) and GpuContext
// (memory and order shared between processes).
//
// Plain values, standard library only; safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace specd {

// The driver's own numbers for errors that callers distinguish (CUresult, and cudaError_t, which
// has the same). kernels/cuda/driver_api_check.cc compares the numbers with CUDA's headers. Other
// numbers may occur.
enum GpuCode : int {
  kGpuNoDriver = -2,  // ours: libcuda.so.1 is missing or too old
  kGpuUnknown = -1,   // ours: the error has no number
  kGpuOk = 0,
  kGpuInvalidValue = 1,
  kGpuOutOfMemory = 2,
  kGpuNotInitialized = 3,
  kGpuNoDevice = 100,
  kGpuInvalidDevice = 101,
  kGpuInvalidContext = 201,  // an IPC handle in the process that exported it
  kGpuMapFailed = 205,
  kGpuAlreadyMapped = 208,
  kGpuPeerAccessUnsupported = 217,
  kGpuInvalidHandle = 400,
  kGpuNotReady = 600,
  kGpuIllegalAddress = 700,
  kGpuTooManyPeers = 711,
  kGpuHostMemoryAlreadyRegistered = 712,
  kGpuHostMemoryNotRegistered = 713,
  kGpuLaunchFailed = 719,
  kGpuNotPermitted = 800,
  kGpuNotSupported = 801,
};

// Success, or an error with the driver's own error name in the text.
class [[nodiscard]] GpuResult {
 public:
  static GpuResult Ok() { return GpuResult(); }
  static GpuResult Error(std::string text, int code = kGpuUnknown) {
    GpuResult result;
    result.text_ = std::move(text);
    result.code_ = code;
    return result;
  }
  bool ok() const { return text_.empty(); }
  const std::string& text() const { return text_; }
  int code() const { return code_; }

 private:
  std::string text_;
  int code_ = kGpuOk;
};

struct GpuDevice {
  std::string name = {};
  std::string uuid = {};  // as nvidia-smi prints it, GPU-...
  int64_t l2_bytes = 0;   // 0: not queried
  // Features for processes that share the device.
  bool has_64_bit_words = false;     // 64-bit memory operations on CUDA streams
  std::optional<bool> has_mps = {};  // none: the driver is too old to tell
  uint64_t granularity_bytes = 0;    // the unit of memory with descriptors; 0: no such memory
};

}  // namespace specd
