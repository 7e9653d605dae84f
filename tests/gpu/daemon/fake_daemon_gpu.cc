// The daemon's processors over the pretended GPU, in place of daemon/daemon_gpu.cc. Rounds of every
// session run on CudaBackend over an emulated device.
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/daemon_device.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/daemon/fake_process_gpu.h"
#include "tests/gpu/driver/fake_gpu_driver.h"

namespace specd {
namespace {

constexpr int kRoundsBeforeFault = 20;

// Makes a device for a session. The device lives as long as the process.
FakeGpu* MakeDevice() {
  static std::mutex mutex;
  static auto* const devices = new std::deque<FakeGpu>;
  const std::lock_guard<std::mutex> lock(mutex);
  FakeGpu& device = devices->emplace_back();
  device.is_imported = [](const void* place) {
    GpuAllocation allocation;
    return FakeProcessGpu().Describe(reinterpret_cast<GpuAddress>(place), &allocation).ok();
  };
  return &device;
}

// A backend with the fault that SPECD_FAKE_FAULT names.
class FaultyBackend final : public Backend {
 public:
  explicit FaultyBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  std::string_view name() const override { return backend_->name(); }
  std::string_view device_uuid() const override { return backend_->device_uuid(); }
  absl::Status Prepare(const BackendLimits& limits) override { return backend_->Prepare(limits); }
  absl::Status Transform(const TransformBatch& batch) override {
    return backend_->Transform(batch);
  }

  absl::Status Run(const RoundBatch& batch) override {
    const bool is_faulty = ++num_rounds_ > kRoundsBeforeFault;
    if (is_faulty && HasFakeFault("device")) return absl::InternalError("the device has failed");
    while (is_faulty && HasFakeFault("stuck")) pause();
    absl::Status status = backend_->Run(batch);
    if (is_faulty && HasFakeFault("answer")) ++batch.tokens[0];
    // A CUDA stream that does not wait may still be slower than the answer.
    if (HasFakeFault("no_wait")) usleep(5'000);
    if (HasFakeFault("early_next_token") && !next_tokens_.empty() && status.ok()) {
      usleep(5'000);  // so that a stop is likely to come before
      RoundBatch early = batch;
      early.slot_outputs = next_tokens_.data();
      early.num_slot_outputs = static_cast<int32_t>(next_tokens_.size());
      status = backend_->WriteSlotOutputs(early);
    }
    return status;
  }
  absl::Status WriteSlotOutputs(const RoundBatch& batch) override {
    if (HasFakeFault("next_token")) return absl::OkStatus();
    next_tokens_.assign(batch.slot_outputs, batch.slot_outputs + batch.num_slot_outputs);
    return backend_->WriteSlotOutputs(batch);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  int num_rounds_ = 0;
  std::vector<SlotOutput> next_tokens_;
};

// "outlives": a child process serves, and the process that is stopped and killed is another one.
// The serving process ends by itself.
[[gnu::constructor]] void ForkIfAsked() {
  if (!HasFakeFault("outlives")) return;
  const pid_t child = fork();
  if (child > 0) {
    waitpid(child, nullptr, 0);
    _exit(0);
  }
  alarm(60);
}

}  // namespace

std::unique_ptr<GpuPlatform> MakeDaemonPlatform() {
  // The engine leaves the device broken.
  if (HasFakeFault("close")) {
    FakeProcessGpu().Inject({.call = "Close", .code = kGpuIllegalAddress, .is_sticky = true});
  }
  return MakeFakeProcessPlatform();
}

BackendRegistry& DaemonBackends() {
  static BackendRegistry* const backends = [] {
    BackendEntry cuda =
        CudaBackendEntry([] { return std::make_unique<FakeGpuDriver>(MakeDevice()); });
    cuda.make = [make = cuda.make](
                    const BackendOptions& options) -> absl::StatusOr<std::unique_ptr<Backend>> {
      absl::StatusOr<std::unique_ptr<Backend>> made = make(options);
      if (!made.ok()) return made;
      return std::make_unique<FaultyBackend>(*std::move(made));
    };
    return new BackendRegistry({CpuBackendEntry(), cuda});
  }();
  return *backends;
}

}  // namespace specd
