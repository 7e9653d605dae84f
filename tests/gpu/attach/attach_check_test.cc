// The checks of specd-gpu-attach over the pretended GPU, which keeps CUDA's rules, and over a GPU
// that breaks them, which the checks must notice.
#include "tests/gpu/attach/attach_check.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "tests/gpu/driver/fake_peer_gpu.h"
#include "tests/support/pid_namespace.h"

namespace specd {
namespace {

struct Setting {
  explicit Setting(const FakeGpuOptions& options = {}) : gpu(options, 0) {
    setting.gpu = &gpu;
    setting.device = options.devices[0];
    setting.num_batches = 2;
    setting.held_up_ms = 300;
    setting.start_peer = [](const PeerEnvironment& environment) {
      return std::make_unique<GpuPeer>(0, environment);
    };
  }

  AttachResult Run(const std::string& name) {
    for (const AttachCheck& check : AttachChecks()) {
      if (name == check.name) return check.run(setting);
    }
    FAIL("no such check: " << name);
    return {};
  }

  FakePeerGpu gpu;
  AttachSetting setting;
};

// A GPU whose launches differ from the requested ones.
struct WrongPeerGpu final : PeerGpu {
  explicit WrongPeerGpu(PeerGpu* given) : gpu(*given) {}

  EngineGpu& context() override { return gpu.context(); }
  GpuResult AllocateVmm(const std::vector<uint64_t>& piece_bytes, GpuAddress* address) override {
    return gpu.AllocateVmm(piece_bytes, address);
  }
  GpuResult AllocateFromPool(uint64_t size_bytes, GpuAddress* address) override {
    return gpu.AllocateFromPool(size_bytes, address);
  }
  GpuResult Free(GpuAddress address) override { return gpu.Free(address); }
  GpuResult LoadKernel(PeerKernel kernel) override { return gpu.LoadKernel(kernel); }
  GpuResult Launch(GpuStream stream, const PeerLaunch& launch) override {
    PeerLaunch wrong = launch;
    if (change) change(&wrong);
    return gpu.Launch(stream, wrong);
  }
  PeerGpu& gpu;
  std::function<void(PeerLaunch*)> change = {};
};

double FigureOf(const AttachResult& result, const std::string& name) {
  for (const auto& [figure, value] : result.figures) {
    if (figure == name) return value;
  }
  FAIL("no such figure: " << name);
  return 0;
}

TEST_SUITE("process") {
  TEST_CASE("gpu attach: every check holds for what keeps CUDA's rules") {
    for (const AttachCheck& check : AttachChecks()) {
      CAPTURE(check.name);
      Setting own;
      const AttachResult result = check.run(own.setting);
      INFO(result.detail);
      const std::string name = check.name;
      const std::set<std::string> open = {"mps",          "pid_namespace",
                                          "many_streams", "host_functions",
                                          "first_launch", "exporter_killed"};
      const bool is_skipped = name == "pid_namespace" && !WhyNoPidNamespace().empty();
      const std::string expected = is_skipped            ? "skipped"
                                   : open.contains(name) ? "observed"
                                                         : "pass";
      CHECK(NameOf(result.status) == expected);
      CHECK_FALSE(result.detail.empty());
      // A check does undefined things only if they are its subject.
      CHECK(own.gpu.context().violations().empty() == !(name == "exporter_killed"));
    }
  }

  TEST_CASE("gpu attach: a driver that fails in the middle fails the check, with its text") {
    const std::pair<const char*, const char*> faults[] = {{"sub_allocation", "Import"},
                                                          {"sub_allocation", "Describe"},
                                                          {"opened_twice", "Close"},
                                                          {"bad_handles", "Check"},
                                                          {"descriptor", "Import"},
                                                          {"pieces", "Import"},
                                                          {"pool", "Close"},
                                                          {"words", "WaitValue"},
                                                          {"release_by_store", "RegisterHost"},
                                                          {"many_streams", "CreateStream"},
                                                          {"host_functions", "LaunchHostFunction"},
                                                          {"imported_read", "LaunchKernel"},
                                                          {"imported_read", "Close"},
                                                          {"kernel_store", "LaunchKernel"},
                                                          {"kernel_store", "Query"},
                                                          {"first_launch", "RegisterHost"},
                                                          {"exporter_killed", "Import"},
                                                          {"writer_killed", "Check"},
                                                          {"importer_killed", "Free"}};
    for (const auto& [name, call] : faults) {
      CAPTURE(name);
      Setting own;
      own.gpu.context().Inject({.call = call, .code = kGpuUnknown});
      const AttachResult result = own.Run(name);
      CHECK(result.status == AttachStatus::kFail);
      CHECK(result.detail.find("injected") != std::string::npos);
    }
  }

  TEST_CASE("gpu attach: a sticky error after the exporter's death is written down") {
    Setting own;
    own.gpu.context().Inject(
        {.call = "Copy", .after = 1, .code = kGpuIllegalAddress, .is_sticky = true});
    const AttachResult result = own.Run("exporter_killed");
    CHECK(result.status == AttachStatus::kObserved);
    CHECK(FigureOf(result, "read_code") == kGpuIllegalAddress);
    CHECK(FigureOf(result, "context_code") == kGpuIllegalAddress);
  }

  // The pretended GPU finds an exporter by its pid, which another namespace does not have.
  TEST_CASE("gpu attach: of another pid namespace a descriptor opens, and a handle does not") {
    if (!WhyNoPidNamespace().empty()) {
      MESSAGE("not played: " << WhyNoPidNamespace());
      return;
    }
    const AttachResult result = Setting().Run("pid_namespace");
    CHECK(result.status == AttachStatus::kObserved);
    CHECK(FigureOf(result, "code_descriptor") == kGpuOk);
    CHECK(FigureOf(result, "code_handle") != kGpuOk);
    Setting here;
    here.setting.start_peer = [](const PeerEnvironment&) { return std::make_unique<GpuPeer>(); };
    CHECK(here.Run("pid_namespace").status == AttachStatus::kFail);
    Setting broken;
    broken.gpu.context().Inject({.call = "RegisterHost", .code = kGpuUnknown});
    CHECK(broken.Run("pid_namespace").status == AttachStatus::kFail);
    Setting absent;
    absent.setting.start_peer = [](const PeerEnvironment&) {
      return std::make_unique<GpuPeer>("/bin/true", std::vector<std::string>{});
    };
    CHECK(absent.Run("pid_namespace").status == AttachStatus::kObserved);
  }

  TEST_CASE("gpu attach: a kernel that reads or stores elsewhere fails the check") {
    const std::pair<std::function<void(PeerLaunch*)>, const char*> faults[] = {
        {[](PeerLaunch* launch) { launch->size_bytes -= sizeof(uint64_t); }, "the kernel sums"},
        {[](PeerLaunch* launch) { launch->memory -= sizeof(uint64_t); }, "the kernel sums"},
        {[](PeerLaunch* launch) { launch->words += 3 * sizeof(uint64_t); }, "does not see"}};
    for (const auto& [change, expected] : faults) {
      Setting own;
      WrongPeerGpu wrong(&own.gpu);
      wrong.change = change;
      own.setting.gpu = &wrong;
      const AttachResult result = own.Run("imported_read");
      CHECK(result.status == AttachStatus::kFail);
      CHECK(result.detail.find(expected) != std::string::npos);
    }
  }

  TEST_CASE("gpu attach: a store that comes late or not at all fails the check") {
    GpuAddress hidden = 0;
    const std::pair<std::function<void(PeerLaunch*)>, const char*> faults[] = {
        {[&](PeerLaunch* launch) { launch->words = hidden; }, "does not see store 1"},
        {[](PeerLaunch* launch) { launch->count = 1; }, "does not see store 2"}};
    for (const auto& [change, expected] : faults) {
      Setting own;
      // The words are in memory that the CPU sees only when the CUDA stream has ended.
      REQUIRE(own.gpu.context().Allocate(4096, &hidden).ok());
      own.setting.patience_ms = 200;
      WrongPeerGpu wrong(&own.gpu);
      wrong.change = [&](PeerLaunch* launch) {
        launch->limit_ms = 300;
        change(launch);
      };
      own.setting.gpu = &wrong;
      const AttachResult result = own.Run("kernel_store");
      CAPTURE(result.detail);
      CHECK(result.status == AttachStatus::kFail);
      CHECK(result.detail.find(expected) != std::string::npos);
    }
  }

  TEST_CASE("gpu attach: as many streams wait beside another as there are queues") {
    CHECK(FigureOf(Setting().Run("many_streams"), "streams_until_held_up") == 32);
  }

  // As CUDA may do: the pretended GPU has one thread for all of them.
  TEST_CASE("gpu attach: a function of the host that waits holds up those of other streams") {
    const AttachResult result = Setting().Run("host_functions");
    CHECK(FigureOf(result, "held_up") == 1);
  }

  TEST_CASE("gpu attach: a first launch may wait or not, but not with EAGER") {
    const AttachResult lazy = Setting().Run("first_launch");
    CHECK(FigureOf(lazy, "held_by_stream") == 1);
    CHECK(FigureOf(lazy, "held_by_kernel") == 1);
    Setting eager;
    eager.setting.held_up_ms = eager.setting.patience_ms;
    eager.setting.start_peer = [](const PeerEnvironment&) {
      return std::make_unique<GpuPeer>(0, PeerEnvironment{"CUDA_MODULE_LOADING=EAGER"});
    };
    const AttachResult result = eager.Run("first_launch");
    CHECK(result.status == AttachStatus::kObserved);
    CHECK(FigureOf(result, "held_by_stream") == 0);
    CHECK(FigureOf(result, "held_by_kernel") == 0);
    Setting deaf;
    deaf.setting.patience_ms = 200;
    deaf.setting.start_peer = [](const PeerEnvironment&) { return std::make_unique<GpuPeer>(); };
    const AttachResult failed = deaf.Run("first_launch");
    CHECK(failed.status == AttachStatus::kFail);
    CHECK(failed.detail.find("with EAGER a first launch waits") != std::string::npos);
  }

  TEST_CASE("gpu attach: a kernel that nobody releases ends when its time is over") {
    Setting own;
    GpuAddress words = 0;
    GpuStream stream;
    FakeGpuContext& context = own.gpu.context();
    REQUIRE(context.Allocate(4096, &words).ok());
    REQUIRE(context.CreateStream(&stream).ok());
    for (const PeerKernel kernel : {PeerKernel::kRead, PeerKernel::kEcho}) {
      uint64_t seen[kNumPeerWords] = {};
      REQUIRE(context.Copy(stream, reinterpret_cast<void*>(words), seen, sizeof(seen)).ok());
      REQUIRE(own.gpu.Launch(stream, {.kernel = kernel, .words = words, .limit_ms = 1}).ok());
      REQUIRE(context.Copy(stream, seen, reinterpret_cast<void*>(words), sizeof(seen)).ok());
      REQUIRE(context.Synchronize(stream).ok());
      CHECK(seen[kEnd] == kOutOfTime);
    }
  }

  TEST_CASE("gpu attach: a device without what a check is about skips it") {
    FakeGpuOptions options;
    options.devices[0].has_64_bit_words = false;
    for (const char* name : {"words", "release_by_store", "many_streams", "first_launch"}) {
      CHECK(Setting(options).Run(name).status == AttachStatus::kSkipped);
    }
  }
}

}  // namespace
}  // namespace specd
