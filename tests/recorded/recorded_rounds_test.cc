// Answers of recorded rounds, bit for bit. A person makes a recording with specd_record_rounds,
// before a change that must not move an answer.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/recorded/api_params.h"
#include "tests/recorded/file.h"
#include "tests/recorded/lockstep.h"

using specd::recorded::ApiParams;
using specd::recorded::Life;
using specd::recorded::Recording;

namespace {

// The differences of one file that are shown; the first says enough.
constexpr size_t kShownMax = 20;

std::vector<std::string> RecordingPaths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SPECD_RECORDED_ROUNDS)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  REQUIRE(!paths.empty());
  return paths;
}

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

}  // namespace

TEST_SUITE("unit") {
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
