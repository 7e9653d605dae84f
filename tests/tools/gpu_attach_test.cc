// The checks of specd-gpu-attach over the pretended GPU, which keeps CUDA's rules; and over one
// that breaks them, which has to be noticed.
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/support/fake_peer_gpu.h"
#include "tools/gpu_check/attach/attach_check.h"

namespace specd {
namespace {

struct Setting {
  explicit Setting(const FakeGpuOptions& options = {}) : gpu(options, 0) {
    setting.gpu = &gpu;
    setting.device = options.devices[0];
    setting.num_batches = 2;
    setting.copy_bytes = uint64_t{1} << 20;
    setting.max_events = 40;
    setting.start_peer = [] { return std::make_unique<GpuPeer>(); };
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
      const bool is_open = name == "mps" || name == "hand_off_latency" || name == "busy_hand_off" ||
                           name == "late_writer" || name == "many_events" ||
                           name == "many_streams" || name == "host_functions" ||
                           name == "exporter_killed";
      CHECK(std::string(NameOf(result.status)) == (is_open ? "observed" : "pass"));
      CHECK_FALSE(result.detail.empty());
      // What is undefined is only done where that is what is looked at.
      CHECK(own.gpu.context().violations().empty() == (name != "exporter_killed"));
    }
  }

  TEST_CASE("gpu attach: a driver that fails in the middle fails the check, with its text") {
    const std::pair<const char*, const char*> faults[] = {{"sub_allocation", "Import"},
                                                          {"sub_allocation", "Describe"},
                                                          {"opened_twice", "Close"},
                                                          {"bad_handles", "Check"},
                                                          {"descriptor", "Import"},
                                                          {"pool", "Close"},
                                                          {"words", "WaitValue"},
                                                          {"release_by_store", "RegisterHost"},
                                                          {"hand_off_latency", "WriteValue"},
                                                          {"busy_hand_off", "DestroyStream"},
                                                          {"late_writer", "Close"},
                                                          {"events", "OpenEvent"},
                                                          {"many_events", "DestroyEvent"},
                                                          {"many_streams", "CreateStream"},
                                                          {"host_functions", "LaunchHostFunction"},
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

  TEST_CASE("gpu attach: how many waiting streams hold up another is the number of queues") {
    FakeGpuOptions options;
    options.num_queues = 9;
    CHECK(FigureOf(Setting(options).Run("many_streams"), "streams_until_held_up") == 9);
    options.num_queues = 128;
    CHECK(FigureOf(Setting(options).Run("many_streams"), "streams_until_held_up") == 0);
  }

  TEST_CASE("gpu attach: events are counted until one is refused, with the code") {
    CHECK(FigureOf(Setting().Run("many_events"), "events") == 40);
    for (const char* call : {"OpenEvent", "WaitEvent"}) {
      CAPTURE(call);
      Setting own;
      own.gpu.context().Inject({.call = call, .after = 5, .code = kGpuOutOfMemory});
      const AttachResult result = own.Run("many_events");
      CHECK(FigureOf(result, "events") == 5);
      CHECK(FigureOf(result, "refusal_code") == kGpuOutOfMemory);
    }
  }

  TEST_CASE("gpu attach: a device without what a check is about skips it") {
    FakeGpuOptions options;
    options.devices[0].has_64_bit_words = false;
    for (const char* name : {"words", "release_by_store", "hand_off_latency", "busy_hand_off",
                             "late_writer", "many_events", "many_streams"}) {
      CHECK(Setting(options).Run(name).status == AttachStatus::kSkipped);
    }
    options = {};
    options.devices[0].has_ipc_events = false;
    CHECK(Setting(options).Run("events").status == AttachStatus::kSkipped);
    CHECK(Setting(options).Run("many_events").status == AttachStatus::kSkipped);
  }
}

}  // namespace
}  // namespace specd
