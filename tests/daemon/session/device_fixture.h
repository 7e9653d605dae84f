// SeenPlatform shows tests a session's side of device memory.
//
// The platform opens contexts of the pretended GPU and remembers them. SpecOf describes an
// allocation as an engine does.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ipc/memory/device_region.h"
#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"

namespace specd::test {

inline constexpr uint64_t kDeviceBytes = uint64_t{2} << 20;  // size of an allocation

class SeenPlatform final : public GpuPlatform {
 public:
  GpuResult ListDevices(std::vector<GpuDevice>* devices) override {
    return FakeGpuPlatform().ListDevices(devices);
  }
  GpuResult OpenContext(size_t device_index, std::unique_ptr<GpuContext>* context) override {
    auto made = std::make_unique<FakeGpuContext>(FakeGpuOptions(), device_index);
    gpu = made.get();
    opened_.at(device_index) = made.get();
    *context = std::move(made);
    return GpuResult::Ok();
  }
  // Any thread.
  bool IsMapped(const void* address, size_t device_index = 0) const {
    FakeGpuContext* const context = opened_.at(device_index);
    GpuAllocation allocation;
    return context != nullptr &&
           context->Describe(reinterpret_cast<GpuAddress>(address), &allocation).ok();
  }
  // num_imports counts mapped memory of other processes on any device. num_violations counts uses
  // that CUDA leaves undefined.
  size_t num_imports() const {
    size_t count = 0;
    for (FakeGpuContext* const context : opened_) {
      if (context != nullptr) count += context->num_imports();
    }
    return count;
  }
  size_t num_violations() const {
    size_t count = 0;
    for (FakeGpuContext* const context : opened_) {
      if (context != nullptr) count += context->violations().size();
    }
    return count;
  }

  FakeGpuContext* gpu = nullptr;  // the context that was opened last

 private:
  std::array<std::atomic<FakeGpuContext*>, 2> opened_{};  // by device
};

// Describes a new allocation of the peer, as the peer's library would.
inline DeviceRegionSpec SpecOf(GpuPeer& peer) {
  const PeerReply made = peer.Call({.op = PeerOp::kAllocate, .size_bytes = kDeviceBytes});
  const PeerReply exported = peer.Call({.op = PeerOp::kExport, .address = made.address});
  DeviceRegionSpec spec{.kind = 1,
                        .device_uuid = FakeGpuOptions().devices[0].uuid,
                        .handle = {},
                        .base_bytes = kDeviceBytes,
                        .size_bytes = kDeviceBytes,
                        .buffer_id = exported.buffer_id,
                        .export_pid = static_cast<uint32_t>(peer.pid())};
  constexpr char kDigits[] = "0123456789abcdef";
  for (const uint8_t byte : exported.handle) {
    spec.handle += kDigits[byte >> 4];
    spec.handle += kDigits[byte & 15];
  }
  return spec;
}

}  // namespace specd::test
