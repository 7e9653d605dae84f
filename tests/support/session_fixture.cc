#include "tests/support/session_fixture.h"

#include <fcntl.h>

#include <utility>

#include "tests/support/sealed_memory.h"

namespace specd {

SessionFixture::SessionFixture(bool publish_events, std::function<bool()> text_side) {
  auto owned = std::make_unique<ScriptedBackend>();
  backend = owned.get();
  profile.eos_token_ids = {7};
  SessionOptions options;
  options.identity = {1, 77};
  options.limits = kLimits;
  options.profile = &profile;
  options.clock = &clock;
  options.names = &names;
  options.publish_events = publish_events;
  options.text_side = std::move(text_side);
  Attach(options, std::move(owned));
}

SessionFixture::~SessionFixture() = default;

void SessionFixture::Attach(const SessionOptions& options, std::unique_ptr<Backend> owned) {
  AttachWithoutRows(options, std::move(owned));
  BindRows();
}

void SessionFixture::AttachWithoutRows(const SessionOptions& options,
                                       std::unique_ptr<Backend> owned) {
  engine.reset();
  auto created = Session::Create(options, std::move(owned));
  SPECD_CHECK(created.ok());
  session = *std::move(created);
  auto attached = Segment::Attach(UniqueFd(fcntl(session->segment().fd(), F_DUPFD_CLOEXEC, 0)));
  SPECD_CHECK(attached.ok());
  segment = std::make_unique<Segment>(*std::move(attached));
  engine = std::make_unique<EngineChannel>(segment.get());
}

void SessionFixture::BindRows() {
  const uint64_t size_bytes = 4 * kLimits.vocab_size * sizeof(float);
  const auto region = session->RegisterRegion(SealedMemory(size_bytes), size_bytes);
  SPECD_CHECK(region.ok());
  TensorSpec spec;
  spec.num_rows = 4;
  SPECD_CHECK(session->Bind(TensorRole::kTargetRows, *region, spec).ok());
}

SequenceHandle SessionFixture::Open(const std::string& name, int64_t max_tokens) {
  SequenceParams params;
  params.max_tokens = max_tokens;
  auto info = session->OpenSequences(name, params);
  SPECD_CHECK(info.ok());
  return info->front().handle;
}

PushResult SessionFixture::Submit(std::vector<SequenceHandle> sequences, uint64_t round_id) {
  std::vector<SequenceInput> drafts;
  for (SequenceHandle sequence : sequences) {
    SequenceInput draft;
    draft.sequence = sequence;
    draft.draft = {.num_nodes = 3, .tokens = tokens, .target_rows = rows};
    drafts.push_back(draft);
  }
  return engine->Submit(round_id, drafts, 0);
}

bool SessionFixture::Pop(TokenEvent* event) {
  SequenceHandle sequence = 0;
  return session->PopEvent(&sequence, event);
}

std::vector<TokenEvent> SessionFixture::Events() {
  std::vector<TokenEvent> events;
  TokenEvent event;
  while (Pop(&event)) events.push_back(event);
  return events;
}

}  // namespace specd
