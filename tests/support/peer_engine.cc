#include "tests/support/peer_engine.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "daemon/client/engine_device.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/borrowed_gpu_platform.h"

namespace specd {
namespace {

FakeGpuContext* process_gpu = nullptr;
FakeGpu process_driver;  // of rounds in this process

}  // namespace

std::unique_ptr<GpuPlatform> MakeEnginePlatform() {
  return std::make_unique<BorrowedGpuPlatform>(process_gpu);
}

BackendRegistry& EngineBackends() {
  process_driver.is_imported = [](const void* address) {
    GpuAllocation allocation;
    return process_gpu->Describe(reinterpret_cast<GpuAddress>(address), &allocation).ok();
  };
  static auto* const backends = new BackendRegistry(
      {CpuBackendEntry(),
       CudaBackendEntry([] { return std::make_unique<FakeGpuDriver>(&process_driver); })});
  return *backends;
}

PeerEngine::PeerEngine(FakeGpuContext* gpu) : gpu_(gpu) { process_gpu = gpu; }

int PeerEngine::Do(const PeerRequest& request, PeerReply* reply) {
  switch (request.op) {
    case PeerOp::kOpenEngine:
      return engine_.Open(request.path, static_cast<uint32_t>(request.value));
    case PeerOp::kCloseEngine:
      engine_.Close();
      return SPECD_OK;
    case PeerOp::kFillRows: {
      // The memory is this process's own, so it can be reached without a CUDA stream.
      const std::vector<float> rows = ScriptEngine::Rows(request.value != 0);
      std::memcpy(reinterpret_cast<void*>(request.address), rows.data(), ScriptEngine::kRowsBytes);
      if (request.value != 0) target_rows_ = reinterpret_cast<void*>(request.address);
      return SPECD_OK;
    }
    case PeerOp::kImportDevice: {
      specd_region region = {};
      const int code =
          specd_import_device(engine_.get(), request.address, request.size_bytes, &region);
      reply->value = region.id;
      reply->address = reinterpret_cast<uint64_t>(region.data);
      return code;
    }
    case PeerOp::kUnregisterRegion:
      return specd_unregister(engine_.get(), static_cast<uint32_t>(request.value));
    case PeerOp::kBind:
      return engine_.Bind(static_cast<int>(request.word), static_cast<uint32_t>(request.value),
                          request.address, request.size_bytes);
    case PeerOp::kOpenSequence: {
      const int code = engine_.OpenSequence(request.value, &reply->value, request.word != 0);
      reply->address = specd_sequence_slot(reply->value);
      return code;
    }
    case PeerOp::kRound: {
      std::vector<int32_t> kept;
      const int code = engine_.Round(request.value, static_cast<uint32_t>(request.word), &kept);
      reply->size_bytes = kept.size();
      std::copy(kept.begin(), kept.end(), reply->tokens);
      return code;
    }
    case PeerOp::kGetGroup: {
      specd_group group = {};
      const int code = specd_get_group(engine_.get(), &group);
      if (code != SPECD_OK) return code;
      reply->value = group.bound_ranks;
      std::copy_n(group.token, std::strlen(group.token), reply->handle.begin());
      return code;
    }
    default:
      return DoOnStream(request, reply);
  }
}

int PeerEngine::DoOnStream(const PeerRequest& request, PeerReply* reply) {
  if (stream_.handle == nullptr) (void)gpu_->CreateStream(&stream_);
  switch (request.op) {
    case PeerOp::kSubmitOnStream:
      return SubmitOnStream(request);
    case PeerOp::kHoldStream: {
      // A word that is never written. The process has its memory for life.
      GpuAddress word = 0;
      (void)gpu_->Allocate(sizeof(uint64_t), &word);
      return gpu_->WaitValue(stream_, word, GpuWord::k64, 1).code();
    }
    case PeerOp::kAwaitStream:
      reply->value = seen_.size();
      return gpu_->Synchronize(stream_).code();
    case PeerOp::kSeen: {
      const Seen& seen = seen_.at(request.word);
      reply->value = static_cast<uint64_t>(seen.next_token);
      reply->size_bytes = seen.word == seen.answered ? 1 : 0;
      return SPECD_OK;
    }
    case PeerOp::kPoll: {
      std::vector<int32_t> kept;
      const int code = engine_.Poll(&kept, &reply->value);
      reply->size_bytes = kept.size();
      std::copy(kept.begin(), kept.end(), reply->tokens);
      return code;
    }
    default:
      return SPECD_ERROR_UNSUPPORTED;
  }
}

// Rows are there from the forward to the answer, and at no other time.
int PeerEngine::SubmitOnStream(const PeerRequest& request) {
  static const std::vector<float> rows = ScriptEngine::Rows(true);
  static const std::vector<float> spoilt(rows.size(), 0.0f);
  static constexpr int32_t own_token = kOwnToken;
  int code = Copy(target_rows_, rows.data(), ScriptEngine::kRowsBytes);
  if (code == kGpuOk) {
    code = engine_.Submit(request.value, static_cast<uint32_t>(request.word), stream_.handle);
  }
  specd_round_end end = {};
  if (code == SPECD_OK) code = specd_get_round_end(engine_.get(), &end);
  if (code != SPECD_OK) return code;
  auto* const next_token = reinterpret_cast<void*>(request.address);
  Seen& seen = seen_.emplace_back();
  seen.answered = end.answered;
  code = Copy(&seen.word, reinterpret_cast<void*>(end.device_address), sizeof(uint64_t));
  if (code == kGpuOk) code = Copy(&seen.next_token, next_token, sizeof(int32_t));
  if (code == kGpuOk) code = Copy(next_token, &own_token, sizeof(int32_t));
  if (code == kGpuOk) code = Copy(target_rows_, spoilt.data(), ScriptEngine::kRowsBytes);
  return code;
}

}  // namespace specd
