// TracedSession is a session with a recorder and the engine's end of it in one process, over the
// CPU or a backend of the test. Rows are written by the test.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/memory_budget.h"
#include "daemon/recorder/trace_recorder.h"
#include "daemon/session/session.h"
#include "ipc/base/mapping.h"
#include "ipc/segment/engine_channel.h"
#include "tests/daemon/recorder/read_trace.h"
#include "tests/support/temporary_folder.h"

namespace specd::test {

// The lines that a recorder logs.
class TraceLines {
 public:
  TraceLog log() {
    return [this](TraceSeverity, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(text);
    };
  }
  bool Contain(std::string_view text) {
    const std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) {
      if (line.find(text) != std::string::npos) return true;
    }
    return false;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// One sequence's part of a round, with the arrays that its record points to.
struct DraftOf {
  SequenceHandle sequence = 0;
  std::vector<TokenId> tokens = {};
  std::vector<uint32_t> target_rows = {};
  std::vector<DraftKind> kinds = {};
  std::vector<uint32_t> draft_rows = {};
  std::vector<int32_t> mask_rows = {};
  std::vector<int32_t> parents = {};  // empty: a chain
};

struct TracedSession {
  static constexpr SessionLimits kLimits = {64, 4, 4, 3, 2, 4};
  static constexpr uint32_t kNumRows = 16;
  static constexpr size_t kVocab = 64;

  struct Options {
    std::string trace_options;
    std::string directory = {};                  // empty: one of its own
    std::unique_ptr<Backend> backend = nullptr;  // null: the CPU
    CreateFile create_file = &FileWriter::Create;
    Clock* clock = Clock::Real();
    bool has_recorder = true;
    MemoryBudget* memory = nullptr;  // null: not bounded
    SessionLimits limits = kLimits;
    uint32_t num_rows = kNumRows;
  };

  explicit TracedSession(Options given);

  // Two tensors of num_rows rows, the target first, and mask rows.
  void BindRows();
  float* TargetRow(uint32_t row) {
    return static_cast<float*>(rows->data()) + size_t{row} * limits.vocab_size;
  }
  float* DraftRow(uint32_t row) { return TargetRow(num_rows + row); }
  size_t mask_words() const { return (limits.vocab_size + 31) / 32; }
  uint32_t* MaskRow(uint32_t row) {
    return reinterpret_cast<uint32_t*>(TargetRow(2 * num_rows)) + row * mask_words();
  }
  void FillRows(uint64_t seed, float sigma = 2.0f);

  SequenceHandle Open(const std::string& name, const SequenceParams& params,
                      const SequenceHistory& history = {}) {
    auto info = session->OpenSequences(name, params, history);
    REQUIRE_MESSAGE(info.ok(), std::string(info.status().message()));
    return info->front().handle;
  }
  SequenceHandle Open(const std::string& name, double temperature = 1) {
    SequenceParams params;
    params.temperature = temperature;
    params.max_tokens = 100'000;
    params.ignore_eos = true;  // rounds go on
    params.has_seed = true;
    params.seed = 7;
    return Open(name, params);
  }

  // Submits a round and has it answered.
  std::vector<SequenceResult> Round(const std::vector<DraftOf>& drafts);
  // A chain of three sampled tokens over rows 0 .. 3.
  static DraftOf Sampled(SequenceHandle sequence, std::vector<TokenId> tokens = {5, 6, 7}) {
    return {.sequence = sequence,
            .tokens = std::move(tokens),
            .target_rows = {0, 1, 2, 3},
            .kinds = {DraftKind::kSampled, DraftKind::kSampled, DraftKind::kSampled},
            .draft_rows = {0, 1, 2}};
  }

  // Ends the session and completes the files.
  void Finish();
  ~TracedSession();

  std::vector<std::string> traces() const { return TracesIn(directory); }
  // The only trace.
  ReadTraceResult Read() {
    const std::vector<std::string> paths = traces();
    REQUIRE(paths.size() == 1);
    return ReadTrace(paths[0]);
  }

  SessionLimits limits;
  uint32_t num_rows;
  TemporaryFolder own_directory;
  std::string directory;
  TraceLines lines;
  SharedNames names;
  ModelProfile profile;
  std::unique_ptr<TraceRecorder> recorder;
  std::shared_ptr<Session> session;
  std::unique_ptr<Segment> segment;
  std::unique_ptr<EngineChannel> engine;
  std::unique_ptr<Mapping> rows;
  uint64_t round_id = 0;
};

}  // namespace specd::test
