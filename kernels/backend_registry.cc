#include "kernels/backend_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "kernels/answer_check.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr size_t kNameBytesMax = 32;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

absl::Status CheckName(std::string_view name) {
  if (!name.empty() && name.size() <= kNameBytesMax &&
      std::all_of(name.begin(), name.end(), IsNameByte)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("name = \"{}\" of a backend is not 1 .. {} of a-z, 0-9, \"_\" and \"-\"; a colon "
                  "divides it from the index of a device",
                  name, kNameBytesMax));
}

struct DeviceName {
  std::string_view backend;
  std::optional<uint32_t> index;
};

absl::StatusOr<DeviceName> ParseDevice(std::string_view device) {
  const size_t colon = device.find(':');
  if (colon == std::string_view::npos) return DeviceName{device, std::nullopt};
  const std::string_view digits = device.substr(colon + 1);
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
  if (error == std::errc() && end == digits.end() && index <= kDeviceIndexMax) {
    return DeviceName{device.substr(0, colon), index};
  }
  return absl::InvalidArgumentError(
      fmt::format("device \"{}\": \"{}\" is no index in 0 .. {}; write a device as \"cuda:0\"",
                  device, digits, kDeviceIndexMax));
}

}  // namespace

BackendRegistry::BackendRegistry(const std::vector<BackendEntry>& entries) {
  for (const BackendEntry& entry : entries) SPECD_CHECK(BackendRegistry::Register(entry).ok());
}

absl::Status BackendRegistry::Register(BackendEntry entry) {
  if (absl::Status status = CheckName(entry.name); !status.ok()) return status;
  if (entry.make == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("backend \"{}\" has no function `make`; give one", entry.name));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (FindLocked(entry.name) != nullptr) {
    return absl::AlreadyExistsError(
        fmt::format("backend \"{}\" is registered already (the backends are {}); choose another "
                    "name",
                    entry.name, NamesText()));
  }
  entries_.push_back(std::make_unique<const BackendEntry>(std::move(entry)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> BackendRegistry::Make(std::string_view device,
                                                               const BackendOptions& options) {
  const absl::StatusOr<const BackendEntry*> entry = Find(device);
  if (!entry.ok()) return entry.status();
  if (options.cuda_stream != nullptr && !(*entry)->takes_cuda_stream) {
    return absl::InvalidArgumentError(fmt::format(
        "cuda_stream: backend \"{}\" takes none; leave it NULL, or use \"cuda\"", (*entry)->name));
  }
  BackendOptions of_device = options;
  of_device.device_index = ParseDevice(device)->index;
  try {
    absl::StatusOr<std::unique_ptr<Backend>> made = (*entry)->make(of_device);
    if (!made.ok()) return made;
    if (*made != nullptr) {
      return (*entry)->is_own ? *std::move(made) : WithCheckedAnswers(*std::move(made));
    }
    return absl::InternalError(
        fmt::format("backend \"{}\" made nothing and gave no reason", (*entry)->name));
  } catch (const std::exception& error) {
    return absl::InternalError(
        fmt::format("backend \"{}\" threw an exception when it was made: {}; its functions must "
                    "return errors as a status",
                    (*entry)->name, error.what()));
  }
}

absl::StatusOr<const BackendEntry*> BackendRegistry::Find(std::string_view device) const {
  const absl::StatusOr<DeviceName> name = ParseDevice(device);
  if (!name.ok()) return name.status();
  const std::lock_guard<std::mutex> lock(mutex_);
  const BackendEntry* const entry = FindLocked(name->backend);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("backend \"{}\" is unknown; the backends are {}", name->backend, NamesText()));
  }
  if (name->index.has_value() && !entry->has_devices) {
    return absl::InvalidArgumentError(
        fmt::format("device \"{}\": backend \"{}\" has one device only; write \"{}\"", device,
                    entry->name, entry->name));
  }
  return entry;
}

absl::StatusOr<std::string> BackendRegistry::FullName(std::string_view device) const {
  const absl::StatusOr<const BackendEntry*> entry = Find(device);
  if (!entry.ok()) return entry.status();
  if (!(*entry)->has_devices) return (*entry)->name;
  return fmt::format("{}:{}", (*entry)->name, ParseDevice(device)->index.value_or(0));
}

std::vector<std::string> BackendRegistry::Names() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> names;
  for (const auto& entry : entries_) names.push_back(entry->name);
  return names;
}

const BackendEntry* BackendRegistry::FindLocked(std::string_view name) const {
  for (const auto& entry : entries_) {
    if (entry->name == name) return entry.get();
  }
  return nullptr;
}

std::string BackendRegistry::NamesText() const {
  std::string names;
  for (const auto& entry : entries_) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", entry->name);
  }
  return names;
}

}  // namespace specd
