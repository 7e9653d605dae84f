// Traces of sessions on a pretended device, whose rows and drafts lie in its memory. They say what
// the trace of the same generation on the CPU says, to the bit: rows, hashes, drafts, decisions.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/daemon/client/graph_device.h"
#include "tests/daemon/recorder/read_trace.h"
#include "tests/support/decision_text.h"

namespace specd {
namespace {

using test::Generator;
using test::kMaxDraft;
using test::kSequences;
using test::kVocab;
using test::ReadTraceResult;
using test::Tensors;
using test::TraceOf;

constexpr uint32_t kSteps = 30;

class TraceDirectory {
 public:
  TraceDirectory() {
    path_ = std::filesystem::temp_directory_path() / "specd-device-trace-XXXXXX";
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  TraceDirectory(const TraceDirectory&) = delete;
  TraceDirectory& operator=(const TraceDirectory&) = delete;
  // replay_device_test.py asks for the traces.
  ~TraceDirectory() {
    if (std::getenv("SPECD_KEEP_TRACES") == nullptr) std::filesystem::remove_all(path_);
  }

  TraceOf With(const char* options) const { return {path_.c_str(), options}; }
  std::string RowPath() const { return PathOf(".rows"); }
  ReadTraceResult Read() const { return test::ReadTrace(PathOf(".mcap")); }

 private:
  std::string PathOf(const std::string& ending) const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().string().ends_with(ending)) paths.push_back(entry.path().string());
    }
    REQUIRE(paths.size() == 1);
    return paths[0];
  }

  std::string path_;
};

// Waits for each answer. The memory of the engine as each round found it is added to `seen`.
void Generate(Generator* g, bool by_slot, std::vector<Tensors>* seen = nullptr) {
  g->Open();
  for (uint32_t step = 0; step < kSteps; ++step) {
    g->Forward(g->sequences);
    const std::vector<specd_draft> parts = g->Drafts(by_slot);
    if (parts.empty()) break;
    if (seen != nullptr) seen->push_back(*g->tensors);
    REQUIRE(specd_submit(g->engine, step, parts.data(), static_cast<uint32_t>(parts.size())) ==
            SPECD_OK);
    REQUIRE(g->Poll(step));
    // Nothing of the engine's memory is looked at after the answer.
    std::memset(g->tensors->draft_tokens, 0x3C, sizeof(g->tensors->draft_tokens));
    std::memset(g->tensors->target, 0x3C, sizeof(g->tensors->target));
    std::memset(g->tensors->draft, 0x3C, sizeof(g->tensors->draft));
  }
}

ReadTraceResult OnCpu(const char* options) {
  const TraceDirectory directory;
  {
    Generator g("embedded:cpu", nullptr, directory.With(options));
    specd_region region = {};
    REQUIRE(specd_alloc(g.engine, sizeof(Tensors), &region) == SPECD_OK);
    g.tensors = static_cast<Tensors*>(region.data);
    g.BindAll(region.id);
    Generate(&g, false);
  }
  return directory.Read();
}

struct TracedTask {
  const TraceRound* round;
  const TraceTask* task;
};
// The tasks of the sequences that ParamsOf describes, by the number in their names.
std::map<std::string, std::vector<TracedTask>> TasksByName(const ReadTraceResult& trace) {
  std::map<std::string, std::vector<TracedTask>> tasks;
  for (const TraceRound& round : trace.rounds) {
    for (const TraceTask& task : round.tasks) {
      const TraceAnswer& answer = round.answers[task.answer];
      if (answer.status != RoundStatus::kOk) continue;
      const TraceOpening* const opening = trace.Opening(answer.sequence);
      REQUIRE(opening != nullptr);
      tasks[opening->request_id].push_back({&round, &task});
    }
  }
  REQUIRE(tasks.size() == kSequences);
  return tasks;
}

// A chain ends before the first kNoToken, and no code reads what follows.
std::vector<TokenId> ReadDraft(const TraceTask& task) {
  return {task.tokens.begin(), std::find(task.tokens.begin(), task.tokens.end(), kNoToken)};
}

// What the rounds of a sequence decided, and from what, is the same in both traces. Returns the
// number of compared decisions.
int CheckSameTasks(const ReadTraceResult& device, const ReadTraceResult& cpu) {
  const auto on_device = TasksByName(device);
  int num_judged = 0;
  for (const auto& [key, expected] : TasksByName(cpu)) {
    const std::string& name = key;
    CAPTURE(name);
    const std::vector<TracedTask>& tasks = on_device.at(name);
    REQUIRE(tasks.size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      const TraceTask& task = *tasks[i].task;
      const TraceTask& wanted = *expected[i].task;
      CHECK(ReadDraft(task) == ReadDraft(wanted));
      CHECK(task.first_position == wanted.first_position);
      CHECK(task.round_base == wanted.round_base);
      CHECK_FALSE(task.continues);
      CHECK(task.confirmed == wanted.confirmed);
      // A host that knows the draft leaves out what follows its end; by slot it stays.
      REQUIRE(task.decisions.size() >= wanted.decisions.size());
      for (size_t place = 0; place < task.decisions.size(); ++place) {
        CAPTURE(place);
        if (place >= wanted.decisions.size()) {
          CHECK(DecisionText(task.decisions[place]) == DecisionText(PlaceDecision{}));
          continue;
        }
        num_judged += wanted.decisions[place].judged ? 1 : 0;
        CHECK(DecisionText(task.decisions[place]) == DecisionText(wanted.decisions[place]));
      }
    }
  }
  return num_judged;
}

TEST_SUITE("unit") {
  TEST_CASE("a trace of device rounds holds their rows, drafts and decisions") {
    for (const bool by_slot : {false, true}) {
      CAPTURE(by_slot);
      const TraceDirectory directory;
      std::vector<Tensors> seen;
      {
        test::GraphDevice device;
        device.OpenEngine(nullptr, directory.With("level=rows,places=all,check=1"));
        device.BindAll();
        Generate(device.g.get(), by_slot, &seen);
      }
      const ReadTraceResult trace = directory.Read();
      CHECK(CheckSameTasks(trace, OnCpu("level=rounds")) > 100);
      for (const McapMetadata& metadata : trace.metadata) CHECK(metadata.name != "mismatch");
      REQUIRE(trace.rounds.size() == seen.size());
      for (size_t i = 0; i < seen.size(); ++i) {
        CAPTURE(i);
        const TraceRound& round = trace.rounds[i];
        CHECK(round.target.space == MemorySpace::kDevice);
        CHECK(round.no_rows == NoRows::kNone);
        // A target row for each place, and a draft row for each sampled token.
        size_t num_target = 0;
        size_t num_draft = 0;
        for (const TraceTask& task : round.tasks) {
          num_target += task.tokens.size() + 1;
          num_draft += static_cast<size_t>(
              std::count(task.kinds.begin(), task.kinds.end(), DraftKind::kSampled));
        }
        REQUIRE(round.rows.size() == num_target + num_draft);
        for (const TraceRow& row : round.rows) {
          const bool is_target = row.tensor == TraceTensor::kTarget;
          const float* const wanted =
              (is_target ? seen[i].target : seen[i].draft) + size_t{row.index} * kVocab;
          CHECK(test::RowFloats(directory.RowPath(), row.offset, kVocab) ==
                std::vector<float>(wanted, wanted + kVocab));
        }
      }
    }
  }

  TEST_CASE("a check finds a wrong answer of a device, also where drafts waited there") {
    for (const bool by_slot : {false, true}) {
      CAPTURE(by_slot);
      const TraceDirectory directory;
      {
        test::GraphDevice device;
        device.OpenEngine(nullptr, directory.With("level=rows,check=1"));
        device.BindAll();
        Generator* const g = device.g.get();
        g->Open();
        device.driver.after_round = [](const RoundBatch& batch) {
          TokenId& first = batch.tokens[2 * batch.tokens_stride];
          first = (first + 1) % static_cast<TokenId>(kVocab);
        };
        g->Forward(g->sequences);
        const std::vector<specd_draft> parts = g->Drafts(by_slot);
        REQUIRE(specd_submit(g->engine, 0, parts.data(), kSequences) == SPECD_OK);
        REQUIRE(g->Poll(0));
      }
      const ReadTraceResult trace = directory.Read();
      const auto is_mismatch = [](const McapMetadata& entry) { return entry.name == "mismatch"; };
      CHECK(std::any_of(trace.metadata.begin(), trace.metadata.end(), is_mismatch));
    }
  }

  TEST_CASE("hashes of rows on a device are those of the same rows on the host") {
    constexpr const char* kOptions = "level=hashes,every=3";
    const TraceDirectory directory;
    {
      test::GraphDevice device;
      device.OpenEngine(nullptr, directory.With(kOptions));
      device.BindAll();
      Generate(device.g.get(), false);
    }
    const ReadTraceResult trace = directory.Read();
    const ReadTraceResult cpu = OnCpu(kOptions);
    REQUIRE(trace.rounds.size() == cpu.rounds.size());
    size_t num_hashes = 0;
    for (size_t i = 0; i < trace.rounds.size(); ++i) {
      CAPTURE(i);
      REQUIRE(trace.rounds[i].rows.size() == cpu.rounds[i].rows.size());
      for (size_t row = 0; row < cpu.rounds[i].rows.size(); ++row, ++num_hashes) {
        CHECK(trace.rounds[i].rows[row].hash == cpu.rounds[i].rows[row].hash);
        CHECK(trace.rounds[i].rows[row].index == cpu.rounds[i].rows[row].index);
      }
    }
    CHECK(num_hashes > 20);
  }

  TEST_CASE("rows that the device does not give are counted, and the rounds are recorded") {
    const TraceDirectory directory;
    std::vector<Tensors> seen;
    {
      test::GraphDevice device;
      device.OpenEngine(nullptr, directory.With("level=rows"));
      device.BindAll();
      device.driver.failing_call = "ToHost";
      Generate(device.g.get(), false, &seen);
    }
    const ReadTraceResult trace = directory.Read();
    CHECK(CheckSameTasks(trace, OnCpu("level=rounds")) > 100);
    for (const TraceRound& round : trace.rounds) {
      CHECK(round.rows.empty());
      CHECK(round.level == TraceLevel::kRounds);
      CHECK(round.no_rows == NoRows::kUnread);
    }
    REQUIRE_FALSE(trace.drops.empty());
    CHECK(trace.drops.back().rows == seen.size());
    CHECK(trace.drops.back().rounds == 0);
    CHECK(trace.drops.back().why.find("the device did not give") != std::string::npos);
  }

  // The graph goes on without the host, so rows cannot be had; decisions can.
  TEST_CASE("a trace of rounds inside a graph holds their drafts, positions and decisions") {
    const ReadTraceResult cpu = OnCpu("level=rounds");
    for (const uint32_t ahead : {0u, 3u}) {
      CAPTURE(ahead);
      const TraceDirectory directory;
      {
        test::GraphDevice device;
        device.OpenEngine(nullptr, directory.With("level=rows,check=1"));
        device.BindAll();
        Generator* const g = device.g.get();
        g->Open();
        int stream = 0;
        REQUIRE(specd_enqueue_staged(g->engine, kSequences, &stream) == SPECD_OK);
        uint32_t staged = 0;
        for (uint32_t step = 0; step < kSteps; ++step) {
          for (; staged <= std::min(step + ahead, kSteps - 1); ++staged) {
            const std::vector<specd_draft> parts = g->Drafts(true);
            REQUIRE(specd_stage_round(g->engine, staged, parts.data(),
                                      static_cast<uint32_t>(parts.size())) == SPECD_OK);
          }
          g->Forward(g->sequences);
          device.driver.Replay(device.driver.others_work[&stream]);
          REQUIRE(device.driver.fault.ok());
          std::memset(g->tensors->draft_tokens, 0x3C, sizeof(g->tensors->draft_tokens));
          REQUIRE(g->Poll(step));
        }
        CHECK(device.driver.num_records > 0);
      }
      const ReadTraceResult trace = directory.Read();
      CHECK(CheckSameTasks(trace, cpu) > 100);
      for (const TraceRound& round : trace.rounds) {
        CHECK(round.staged);
        CHECK(round.rows.empty());
        CHECK(round.no_rows == NoRows::kChanged);
      }
      for (const McapMetadata& metadata : trace.metadata) CHECK(metadata.name != "mismatch");
    }
  }
}

}  // namespace
}  // namespace specd
