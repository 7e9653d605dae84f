#include "tests/daemon/recorder/traced_session.h"

#include <fcntl.h>

#include <random>

#include "tests/support/sealed_memory.h"
#include "tests/support/session_steps.h"

namespace specd::test {

TracedSession::TracedSession(Options given) : limits(given.limits), num_rows(given.num_rows) {
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
  profile.eos_token_ids = {static_cast<TokenId>(limits.vocab_size - 1)};
  SessionOptions options;
  options.identity = {9, 77};
  options.limits = limits;
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
  const uint64_t tensor_bytes = uint64_t{num_rows} * limits.vocab_size * sizeof(float);
  const uint64_t mask_bytes = num_rows * mask_words() * sizeof(uint32_t);
  const uint64_t size_bytes = 2 * tensor_bytes + mask_bytes;
  UniqueFd fd = SealedMemory(size_bytes);
  auto mapped = Mapping::Map(fd.get(), size_bytes, MapAccess::kReadWrite);
  REQUIRE(mapped.ok());
  rows = std::make_unique<Mapping>(*std::move(mapped));
  const auto region = session->RegisterRegion(std::move(fd), size_bytes);
  REQUIRE(region.ok());
  TensorSpec spec;
  spec.num_rows = num_rows;
  REQUIRE(session->Bind(TensorRole::kTargetRows, *region, spec).ok());
  spec.offset_bytes = tensor_bytes;
  REQUIRE(session->Bind(TensorRole::kDraftRows, *region, spec).ok());
  TensorSpec masks;
  masks.num_rows = num_rows;
  masks.offset_bytes = 2 * tensor_bytes;
  REQUIRE(session->Bind(TensorRole::kGrammarMask, *region, masks).ok());
}

void TracedSession::FillRows(uint64_t seed, float sigma) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  const size_t count = size_t{2} * num_rows * limits.vocab_size;
  for (size_t i = 0; i < count; ++i) TargetRow(0)[i] = normal(random);
}

std::vector<SequenceResult> TracedSession::Round(const std::vector<DraftOf>& drafts) {
  std::vector<SequenceInput> inputs;
  for (const DraftOf& draft : drafts) {
    SequenceInput input;
    input.sequence = draft.sequence;
    input.draft = {.num_nodes = static_cast<int32_t>(draft.tokens.size()),
                   .tokens = draft.tokens.data(),
                   .parents = draft.parents.empty() ? nullptr : draft.parents.data(),
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
