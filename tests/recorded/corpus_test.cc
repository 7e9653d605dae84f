// The corpus of tests/data/traces, bit for bit: lives of an engine through the C interface, and
// traces on every backend that runs here. A person records a file before a change that must not
// move an answer.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/recorded/api_params.h"
#include "tests/recorded/file.h"
#include "tests/recorded/lockstep.h"
#include "tools/replay/named_backend.h"
#include "tools/replay/verify_command.h"

using specd::recorded::ApiParams;
using specd::recorded::Life;
using specd::recorded::Recording;

namespace {

// The differences of one file that are shown; the first says enough.
constexpr size_t kShownMax = 20;

std::vector<std::string> PathsOf(std::string_view extension) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SPECD_CORPUS)) {
    if (entry.path().extension() == extension) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  REQUIRE(paths.size() >= 3);
  return paths;
}

std::vector<std::string> RecordingPaths() { return PathsOf(".jsonl"); }

// The recordings are older than the refusal of submissions that need a role which is not bound: a
// part with SPECD_DRAFTS_BY_SLOT was answered as invalid. Leaves out the lives that have one.
void LeaveOutUnbound(Recording* recording, size_t* num_left_out) {
  if (recording->engine.bind_draft_tokens != 0) return;
  *num_left_out += std::erase_if(recording->lives, [](const Life& life) {
    return std::any_of(life.steps.begin(), life.steps.end(), [](const auto& step) {
      return std::any_of(step.parts.begin(), step.parts.end(),
                         [](const auto& part) { return (part.flags & SPECD_DRAFTS_BY_SLOT) != 0; });
    });
  });
}

void CheckNoDifference(const std::vector<std::string>& differences) {
  for (size_t i = 0; i < std::min(differences.size(), kShownMax); ++i) FAIL_CHECK(differences[i]);
  if (differences.size() > kShownMax) FAIL_CHECK(differences.size() << " differences in all");
}

void CheckTraces(specd::replay::ReplayBackend* backend) {
  for (const std::string& path : PathsOf(".mcap")) {
    CAPTURE(path);
    specd::replay::TraceReader reader({path});
    const auto report = VerifyTrace(&reader, backend, specd::replay::CommandOptions());
    REQUIRE_MESSAGE(report.ok(), report.status().ToString());
    for (const auto& difference : report->differences) {
      FAIL_CHECK(difference.round << ": " << difference.text);
    }
    CHECK(report->num_different == 0);
    CHECK(report->num_equal_by_rows + report->num_equal_by_scalars > 0);
    CHECK(reader.warnings().empty());
  }
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("recorded traces: every backend that is here") {
    const std::vector<std::string> names = specd::replay::BackendsHere();
    REQUIRE(names.size() >= 3);
    for (const std::string& name : names) {
      CAPTURE(name);
      auto backend = specd::replay::MakeNamedBackend(name);
      REQUIRE(backend.ok());
      specd::replay::ReplayBackend replay(*std::move(backend), 2);
      CheckTraces(&replay);
    }
  }

  TEST_CASE("recorded traces: the CUDA backend over emulated blocks") {
    specd::FakeGpu gpu;
    {
      auto backend = specd::MakeCudaBackend(std::make_unique<specd::FakeGpuDriver>(&gpu));
      REQUIRE(backend.ok());
      specd::replay::ReplayBackend replay(*std::move(backend), 1);
      CheckTraces(&replay);
    }
    CHECK(gpu.num_launches > 0);
  }

  TEST_CASE("recorded rounds answer as recorded, one life at a time") {
    size_t num_left_out = 0;
    for (const std::string& path : RecordingPaths()) {
      Recording recording = specd::recorded::ReadRecording(path);
      LeaveOutUnbound(&recording, &num_left_out);
      const std::vector<Life> found = PlayAlone(recording.engine, recording.lives);
      CheckNoDifference(Differences(recording.lives, found, /*with_stats=*/true));
    }
    CHECK(num_left_out == 4);
  }

  TEST_CASE("recorded rounds answer as recorded, all lives in one batch") {
    size_t num_left_out = 0;
    for (const std::string& path : RecordingPaths()) {
      Recording recording = specd::recorded::ReadRecording(path);
      LeaveOutUnbound(&recording, &num_left_out);
      if (recording.engine.only_alone != 0) continue;
      for (const uint32_t threads : {1u, 3u}) {
        const std::vector<Life> found = PlayTogether(recording.engine, recording.lives, threads);
        CheckNoDifference(Differences(recording.lives, found, /*with_stats=*/false));
      }
    }
  }

  TEST_CASE("recorded rounds use every parameter, method and mode of logprobs") {
    std::set<std::string> used;
    for (const std::string& path : RecordingPaths()) {
      for (const Life& life : specd::recorded::ReadRecording(path).lives) {
        for (const std::string& param : life.params) {
          used.insert(param);
          used.insert(param.substr(0, param.find('=')));
        }
      }
    }
    for (const std::string& name : ApiParams::Names()) CHECK_MESSAGE(used.contains(name), name);
    for (const std::string name :
         {"verify=auto", "verify=greedy", "verify=exact_match", "verify=token", "verify=block",
          "logprobs_mode=raw_logprobs", "logprobs_mode=processed_logprobs",
          "logprobs_mode=raw_logits", "logprobs_mode=processed_logits",
          "logprobs_mode=unfiltered_logprobs"}) {
      CHECK_MESSAGE(used.contains(name), name);
    }
  }
}
