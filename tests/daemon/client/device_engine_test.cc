// Engines in processes of their own with rows and next tokens in pretended device memory, over the
// C interface. They attach to a daemon, or are embedded on the device. The answers equal those of
// the CPU over the same rows in host memory.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/daemon/client/device_host.h"

namespace specd {
namespace {

using test::DeviceEngine;
using test::DeviceHost;
using test::HostEngine;
using test::kNextOffset;
using test::kUntouched;

constexpr uint64_t kBytes = test::kDeviceBytes;

// DeviceHost in a process of its own, to be killed.
class DaemonProcess {
 public:
  DaemonProcess() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const UniqueFd read_end(ends[0]);
    const UniqueFd write_end(ends[1]);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const DeviceHost daemon;
      const std::string& uri = daemon.host->uri;
      if (write(write_end.get(), uri.data(), uri.size()) < 0) _exit(1);
      while (true) pause();
    }
    char uri[128] = {};
    REQUIRE(read(read_end.get(), uri, sizeof(uri) - 1) > 0);
    uri_ = uri;
  }
  ~DaemonProcess() {
    Kill();
    std::filesystem::remove_all(std::filesystem::path(uri_.substr(5)).parent_path());
  }
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  const std::string& uri() const { return uri_; }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::string uri_;
};

// Plays rounds of three sequences on the device and on the host. `next` has the addresses of the
// device's next tokens in the engine's process.
void CheckRounds(DeviceEngine& device, const std::vector<uint64_t>& next) {
  HostEngine host;
  std::vector<int32_t> expected_next(ScriptEngine::kMaxSequences, kUntouched);
  size_t num_kept = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const PeerReply opened = device.peer.Call({.op = PeerOp::kOpenSequence, .value = seed});
    REQUIRE(opened.code == SPECD_OK);
    CHECK(opened.address == (opened.value & 0xffff));
    specd_sequence on_host = 0;
    REQUIRE(host.engine.OpenSequence(seed, &on_host) == SPECD_OK);
    for (uint32_t round = 0; round < 6; ++round) {
      const PeerReply answer =
          device.peer.Call({.op = PeerOp::kRound, .word = round * 5, .value = opened.value});
      REQUIRE(answer.code == SPECD_OK);
      const std::vector<int32_t> kept = host.Round(on_host, round * 5);
      REQUIRE(kept == std::vector<int32_t>(answer.tokens, answer.tokens + answer.size_bytes));
      REQUIRE_FALSE(kept.empty());
      num_kept += kept.size();
      expected_next[opened.address] = kept.back();
      for (const uint64_t address : next) {
        for (uint32_t slot = 0; slot < ScriptEngine::kMaxSequences; ++slot) {
          REQUIRE(device.ReadId(address + slot * sizeof(int32_t)) == expected_next[slot]);
        }
      }
    }
  }
  CHECK(num_kept > 24);  // drafts were accepted
  CHECK(num_kept < 72);  // and rejected
}

TEST_SUITE("process") {
  TEST_CASE("attached: rows and next tokens in the engine's device memory") {
    for (const GpuMemoryKind kind :
         {GpuMemoryKind::kIpc, GpuMemoryKind::kVmm, GpuMemoryKind::kPool}) {
      CAPTURE(static_cast<int>(kind));
      DeviceHost daemon;
      DeviceEngine engine(daemon.host->uri);
      const uint64_t address = engine.Allocate(kind);
      const uint64_t region = engine.ShareAll(address);
      CheckRounds(engine, {address + kNextOffset});
      CHECK(daemon.platform.gpu->num_imports() == 1);
      CHECK(daemon.gpu.num_launches > 0);
      // Bound memory stays: the engine must not free it yet.
      CHECK(engine.Unregister(region) == SPECD_ERROR_STATE);
      CHECK(daemon.platform.gpu->num_imports() == 1);
      const uint64_t other = engine.Allocate(kind);
      engine.ShareAll(other);
      CHECK(engine.Unregister(region) == SPECD_OK);
      CHECK(daemon.platform.gpu->num_imports() == 1);
      CHECK(engine.peer.Call({.op = PeerOp::kFree, .address = address}).code == kGpuOk);
      CHECK(engine.peer.Call({.op = PeerOp::kCountViolations}).value == 0);
      // Freed memory is in no round: the rows that are bound now decide.
      const PeerReply opened = engine.peer.Call({.op = PeerOp::kOpenSequence, .value = 9});
      CHECK(engine.peer.Call({.op = PeerOp::kRound, .value = opened.value}).size_bytes > 0);
      CHECK(daemon.platform.gpu->violations().empty());
    }
  }

  // As PyTorch's expandable segments give memory out: the ends of pieces are not known.
  TEST_CASE("rows and next tokens that lie over the seams of physical memory") {
    for (const bool is_attached : {true, false}) {
      CAPTURE(is_attached);
      DeviceHost daemon;
      DeviceEngine engine(is_attached ? daemon.host->uri : "embedded:cuda");
      const PeerReply made = engine.peer.Call({.op = PeerOp::kAllocate,
                                               .kind = GpuMemoryKind::kVmm,
                                               .size_bytes = 3 * kBytes,
                                               .piece_bytes = kBytes});
      REQUIRE(made.code == kGpuOk);
      // The first seam goes through the middle of a target row. The second seam is in the region
      // too.
      const uint64_t row_bytes = ScriptEngine::kRowsBytes / ScriptEngine::kRows;
      const uint64_t before_bytes = test::kTargetOffset + 5 * row_bytes + row_bytes / 2;
      const uint64_t address = made.address + kBytes - before_bytes / 4 * 4;
      engine.Fill(address);
      const PeerReply region = engine.Import(address, kBytes + kBytes / 2);
      REQUIRE(region.code == SPECD_OK);
      REQUIRE(engine.Bind(SPECD_TARGET_ROWS, region.value, test::kTargetOffset,
                          ScriptEngine::kRows) == SPECD_OK);
      REQUIRE(engine.Bind(SPECD_DRAFT_ROWS, region.value, test::kDraftOffset,
                          ScriptEngine::kRows) == SPECD_OK);
      // Ids of slots on both sides of the second seam.
      const uint64_t next_offset = made.address + 2 * kBytes - 8 - address;
      REQUIRE(engine.Bind(SPECD_NEXT_TOKEN, region.value, next_offset,
                          ScriptEngine::kMaxSequences) == SPECD_OK);
      engine.peer.Call({.op = PeerOp::kFill,
                        .address = address + next_offset,
                        .size_bytes = ScriptEngine::kMaxSequences * sizeof(int32_t),
                        .value = 0x5a});
      CheckRounds(engine, {address + next_offset});
      CHECK(engine.peer.Call({.op = PeerOp::kCountViolations}).value == 0);
      if (is_attached) CHECK(daemon.platform.gpu->violations().empty());
    }
  }

  TEST_CASE("attached: an address in the middle of an allocation, aligned to an element only") {
    DeviceHost daemon;
    DeviceEngine engine(daemon.host->uri);
    const uint64_t address = engine.Allocate() + 4096 + 4;
    engine.Fill(address - 4096 - 4);
    engine.peer.Call({.op = PeerOp::kFillRows, .address = address, .value = 1});
    engine.peer.Call({.op = PeerOp::kFillRows, .address = address + (1 << 20), .value = 0});
    // The target rows fill their region to the last byte.
    const PeerReply target = engine.Import(address, ScriptEngine::kRowsBytes);
    const PeerReply rest = engine.Import(address + (1 << 20), kBytes / 4);
    REQUIRE(target.code == SPECD_OK);
    REQUIRE(rest.code == SPECD_OK);
    CHECK(engine.Bind(SPECD_TARGET_ROWS, target.value, 4, ScriptEngine::kRows) ==
          SPECD_ERROR_REGION);
    CHECK(engine.Bind(SPECD_TARGET_ROWS, target.value, ~uint64_t{3}, 1) == SPECD_ERROR_REGION);
    REQUIRE(engine.Bind(SPECD_TARGET_ROWS, target.value, 0, ScriptEngine::kRows) == SPECD_OK);
    REQUIRE(engine.Bind(SPECD_DRAFT_ROWS, rest.value, 0, ScriptEngine::kRows) == SPECD_OK);
    // Binds every rank's copy, in any order. A copy outside device memory would be refused.
    const uint64_t next = ScriptEngine::kRowsBytes;
    REQUIRE(engine.Bind(SPECD_NEXT_TOKEN + 7, rest.value, next, 6) == SPECD_OK);
    REQUIRE(engine.Bind(SPECD_NEXT_TOKEN, rest.value, next + 24, 6) == SPECD_OK);
    CHECK(engine.Bind(SPECD_NEXT_TOKEN + 8, rest.value, next, 6) == SPECD_ERROR_UNSUPPORTED);
    const uint64_t ids = address + (1 << 20) + next;
    CheckRounds(engine, {ids, ids + 24});
  }

  TEST_CASE("embedded on the device: the address itself, and nothing is mapped") {
    DeviceEngine engine("embedded:cuda");
    const uint64_t address = engine.Allocate();
    const uint64_t region = engine.ShareAll(address);
    CheckRounds(engine, {address + kNextOffset});
    CHECK(engine.Unregister(region) == SPECD_ERROR_STATE);
    engine.ShareAll(engine.Allocate());
    CHECK(engine.Unregister(region) == SPECD_OK);
    CHECK(engine.Unregister(region) == SPECD_ERROR_NOT_FOUND);
    CHECK(engine.peer.Call({.op = PeerOp::kFree, .address = address}).code == kGpuOk);
    CHECK(engine.peer.Call({.op = PeerOp::kCountViolations}).value == 0);
    // Refused: a range past the end, an address without memory, and a range of no bytes.
    const uint64_t small = engine.Allocate();
    CHECK(engine.Import(small, uint64_t{1} << 30).code == SPECD_ERROR_REGION);
    CHECK(engine.Import(small, 0).code == SPECD_ERROR_REGION);
    CHECK(engine.Import(4096, 16).code == SPECD_ERROR_REGION);
    CHECK(engine.Import(small, ~uint64_t{0}).code == SPECD_ERROR_REGION);
  }

  TEST_CASE("device memory for a verifier on the CPU is refused where the engine runs") {
    DeviceEngine embedded("embedded:cpu");
    CHECK(embedded.Import(embedded.Allocate(), kBytes).code == SPECD_ERROR_UNSUPPORTED);
    const test::EngineHost cpu;
    DeviceEngine attached(cpu.uri);
    CHECK(attached.Import(attached.Allocate(), kBytes).code == SPECD_ERROR_UNSUPPORTED);
    CHECK(attached.Import(4096, 16).code == SPECD_ERROR_REGION);
  }

  TEST_CASE(
      "an engine that is killed with rows bound: the daemon unmaps them and serves the next") {
    DeviceHost daemon;
    {
      DeviceEngine engine(daemon.host->uri);
      engine.ShareAll(engine.Allocate());
      const PeerReply opened = engine.peer.Call({.op = PeerOp::kOpenSequence, .value = 1});
      CHECK(engine.peer.Call({.op = PeerOp::kRound, .value = opened.value}).code == SPECD_OK);
      engine.peer.Kill();
      // The hang-up is noticed by the control thread; a test that waits in vain hangs.
      while (daemon.platform.gpu->num_imports() > 0) std::this_thread::yield();
    }
    DeviceEngine next(daemon.host->uri);
    const uint64_t address = next.Allocate();
    next.ShareAll(address);
    CheckRounds(next, {address + kNextOffset});
    CHECK(daemon.platform.gpu->violations().empty());
  }

  TEST_CASE("a daemon that is killed leaves the engine its memory, and what was written there") {
    DaemonProcess daemon;
    DeviceEngine engine(daemon.uri());
    const uint64_t address = engine.Allocate();
    const uint64_t region = engine.ShareAll(address);
    const PeerReply opened = engine.peer.Call({.op = PeerOp::kOpenSequence, .value = 1});
    const PeerReply round = engine.peer.Call({.op = PeerOp::kRound, .value = opened.value});
    REQUIRE(round.size_bytes > 0);
    daemon.Kill();
    CHECK(engine.peer.Call({.op = PeerOp::kRound, .value = opened.value}).code ==
          SPECD_ERROR_DISCONNECTED);
    CHECK(engine.Unregister(region) == SPECD_ERROR_DISCONNECTED);
    CHECK(engine.ReadId(address + kNextOffset) == round.tokens[round.size_bytes - 1]);
    engine.peer.Call({.op = PeerOp::kCloseEngine});
    CHECK(engine.peer.Call({.op = PeerOp::kFree, .address = address}).code == kGpuOk);
    CHECK(engine.peer.Call({.op = PeerOp::kCountViolations}).value == 0);
  }
}

}  // namespace
}  // namespace specd
