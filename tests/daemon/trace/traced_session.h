// TracedSession is a session with a recorder and the engine's end of it in one process, over the
// CPU or a backend of the test. Rows are written by the test.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "daemon/session/session.h"
#include "daemon/trace/trace_recorder.h"
#include "ipc/base/mapping.h"
#include "ipc/segment/engine_channel.h"
#include "tests/daemon/trace/read_trace.h"

namespace specd::test {

// A directory that goes with the object.
class TempDirectory {
 public:
  TempDirectory() {
    path_ = std::filesystem::temp_directory_path() / "specd-trace-XXXXXX";
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

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
  std::vector<TokenId> tokens;
  std::vector<uint32_t> target_rows;
  std::vector<DraftKind> kinds = {};
  std::vector<uint32_t> draft_rows = {};
  std::vector<int32_t> mask_rows = {};
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
  };

  explicit TracedSession(Options given) {
    directory = given.directory.empty() ? own_directory.path() : given.directory;
    if (given.has_recorder) {
      auto trace = ParseTraceOptions(directory, given.trace_options);
      REQUIRE_MESSAGE(trace.ok(), std::string(trace.status().message()));
      auto started = TraceRecorder::Start({.trace = *std::move(trace),
                                           .process = {.specd_version = "test",
                                                       .build = "a revision, a compiler",
                                                       .processor = "a CPU",
                                                       .tokenizer = "folder/tokenizer.json"},
                                           .clock = given.clock,
                                           .log = lines.log(),
                                           .create_file = given.create_file});
      REQUIRE_MESSAGE(started.ok(), std::string(started.status().message()));
      recorder = *std::move(started);
    }
    profile.eos_token_ids = {63};
    SessionOptions options;
    options.identity = {9, 77};
    options.limits = kLimits;
    options.profile = &profile;
    options.clock = given.clock;
    options.names = &names;
    options.recorder = recorder.get();
    if (given.backend == nullptr) given.backend = *MakeBackend("cpu");
    auto created = Session::Create(options, std::move(given.backend));
    REQUIRE_MESSAGE(created.ok(), std::string(created.status().message()));
    session = *std::move(created);
    auto attached = Segment::Attach(UniqueFd(fcntl(session->segment().fd(), F_DUPFD_CLOEXEC, 0)));
    REQUIRE(attached.ok());
    segment = std::make_unique<Segment>(*std::move(attached));
    engine = std::make_unique<EngineChannel>(segment.get());
    BindRows();
  }

  // Two tensors of kNumRows rows, the target first, and mask rows.
  void BindRows() {
    constexpr uint64_t kTensorBytes = kNumRows * kVocab * sizeof(float);
    constexpr uint64_t kMaskBytes = kNumRows * 2 * sizeof(uint32_t);
    UniqueFd fd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    constexpr uint64_t kSize = 2 * kTensorBytes + kMaskBytes;
    REQUIRE(ftruncate(fd.get(), static_cast<off_t>(kSize)) == 0);
    REQUIRE(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    auto mapped = Mapping::Map(fd.get(), kSize, MapAccess::kReadWrite);
    REQUIRE(mapped.ok());
    rows = std::make_unique<Mapping>(*std::move(mapped));
    const auto region = session->RegisterRegion(std::move(fd), kSize);
    REQUIRE(region.ok());
    TensorSpec spec;
    spec.num_rows = kNumRows;
    REQUIRE(session->Bind(TensorRole::kTargetRows, *region, spec).ok());
    spec.offset_bytes = kTensorBytes;
    REQUIRE(session->Bind(TensorRole::kDraftRows, *region, spec).ok());
    TensorSpec masks;
    masks.num_rows = kNumRows;
    masks.offset_bytes = 2 * kTensorBytes;
    REQUIRE(session->Bind(TensorRole::kGrammarMask, *region, masks).ok());
  }
  float* TargetRow(uint32_t row) { return static_cast<float*>(rows->data()) + row * kVocab; }
  float* DraftRow(uint32_t row) { return TargetRow(kNumRows + row); }
  uint32_t* MaskRow(uint32_t row) {
    return reinterpret_cast<uint32_t*>(TargetRow(2 * kNumRows)) + row * 2;
  }
  void FillRows(uint64_t seed, float sigma = 2.0f) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, sigma);
    for (size_t i = 0; i < size_t{2} * kNumRows * kVocab; ++i) TargetRow(0)[i] = normal(random);
  }

  SequenceHandle Open(const std::string& name, const SequenceParams& params) {
    auto info = session->OpenSequences(name, params);
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
  std::vector<SequenceResult> Round(const std::vector<DraftOf>& drafts) {
    std::vector<SequenceInput> inputs;
    for (const DraftOf& draft : drafts) {
      SequenceInput input;
      input.sequence = draft.sequence;
      input.draft = {.num_nodes = static_cast<int32_t>(draft.tokens.size()),
                     .tokens = draft.tokens.data(),
                     .kinds = draft.kinds.empty() ? nullptr : draft.kinds.data(),
                     .target_rows = draft.target_rows.data(),
                     .draft_rows = draft.draft_rows.empty() ? nullptr : draft.draft_rows.data()};
      if (!draft.mask_rows.empty()) input.mask_rows = draft.mask_rows.data();
      inputs.push_back(input);
    }
    ++round_id;
    REQUIRE(engine->Submit(round_id, inputs, 1000 + round_id) == PushResult::kOk);
    REQUIRE(session->Step());
    CompletionView done;
    REQUIRE(engine->Poll(&done));
    return {done.results.begin(), done.results.end()};
  }
  // A chain of three sampled tokens over rows 0 .. 3.
  static DraftOf Sampled(SequenceHandle sequence, std::vector<TokenId> tokens = {5, 6, 7}) {
    return {.sequence = sequence,
            .tokens = std::move(tokens),
            .target_rows = {0, 1, 2, 3},
            .kinds = {DraftKind::kSampled, DraftKind::kSampled, DraftKind::kSampled},
            .draft_rows = {0, 1, 2}};
  }

  // Ends the session and completes the files.
  void Finish() {
    if (session != nullptr) session->EndAll();
    engine.reset();
    session.reset();
    if (recorder != nullptr) recorder->Stop();
  }
  ~TracedSession() { Finish(); }

  std::vector<std::string> traces() const { return TracesIn(directory); }
  // The only trace.
  ReadTraceResult Read() {
    const std::vector<std::string> paths = traces();
    REQUIRE(paths.size() == 1);
    return ReadTrace(paths[0]);
  }

  TempDirectory own_directory;
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
