// SessionFixture holds a session and the engine's end of it in one process, for tests that step the
// daemon's parts one at a time. The backend is scripted, and the test moves the clock.
#pragma once

#include <functional>
#include <memory>
#include <string>
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
  SessionFixture(bool publish_events, std::function<bool()> text_side);
  ~SessionFixture();

  // Makes the session and the engine's end of it. A second call replaces both.
  void Attach(const SessionOptions& options, std::unique_ptr<Backend> owned);
  void AttachWithoutRows(const SessionOptions& options, std::unique_ptr<Backend> owned);

  // Binds four target rows; the scripted backend does not read them.
  void BindRows();
  SequenceHandle Open(const std::string& name, int64_t max_tokens = 100);
  PushResult Submit(std::vector<SequenceHandle> sequences, uint64_t round_id = 1);

  // The next event of any sequence.
  bool Pop(TokenEvent* event);
  std::vector<TokenEvent> Events();

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
