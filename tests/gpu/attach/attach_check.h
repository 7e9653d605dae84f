// AttachCheck tests a promise about two processes that share a device, for specd-gpu-attach
// (docs/GPU.md, "Memory between processes").
//
// The checks run over any EngineGpu. A check runs once in a process: anything that it breaks stays
// broken. It belongs to one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/gpu_context.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/gpu_peer_worker.h"

namespace specd {

enum class AttachStatus { kPass, kFail, kSkipped, kObserved };

struct AttachResult {
  AttachStatus status = AttachStatus::kPass;
  std::string detail = {};
  std::vector<std::pair<std::string, double>> figures = {};  // name with its unit, value
};

struct AttachSetting {
  PeerGpu* gpu = nullptr;  // the GPU of this process
  GpuDevice device = {};
  std::function<std::unique_ptr<GpuPeer>(const PeerEnvironment&)> start_peer = {};
  // The longest wait for an event that has to happen.
  int patience_ms = 20000;
  int held_up_ms = 1000;      // an event that has not happened by then is held up
  uint64_t num_batches = 20;  // batches of stores that are timed
};

struct AttachCheck {
  const char* name;
  const char* promise;
  AttachResult (*run)(const AttachSetting& setting);
};

const std::vector<AttachCheck>& AttachChecks();

const char* NameOf(AttachStatus status);

}  // namespace specd
