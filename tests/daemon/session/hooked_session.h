// HookedSession gives tests a session whose backend also calls the test. The test sees the rows of
// a round, or acts as the engine while a round runs. The session has no events; the rest is as in
// SessionFixture.
#pragma once

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
    Attach(options, std::move(owned));
  }

  HookedBackend* hooked = nullptr;
};

}  // namespace specd
