// PeerEngine is an engine over libspecd for the other process of gpu_peer.h. Its device memory is
// the fake GPU's, which libspecd takes for the process's own.
#pragma once

#include <cstdint>
#include <deque>

#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/script_engine.h"

namespace specd {

class PeerEngine {
 public:
  // The engine's own token, which replaces each next token.
  static constexpr int32_t kOwnToken = -77;

  // From now on `gpu` is the GPU of libspecd in this process.
  explicit PeerEngine(FakeGpuContext* gpu);

  // Does an operation after PeerOp::kOpenEngine; returns a SPECD_ERROR_* or SPECD_OK.
  int Do(const PeerRequest& request, PeerReply* reply);

 private:
  // The values that a CUDA stream finds after a round, before the engine writes a token of its own.
  struct Seen {
    int32_t next_token = 0;
    uint64_t word = 0;
    uint64_t answered = 0;  // the status word of an answered round
  };

  int SubmitOnStream(const PeerRequest& request);
  int DoOnStream(const PeerRequest& request, PeerReply* reply);
  int Copy(void* target, const void* source, uint64_t size_bytes) {
    return gpu_->Copy(stream_, target, source, size_bytes).code();
  }

  FakeGpuContext* const gpu_;
  GpuStream stream_;  // made at the first use
  void* target_rows_ = nullptr;
  std::deque<Seen> seen_;  // written by rounds on the CUDA stream
  ScriptEngine engine_;
};

}  // namespace specd
