// The memory of traces is part of what a daemon takes for its sessions.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "daemon/base/memory_budget.h"
#include "tests/daemon/recorder/traced_session.h"
#include "tests/support/watched_memory.h"

namespace specd::test {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

class SumWatcher final : public MemoryWatcher {
 public:
  SumWatcher() { memory_watcher = this; }
  ~SumWatcher() override { memory_watcher = nullptr; }
  void OnNew(size_t size_bytes) override { sum_ += size_bytes; }
  void OnDelete(size_t) override {}
  uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

TEST_SUITE("unit") {
  // Bug: the buffers of a trace, 64 MiB for each session and twice that with a flight recorder,
  // came on top of --memory_mib.
  TEST_CASE("a session's trace counts in the memory of all sessions until it is written") {
    MemoryBudget all(uint64_t{1} << 40, "memory_mib");
    uint64_t without = 0;
    {
      const TracedSession plain({.trace_options = "", .has_recorder = false, .memory = &all});
      without = all.taken_bytes();
    }
    CHECK(all.taken_bytes() == 0);
    for (const auto& [options, mib] :
         {std::pair{"buffer_mib=8", 8}, std::pair{"flight=9,buffer_mib=8", 16}}) {
      {
        TracedSession traced({.trace_options = options, .memory = &all});
        CHECK(all.taken_bytes() >= without + static_cast<uint64_t>(mib) * kMib);
        CHECK(all.taken_bytes() <= without + static_cast<uint64_t>(mib + 8) * kMib);
        traced.session->EndAll();
      }
      CHECK(all.taken_bytes() == 0);
    }
  }

  TEST_CASE("a session whose trace finds no memory is refused by name") {
    const TemporaryFolder directory;
    const auto recorder =
        TraceRecorder::Start({.trace = *ParseTraceOptions(directory.path(), "buffer_mib=512"),
                              .process = {},
                              .clock = Clock::Real(),
                              .log = nullptr});
    REQUIRE(recorder.ok());
    MemoryBudget all(256 * kMib, "memory_mib");
    SharedNames names;
    ModelProfile profile;
    SessionOptions options;
    options.identity = {9, 77};
    options.limits = TracedSession::kLimits;
    options.profile = &profile;
    options.clock = Clock::Real();
    options.names = &names;
    options.recorder = recorder->get();
    options.memory = &all;
    options.memory_bytes_max = 256 * kMib;
    const auto refused = Session::Create(options, *MakeBackend("cpu"));
    REQUIRE(!refused.ok());
    const std::string message(refused.status().message());
    CHECK(message.find("the trace of the session (buffer_mib") != std::string::npos);
    CHECK(message.find("--memory_mib") != std::string::npos);
    CHECK(all.taken_bytes() == 0);
    options.recorder = nullptr;
    CHECK(Session::Create(options, *MakeBackend("cpu")).ok());
  }

  TEST_CASE("what a trace is said to cost covers what it takes, and not much more") {
    const TemporaryFolder directory;
    const TraceOptions options = *ParseTraceOptions(directory.path(), "buffer_mib=1");
    TraceSession session;
    session.limits = {.vocab_size = 50'000, .max_batch = 256, .max_draft = 15};
    session.max_sequences = 1024;
    DoorbellLine bell{};
    const SumWatcher watcher;
    const SessionTrace trace(options, session, Clock::Real(), &bell);
    const uint64_t cost = SessionTrace::SizeBytes(options, session.limits);
    CHECK(watcher.sum() <= cost);
#if !defined(SPECD_SANITIZED)                 // whose own new gives some of the blocks
    CHECK(watcher.sum() + 5 * kMib >= cost);  // 4 MiB are for the writer
#endif
  }
}

}  // namespace
}  // namespace specd::test
