#include "tests/daemon/trace/traced_session.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include "tests/support/session_steps.h"

namespace specd::test {

TracedSession::TracedSession(Options given) {
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
  options.memory = given.memory;
  options.memory_bytes_max = ~uint64_t{0};
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

void TracedSession::BindRows() {
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

void TracedSession::FillRows(uint64_t seed, float sigma) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  for (size_t i = 0; i < size_t{2} * kNumRows * kVocab; ++i) TargetRow(0)[i] = normal(random);
}

std::vector<SequenceResult> TracedSession::Round(const std::vector<DraftOf>& drafts) {
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
  REQUIRE(StepSession(session));
  CompletionView done;
  REQUIRE(engine->Poll(&done));
  return {done.results.begin(), done.results.end()};
}

void TracedSession::Finish() {
  if (session != nullptr) session->EndAll();
  engine.reset();
  session.reset();
  if (recorder != nullptr) recorder->Stop();
}

TracedSession::~TracedSession() { Finish(); }

}  // namespace specd::test
