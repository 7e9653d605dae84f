// SessionFixture holds a session and the engine's end of it in one process, for tests that step the
// daemon's parts one at a time. The backend is scripted, and the test moves the clock.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/session/session.h"
#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/engine_channel.h"
#include "tests/support/manual_clock.h"
#include "tests/support/scripted_backend.h"

namespace specd {

struct SessionFixture {
  // 8 tokens, 4 sequences, 3 drafts, 2 rounds in flight, 4 scores for a token.
  static constexpr SessionLimits kLimits = {8, 4, 4, 3, 2, 4};

  explicit SessionFixture(bool publish_events = true, bool text_side = true)
      : SessionFixture(publish_events, [text_side] { return text_side; }) {}
  SessionFixture(bool publish_events, std::function<bool()> text_side) {
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

  // Makes the session and the engine's end of it. A second call replaces both.
  void Attach(const SessionOptions& options, std::unique_ptr<Backend> owned) {
    AttachWithoutRows(options, std::move(owned));
    BindRows();
  }
  void AttachWithoutRows(const SessionOptions& options, std::unique_ptr<Backend> owned) {
    engine.reset();
    auto created = Session::Create(options, std::move(owned));
    SPECD_CHECK(created.ok());
    session = *std::move(created);
    auto attached = Segment::Attach(UniqueFd(fcntl(session->segment().fd(), F_DUPFD_CLOEXEC, 0)));
    SPECD_CHECK(attached.ok());
    segment = std::make_unique<Segment>(*std::move(attached));
    engine = std::make_unique<EngineChannel>(segment.get());
  }

  // Binds four target rows; the scripted backend does not read them.
  void BindRows() {
    const uint64_t size_bytes = 4 * kLimits.vocab_size * sizeof(float);
    UniqueFd fd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    SPECD_CHECK(ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0);
    SPECD_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    const auto region = session->RegisterRegion(std::move(fd), size_bytes);
    SPECD_CHECK(region.ok());
    TensorSpec spec;
    spec.num_rows = 4;
    SPECD_CHECK(session->Bind(TensorRole::kTargetRows, *region, spec).ok());
  }

  SequenceHandle Open(const std::string& name, int64_t max_tokens = 100) {
    SequenceParams params;
    params.max_tokens = max_tokens;
    auto info = session->OpenSequences(name, params);
    SPECD_CHECK(info.ok());
    return info->front().handle;
  }

  PushResult Submit(std::vector<SequenceHandle> sequences, uint64_t round_id = 1) {
    std::vector<SequenceInput> drafts;
    for (SequenceHandle sequence : sequences) {
      SequenceInput draft;
      draft.sequence = sequence;
      draft.draft = {.num_nodes = 3, .tokens = tokens, .target_rows = rows};
      drafts.push_back(draft);
    }
    return engine->Submit(round_id, drafts, 0);
  }

  // The next event of any sequence.
  bool Pop(TokenEvent* event) {
    SequenceHandle sequence = 0;
    return session->PopEvent(&sequence, event);
  }

  std::vector<TokenEvent> Events() {
    std::vector<TokenEvent> events;
    TokenEvent event;
    while (Pop(&event)) events.push_back(event);
    return events;
  }

  const TokenId tokens[3] = {1, 2, 3};
  const uint32_t rows[4] = {0, 1, 2, 3};
  ManualClock clock;
  SharedNames names;
  ModelProfile profile;
  ScriptedBackend* backend = nullptr;
  std::shared_ptr<Session> session;
  std::unique_ptr<Segment> segment;
  std::unique_ptr<EngineChannel> engine;
};

}  // namespace specd
