// DeviceHost runs a daemon on a pretended device for tests, and DeviceEngine drives an engine that
// attaches to it.
//
// The daemon is in this process. Engines are processes of their own. Their rows and next tokens lie
// in the device's memory, and they use the C interface.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/make_cuda_backend.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/daemon/session/device_fixture.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/script_engine.h"

namespace specd::test {

inline constexpr int32_t kUntouched = 0x5a5a5a5a;
// Offsets in the engine's allocation, none of them a round number.
inline constexpr uint64_t kTargetOffset = 4;
inline constexpr uint64_t kDraftOffset = kTargetOffset + ScriptEngine::kRowsBytes + 12;
inline constexpr uint64_t kNextOffset = kDraftOffset + ScriptEngine::kRowsBytes + 20;

// A daemon whose rounds run on a pretended device.
struct DeviceHost {
  DeviceHost() {
    gpu.is_imported = [this](const void* address) { return platform.IsMapped(address); };
    gpu.is_on_other_device = [this](const void* address) { return platform.IsMapped(address, 1); };
    host.emplace(EngineHostOptions{
        [this] { return MakeCudaBackend(std::make_unique<FakeGpuDriver>(&gpu)); }, &importer});
  }

  FakeGpu gpu;
  SeenPlatform platform;
  DeviceImporter importer{&platform, [](std::string_view) {}};
  std::optional<EngineHost> host;
};

// Sends requests to the peer, in the order of an engine's life.
class DeviceEngine {
 public:
  explicit DeviceEngine(const std::string& uri, uint32_t stream_timeout_ms = 0,
                        const PeerEnvironment& environment = {})
      : peer(size_t{0}, environment) {
    PeerRequest open{.op = PeerOp::kOpenEngine, .value = stream_timeout_ms};
    uri.copy(open.path, sizeof(open.path) - 1);
    REQUIRE(peer.Call(open).code == SPECD_OK);
  }

  uint64_t Allocate(GpuMemoryKind kind = GpuMemoryKind::kIpc) {
    const PeerReply made =
        peer.Call({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = kDeviceBytes});
    REQUIRE(made.code == kGpuOk);
    return made.address;
  }
  PeerReply Import(uint64_t address, uint64_t size_bytes) {
    return peer.Call({.op = PeerOp::kImportDevice, .address = address, .size_bytes = size_bytes});
  }
  int Bind(int role, uint64_t region, uint64_t offset_bytes, uint64_t num_rows) {
    return peer
        .Call({.op = PeerOp::kBind,
               .address = offset_bytes,
               .size_bytes = num_rows,
               .word = static_cast<uint64_t>(role),
               .value = region})
        .code;
  }
  int Unregister(uint64_t region) {
    return peer.Call({.op = PeerOp::kUnregisterRegion, .value = region}).code;
  }
  void Fill(uint64_t address) {
    peer.Call({.op = PeerOp::kFill, .address = address, .size_bytes = kDeviceBytes, .value = 0x5a});
    peer.Call({.op = PeerOp::kFillRows, .address = address + kTargetOffset, .value = 1});
    peer.Call({.op = PeerOp::kFillRows, .address = address + kDraftOffset, .value = 0});
  }
  int32_t ReadId(uint64_t address) {
    return static_cast<int32_t>(peer.Call({.op = PeerOp::kRead, .address = address}).value);
  }

  // Shares rows and next tokens in one region.
  uint64_t ShareAll(uint64_t address) {
    Fill(address);
    const PeerReply region = Import(address, kDeviceBytes / 2);
    REQUIRE(region.code == SPECD_OK);
    CHECK(region.address == address);
    REQUIRE(Bind(SPECD_TARGET_ROWS, region.value, kTargetOffset, ScriptEngine::kRows) == SPECD_OK);
    REQUIRE(Bind(SPECD_DRAFT_ROWS, region.value, kDraftOffset, ScriptEngine::kRows) == SPECD_OK);
    REQUIRE(Bind(SPECD_NEXT_TOKEN, region.value, kNextOffset, ScriptEngine::kMaxSequences) ==
            SPECD_OK);
    return region.value;
  }

  GpuPeer peer;
};

// Plays the same script on the CPU, in this process.
struct HostEngine {
  HostEngine() {
    REQUIRE(engine.Open("embedded:cpu") == SPECD_OK);
    for (const bool is_target : {true, false}) {
      specd_region region;
      REQUIRE(specd_alloc(engine.get(), ScriptEngine::kRowsBytes, &region) == SPECD_OK);
      const std::vector<float> rows = ScriptEngine::Rows(is_target);
      std::copy(rows.begin(), rows.end(), static_cast<float*>(region.data));
      REQUIRE(engine.Bind(is_target ? SPECD_TARGET_ROWS : SPECD_DRAFT_ROWS, region.id, 0,
                          ScriptEngine::kRows) == SPECD_OK);
    }
  }
  std::vector<int32_t> Round(specd_sequence sequence, uint32_t first_row) {
    std::vector<int32_t> kept;
    REQUIRE(engine.Round(sequence, first_row, &kept) == SPECD_OK);
    return kept;
  }
  ScriptEngine engine;
};

}  // namespace specd::test
