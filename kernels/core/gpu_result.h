// What a call into a GPU answers, and what a GPU is: the words that GpuDriver (rounds) and
// GpuContext (memory and order shared between processes) have in common.
//
// Plain values, standard library only; safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace specd {

// The driver's own numbers for what callers tell apart (CUresult, and cudaError_t, which has the
// same); kernels/cuda/driver_api_check.cc compares them with CUDA's headers. Any other number may
// come too.
enum GpuCode : int {
  kGpuNoDriver = -2,  // ours: libcuda.so.1 is not there, or too old
  kGpuUnknown = -1,   // ours: the call has no number
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

// Success, or why not, with the driver's own error name in the text.
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
  int64_t l2_bytes = 0;   // 0: not asked for
  // What processes that share the device can rely on.
  bool has_ipc_events = false;
  bool has_64_bit_words = false;     // stream memory operations on 64-bit words
  std::optional<bool> has_mps = {};  // none: the driver is too old to say
  uint64_t granularity_bytes = 0;    // of memory behind descriptors; 0: there is none
};

}  // namespace specd
