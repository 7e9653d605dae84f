// The part of the other process (gpu_peer.h) that is an engine over libspecd: its device memory is
// the pretended GPU's, which libspecd takes for the process's own.
#pragma once

#include <cstdint>
#include <deque>

#include "tests/support/fake_gpu_context.h"
#include "tests/support/fake_gpu_driver.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/script_engine.h"

namespace specd {

class PeerEngine {
 public:
  static constexpr int32_t kOwnToken = -77;  // what the engine puts in place of each next token

  // From now on this is the GPU of libspecd in this process.
  explicit PeerEngine(FakeGpuContext* gpu);

  // An operation of those behind PeerOp::kOpenEngine; the answer is a SPECD_ERROR_* or SPECD_OK.
  int Do(const PeerRequest& request, PeerReply* reply);

 private:
  // What a stream finds behind a round, before the engine puts a token of its own there.
  struct Seen {
    int32_t next_token = 0;
    uint64_t verdict = 0;
    uint64_t answered = 0;  // the verdict of a round that was
  };

  int SubmitOnStream(const PeerRequest& request);
  int DoOnStream(const PeerRequest& request, PeerReply* reply);
  int Copy(void* target, const void* source, uint64_t size_bytes) {
    return gpu_->Copy(stream_, target, source, size_bytes).code();
  }

  FakeGpuContext* const gpu_;
  GpuStream stream_;  // once it is used
  void* target_rows_ = nullptr;
  std::deque<Seen> seen_;  // of rounds on the stream, which writes to them
  ScriptEngine engine_;
};

}  // namespace specd
