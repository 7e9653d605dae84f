#include "daemon/client/ops_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "daemon/client/engine_device.h"
#include "ipc/base/error.h"
#include "ipc/memory/device_region.h"

namespace specd {
namespace {

// The backends that a thread keeps: the CPU's and those of the devices that it uses by turns.
constexpr size_t kKeptMost = 4;

GpuAddress AddressOf(const void* memory) { return reinterpret_cast<GpuAddress>(memory); }

std::string NameOf(size_t device_index) { return fmt::format("cuda:{}", device_index); }

// The backend that is used next stands first.
absl::StatusOr<OpsBackend*> KeptBackend(const std::string& device, int32_t vocab_size) {
  thread_local std::vector<OpsBackend> kept;
  const auto serves = [&](const OpsBackend& one) { return one.Serves(device, vocab_size); };
  auto found = std::find_if(kept.begin(), kept.end(), serves);
  if (found == kept.end()) {
    // First, so that a device need not hold both: a backend that failed, or is too small.
    std::erase_if(kept, [&](const OpsBackend& one) { return one.device() == device; });
    if (kept.size() == kKeptMost) kept.pop_back();
    absl::StatusOr<OpsBackend> made = OpsBackend::Make(device, vocab_size);
    if (!made.ok()) return made.status();
    kept.push_back(*std::move(made));
    found = std::prev(kept.end());
  }
  std::rotate(kept.begin(), found, std::next(found));
  return &kept.front();
}

// Finds the device in whose memory an array lies; none: the host's.
absl::StatusOr<std::optional<size_t>> DeviceOf(std::string_view name, const void* memory) {
  std::optional<size_t> device;
  const GpuResult result = MakeEnginePlatform()->DeviceOf(AddressOf(memory), &device);
  if (result.ok()) return device;
  return MakeError(SPECD_ERROR_INTERNAL, name,
                   fmt::format("the GPU failed when asked where {} lies: {}; if the GPU's error "
                               "stays, restart the process",
                               name, result.text()));
}

// The error of a device that the call names, or of the one where its rows are.
absl::Status NoBackend(const specd_rows& rows, const std::string& device,
                       const absl::Status& status) {
  const std::string why(status.message());
  if (rows.device != nullptr) {
    return MakeError(ErrorCodeOf(status), "device",
                     fmt::format("rows.device = \"{}\": {}", device, why));
  }
  return MakeError(ErrorCodeOf(status), "data",
                   fmt::format("rows.data is memory of {}, where the call runs by default: {}; "
                               "or copy the rows to the host",
                               device, why));
}

}  // namespace

absl::StatusOr<OpsBackend> OpsBackend::Make(const std::string& device, int32_t vocab_size) {
  absl::StatusOr<std::unique_ptr<Backend>> made = EngineBackends().Make(device);
  if (!made.ok()) return made.status();
  const absl::Status status = (*made)->Prepare({.vocab_size = vocab_size,
                                                .max_batch = static_cast<int32_t>(kOpsChunkRows),
                                                .max_draft = 0,
                                                .threads = 1});
  if (!status.ok()) return status;
  return OpsBackend(device, vocab_size, *std::move(made));
}

bool OpsBackend::Reads(size_t device_index) {
  if (!device_index_.has_value() && !backend_->device_uuid().empty()) {
    std::vector<GpuDevice> devices;
    if (!MakeEnginePlatform()->ListDevices(&devices).ok()) return false;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (IsSameDevice(devices[i].uuid, backend_->device_uuid())) device_index_ = i;
    }
  }
  return device_index_ == device_index;
}

absl::StatusOr<OpsBackend*> UseBackend(const specd_rows& rows, TensorView* view) {
  const absl::StatusOr<std::optional<size_t>> found = DeviceOf("rows.data", rows.data);
  if (!found.ok()) return found.status();
  const std::optional<size_t> rows_on = *found;
  const std::string device = rows.device != nullptr ? rows.device
                             : rows_on.has_value()  ? NameOf(*rows_on)
                                                    : "cpu";
  const absl::StatusOr<std::string> full_name = EngineBackends().FullName(device);
  if (!full_name.ok()) return NoBackend(rows, device, full_name.status());
  const absl::StatusOr<OpsBackend*> backend = KeptBackend(*full_name, view->vocab_size);
  if (!backend.ok()) return NoBackend(rows, device, backend.status());
  if (rows_on.has_value() && !(*backend)->Reads(*rows_on)) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "device",
                     fmt::format("rows.device = \"{}\" does not read rows.data, which is memory of "
                                 "{}; leave rows.device NULL, or copy the rows",
                                 device, NameOf(*rows_on)));
  }
  if (rows.cuda_stream != nullptr) {
    const absl::Status status = (*backend)->FollowStream(rows.cuda_stream);
    if (!status.ok()) {
      return MakeError(ErrorCodeOf(status), "cuda_stream", std::string(status.message()));
    }
  }
  view->space = rows_on.has_value() ? MemorySpace::kDevice : MemorySpace::kHost;
  return backend;
}

absl::Status CheckOnHost(std::initializer_list<std::pair<std::string_view, const void*>> arrays) {
  for (const auto& [name, memory] : arrays) {
    if (memory == nullptr) continue;
    const absl::StatusOr<std::optional<size_t>> device = DeviceOf(name, memory);
    if (!device.ok()) return device.status();
    if (!device->has_value()) continue;
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, name,
                     fmt::format("{} is memory of {}; only rows.data may be, so give an array in "
                                 "host memory",
                                 name, NameOf(**device)));
  }
  return absl::OkStatus();
}

}  // namespace specd
