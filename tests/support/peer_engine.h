// The part of the other process (gpu_peer.h) that is an engine over libspecd: its device memory is
// the pretended GPU's, which libspecd takes for the process's own.
#pragma once

#include "tests/support/fake_gpu_context.h"
#include "tests/support/fake_gpu_driver.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/script_engine.h"

namespace specd {

class PeerEngine {
 public:
  // From now on this is the GPU of libspecd in this process.
  explicit PeerEngine(FakeGpuContext* gpu);

  // An operation of those behind PeerOp::kOpenEngine; the answer is a SPECD_ERROR_* or SPECD_OK.
  int Do(const PeerRequest& request, PeerReply* reply);

 private:
  FakeGpuContext* const gpu_;
  ScriptEngine engine_;
};

}  // namespace specd
