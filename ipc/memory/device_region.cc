#include "ipc/memory/device_region.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <optional>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/sockets/unix_socket.h"

namespace specd {
namespace {

absl::Status RegionError(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_REGION, field, text);
}

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// The digits alone. Engines, drivers and frameworks write the other characters differently.
std::optional<std::string> UuidDigits(std::string_view text) {
  if (text.starts_with("GPU-") || text.starts_with("MIG-")) text.remove_prefix(4);
  std::optional<std::string> digits(std::in_place);
  for (const char c : text) {
    if (c == '-') continue;
    if (!HexDigit(c).has_value()) return std::nullopt;
    digits->push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  if (digits->size() != 32) digits.reset();
  return digits;
}

absl::StatusOr<GpuMemoryKind> CheckKind(uint32_t kind) {
  if (kind >= static_cast<uint32_t>(GpuMemoryKind::kIpc) &&
      kind <= static_cast<uint32_t>(GpuMemoryKind::kPool)) {
    return static_cast<GpuMemoryKind>(kind);
  }
  return Invalid("kind", fmt::format("kind = {} is unknown; allowed are 1 (CUDA IPC handle), "
                                     "2 (VMM descriptor), 3 (cudaMallocAsync pool)",
                                     kind));
}

absl::StatusOr<GpuHandle> CheckHandle(GpuMemoryKind kind, std::string_view text) {
  GpuHandle handle = {};
  const size_t wanted = kind == GpuMemoryKind::kVmm ? 0 : 2 * kGpuHandleBytes;
  if (text.size() != wanted) {
    return Invalid("handle", fmt::format("handle has {} characters; kind = {} has {}: {}",
                                         text.size(), static_cast<uint32_t>(kind), wanted,
                                         wanted == 0 ? "memory behind a descriptor has no handle"
                                                     : "64 bytes as hexadecimal digits"));
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const std::optional<int> digit = HexDigit(text[i]);
    if (!digit.has_value()) {
      return Invalid("handle", fmt::format("handle: character {} is no hexadecimal digit", i));
    }
    handle[i / 2] = static_cast<uint8_t>(handle[i / 2] << 4 | *digit);
  }
  return handle;
}

absl::Status CheckSizes(const DeviceRegionSpec& spec) {
  if (spec.base_bytes < 1 || spec.base_bytes > kRegionBytesMax) {
    return Invalid("base_bytes", fmt::format("base_bytes = {} is outside 1..{}; it is the size of "
                                             "the whole allocation",
                                             spec.base_bytes, kRegionBytesMax));
  }
  if (spec.offset_bytes >= spec.base_bytes) {
    return Invalid("offset_bytes",
                   fmt::format("offset_bytes = {} is outside 0..{}; it counts from the beginning "
                               "of the allocation",
                               spec.offset_bytes, spec.base_bytes - 1));
  }
  if (spec.offset_bytes % kDeviceAlignmentBytes != 0) {
    return Invalid("offset_bytes",
                   fmt::format("offset_bytes = {} is no multiple of {}; begin the region earlier, "
                               "and put the rest into the tensor's offset",
                               spec.offset_bytes, kDeviceAlignmentBytes));
  }
  const uint64_t room_bytes = spec.base_bytes - spec.offset_bytes;
  if (spec.size_bytes < 1 || spec.size_bytes > room_bytes) {
    return Invalid("size_bytes",
                   fmt::format("size_bytes = {} is outside 1..{}, what the allocation of {} bytes "
                               "has behind offset_bytes = {}",
                               spec.size_bytes, room_bytes, spec.base_bytes, spec.offset_bytes));
  }
  if (spec.buffer_id == 0) {
    return Invalid("buffer_id",
                   "buffer_id = 0: send CU_POINTER_ATTRIBUTE_BUFFER_ID of the allocation, so that "
                   "memory that was freed and allocated again is noticed");
  }
  return absl::OkStatus();
}

// Checks the sizes of the pieces, one for each descriptor; only kind = 2 has pieces.
absl::Status CheckPieces(GpuMemoryKind kind, const DeviceRegionSpec& spec,
                         uint64_t granularity_bytes) {
  const std::vector<uint64_t>& pieces = spec.piece_bytes;
  if (kind != GpuMemoryKind::kVmm) {
    if (pieces.empty()) return absl::OkStatus();
    return Invalid("piece_bytes", fmt::format("piece_bytes has {} elements; kind = {} has none: "
                                              "its handle stands for the whole allocation",
                                              pieces.size(), static_cast<uint32_t>(kind)));
  }
  if (pieces.empty() || pieces.size() > kMessageFdsMax) {
    return Invalid("piece_bytes",
                   fmt::format("piece_bytes has {} elements, allowed are 1..{}: kind = 2 sends the "
                               "size of every piece of physical memory that the region lies on",
                               pieces.size(), kMessageFdsMax));
  }
  if (granularity_bytes == 0) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "kind",
                     "kind = 2: this device has no memory behind descriptors; allocate with "
                     "cudaMalloc");
  }
  uint64_t sum_bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i] < 1 || pieces[i] > kRegionBytesMax - sum_bytes ||
        pieces[i] % granularity_bytes != 0) {
      return Invalid(
          "piece_bytes",
          fmt::format("piece_bytes[{}] = {}: allowed are multiples of {}, and {} for all "
                      "of them together; send the size that cuMemMap was given",
                      i, pieces[i], granularity_bytes, kRegionBytesMax));
    }
    sum_bytes += pieces[i];
  }
  if (sum_bytes == spec.base_bytes) return absl::OkStatus();
  return Invalid("base_bytes",
                 fmt::format("base_bytes = {} but the {} piece_bytes are {} together; "
                             "send their sum",
                             spec.base_bytes, pieces.size(), sum_bytes));
}

absl::Status CheckFds(GpuMemoryKind kind, size_t num_pieces, std::span<const UniqueFd> fds) {
  const size_t wanted = kind == GpuMemoryKind::kVmm ? num_pieces : kind == GpuMemoryKind::kPool;
  if (fds.size() == wanted) return absl::OkStatus();
  return Invalid("num_fds",
                 fmt::format("kind = {} with {} piece_bytes comes with {} descriptors, "
                             "{} came",
                             static_cast<uint32_t>(kind), num_pieces, wanted, fds.size()));
}

// The driver looks up a handle of 64 bytes by the exporter's process id.
absl::Status CheckExporter(const DeviceRegionSpec& spec, pid_t peer_pid) {
  if (peer_pid <= 0 || spec.export_pid != static_cast<uint32_t>(peer_pid)) {
    return RegionError(
        "export_pid",
        fmt::format("export_pid = {}, but the process that asks is {} here: it runs in another PID "
                    "namespace, or another process exported the memory. Start the container with "
                    "--pid=host and --ipc=host, export from the process that registers, or share "
                    "memory by descriptor (kind = 2)",
                    spec.export_pid, peer_pid));
  }
  if (peer_pid == getpid()) {
    return RegionError("export_pid",
                       fmt::format("export_pid = {} is this process itself, which cannot open its "
                                   "own handles; in embedded mode device memory needs no import",
                                   spec.export_pid));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsSameDevice(std::string_view uuid, std::string_view other) {
  const std::optional<std::string> digits = UuidDigits(uuid);
  return digits.has_value() && digits == UuidDigits(other);
}

DeviceRegion::DeviceRegion(DeviceRegion&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      mapping_(std::move(other.mapping_)),
      address_(other.address_),
      size_bytes_(other.size_bytes_),
      device_uuid_(std::move(other.device_uuid_)) {}

DeviceRegion::~DeviceRegion() {
  const absl::Status status = Close();
  if (!status.ok()) {
    fmt::print(stderr, "specd: {}\n",
               std::string_view(status.message().data(), status.message().size()));
  }
}

absl::Status DeviceRegion::Close() {
  if (context_ == nullptr) return absl::OkStatus();
  const GpuResult result = context_->Close(mapping_);
  context_ = nullptr;
  if (result.ok()) return absl::OkStatus();
  return MakeError(SPECD_ERROR_INTERNAL, "region",
                   fmt::format("closing device memory: {}; the memory may still be mapped until "
                               "the daemon is restarted",
                               result.text()));
}

absl::StatusOr<DeviceRegion> DeviceImporter::Import(const DeviceRegionSpec& spec,
                                                    std::span<const UniqueFd> fds, pid_t peer_pid) {
  const absl::StatusOr<GpuMemoryKind> kind = CheckKind(spec.kind);
  if (!kind.ok()) return kind.status();
  const absl::StatusOr<size_t> device = FindDevice(spec.device_uuid);
  if (!device.ok()) return device.status();
  const absl::StatusOr<GpuHandle> handle = CheckHandle(*kind, spec.handle);
  if (!handle.ok()) return handle.status();
  absl::Status status = CheckPieces(*kind, spec, devices_[*device].granularity_bytes);
  if (status.ok()) status = CheckFds(*kind, spec.piece_bytes.size(), fds);
  if (status.ok()) status = CheckSizes(spec);
  if (status.ok() && *kind == GpuMemoryKind::kIpc) status = CheckExporter(spec, peer_pid);
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<GpuContext>> context = ContextOf(*device);
  if (!context.ok()) return context.status();

  GpuImport import = {*kind, *handle};
  for (size_t i = 0; i < fds.size(); ++i) {
    const bool has_size = *kind == GpuMemoryKind::kVmm;
    import.pieces.push_back({fds[i].get(), has_size ? spec.piece_bytes[i] : 0});
  }
  GpuMapping mapping;
  const GpuResult imported = (*context)->Import(import, &mapping);
  if (!imported.ok()) return Explain(imported, **context, *kind);
  const uint64_t mapped_bytes = mapping.size_bytes;
  DeviceRegion region(*context, std::move(mapping), spec);
  // An attach that broke the context must not look like one that worked.
  const GpuResult health = (*context)->Check();
  if (!health.ok()) return Explain(health, **context, *kind);
  // The driver maps whole allocations and may round them up.
  if (mapped_bytes < spec.base_bytes) {
    return RegionError("base_bytes",
                       fmt::format("base_bytes = {} but the allocation has {} bytes; send the size "
                                   "of the allocation that was exported",
                                   spec.base_bytes, mapped_bytes));
  }
  return region;
}

absl::StatusOr<size_t> DeviceImporter::FindDevice(const std::string& uuid) {
  if (devices_.empty()) {
    std::vector<GpuDevice> found;
    const GpuResult result = platform_->ListDevices(&found);
    if (!result.ok()) {
      return MakeError(
          SPECD_ERROR_UNSUPPORTED, "kind",
          fmt::format("device memory cannot be imported: {}; or share rows in a sealed memfd",
                      result.text()));
    }
    // devices_ is set only when the list is complete: a list that failed half way would have no
    // contexts.
    devices_ = std::move(found);
    contexts_.resize(devices_.size());
  }
  const std::optional<std::string> wanted = UuidDigits(uuid);
  if (!wanted.has_value()) {
    return Invalid("device_uuid",
                   "device_uuid is no UUID: 32 hexadecimal digits, as nvidia-smi -L prints them");
  }
  std::string visible;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (UuidDigits(devices_[i].uuid) == wanted) return i;
    visible += (visible.empty() ? "" : ", ") + devices_[i].uuid;
  }
  return RegionError(
      "device_uuid",
      fmt::format("device_uuid = {} is not visible to the daemon, which sees {}; start it with "
                  "the engine's device in CUDA_VISIBLE_DEVICES (with MIG: the same instance)",
                  uuid, visible.empty() ? "no device" : visible));
}

absl::StatusOr<std::shared_ptr<GpuContext>> DeviceImporter::ContextOf(size_t device_index) {
  std::shared_ptr<GpuContext>& context = contexts_[device_index];
  if (context == nullptr) {
    std::unique_ptr<GpuContext> made;
    const GpuResult result = platform_->OpenContext(device_index, &made);
    if (!result.ok()) {
      return MakeError(SPECD_ERROR_INTERNAL, "device_uuid",
                       fmt::format("the device cannot be used: {}; look at nvidia-smi, and for an "
                                   "exclusive compute mode",
                                   result.text()));
    }
    context = std::move(made);
  }
  return context;
}

absl::Status DeviceImporter::Explain(const GpuResult& result, GpuContext& context,
                                     GpuMemoryKind kind) {
  const GpuResult health = context.Check();
  if (!health.ok()) {
    on_device_failure_(health.text());
    return MakeError(SPECD_ERROR_INTERNAL, "",
                     fmt::format("the device failed while memory was imported: {}; the daemon has "
                                 "to be restarted",
                                 health.text()));
  }
  const char* const source = kind == GpuMemoryKind::kIpc ? "handle" : "fd";
  switch (result.code()) {
    case kGpuOutOfMemory:
    case kGpuTooManyPeers:
      return MakeError(
          SPECD_ERROR_EXHAUSTED, source,
          fmt::format("{}; unregister regions, or free memory on the device", result.text()));
    case kGpuAlreadyMapped:
      return MakeError(SPECD_ERROR_STATE, "handle",
                       fmt::format("{}: what was allocated at this address before is still "
                                   "registered; unregister its regions first",
                                   result.text()));
    case kGpuPeerAccessUnsupported:
      return RegionError("device_uuid",
                         fmt::format("{}: the memory lies on another device, or in another MIG "
                                     "instance, than device_uuid says",
                                     result.text()));
    case kGpuNotSupported:
      return MakeError(SPECD_ERROR_UNSUPPORTED, "kind",
                       fmt::format("{}: this device or driver cannot share memory of kind = {}; "
                                   "allocate with cudaMalloc",
                                   result.text(), static_cast<uint32_t>(kind)));
    default:
      return RegionError(
          source, fmt::format("{}: it opens no memory of kind = {} with the sizes as said; is the "
                              "allocation still there, and the process that exported it?",
                              result.text(), static_cast<uint32_t>(kind)));
  }
}

}  // namespace specd
