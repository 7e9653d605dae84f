// A session whose backend also calls the test: to see the rows a round is given, or to act as the
// engine while a round runs. No events; otherwise as SessionFixture.
#pragma once

#include <fcntl.h>

#include <functional>
#include <memory>
#include <utility>

#include "tests/support/session_fixture.h"

namespace specd {

class HookedBackend : public ScriptedBackend {
 public:
  absl::Status Run(const RoundBatch& batch) override {
    if (hook) hook(batch);
    return ScriptedBackend::Run(batch);
  }

  std::function<void(const RoundBatch&)> hook;
};

struct HookedSession : SessionFixture {
  explicit HookedSession(uint32_t ring_depth = kLimits.ring_depth) : SessionFixture(false) {
    SessionOptions options = session->options();
    options.limits.ring_depth = ring_depth;
    auto owned = std::make_unique<HookedBackend>();
    hooked = owned.get();
    backend = hooked;
    engine.reset();
    auto created = Session::Create(options, std::move(owned));
    SPECD_CHECK(created.ok());
    session = *std::move(created);
    auto attached = Segment::Attach(UniqueFd(fcntl(session->segment().fd(), F_DUPFD_CLOEXEC, 0)));
    SPECD_CHECK(attached.ok());
    segment = std::make_unique<Segment>(*std::move(attached));
    engine = std::make_unique<EngineChannel>(segment.get());
    session->channel().SetRowLimits({4, 4});
  }

  HookedBackend* hooked = nullptr;
};

}  // namespace specd
