// What a session and its openings are said to cost covers what they take, and not much more: every
// allocation of this thread is counted.
#include "daemon/session/memory_cost.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "daemon/session/session.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/backend.h"
#include "tests/support/manual_clock.h"
#include "tests/support/watched_memory.h"

namespace specd {
namespace {

class PeakWatcher final : public MemoryWatcher {
 public:
  PeakWatcher() { memory_watcher = this; }
  ~PeakWatcher() override { memory_watcher = nullptr; }
  void OnNew(size_t size_bytes) override {
    now_ += static_cast<int64_t>(size_bytes);
    peak_ = std::max(peak_, now_);
  }
  void OnDelete(size_t size_bytes) override { now_ -= static_cast<int64_t>(size_bytes); }
  uint64_t now() const { return static_cast<uint64_t>(now_); }
  uint64_t peak() const { return static_cast<uint64_t>(peak_); }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

struct Host {
  explicit Host(const SessionLimits& limits) {
    options.identity = {1, 77};
    options.limits = limits;
    options.profile = &profile;
    options.clock = &clock;
    options.names = &names;
    options.publish_events = true;
  }
  absl::StatusOr<std::shared_ptr<Session>> Make() const {
    return Session::Create(options, *MakeBackend("cpu"));
  }
  ManualClock clock;
  SharedNames names;
  ModelProfile profile;
  SessionOptions options;
};

// A prompt of every id once, and parameters that look back at it.
SequenceParams LookingBack() {
  SequenceParams params;
  params.repetition_penalty = 1.1;
  params.presence_penalty = 0.5;
  params.no_repeat_ngram_size = 2;
  params.no_repeat_ngram_window = 64;
  params.logprobs = 0;
  params.max_tokens = 1000;
  params.has_seed = true;
  return params;
}

TEST_SUITE("unit") {
  TEST_CASE("a session costs what it takes") {
    // vocabulary, batch, sequences, drafts, ring, scores. The scratch always has room for 129
    // scores, so only sessions that use them all have touched all of it.
    for (const SessionLimits& limits :
         {SessionLimits{8, 1, 1, 0, 1, 129}, SessionLimits{1000, 16, 16, 8, 4, 129},
          SessionLimits{151936, 64, 256, 8, 2, 129}, SessionLimits{1 << 20, 16, 16, 64, 4, 129},
          SessionLimits{32000, 256, 65536, 4, 1, 129}}) {
      CAPTURE(limits.vocab_size);
      CAPTURE(limits.max_sequences);
      const Host host(limits);
      const PeakWatcher watcher;
      const auto session = host.Make();
      REQUIRE(session.ok());
      const uint64_t taken = watcher.now() + ComputeLayout(limits).segment_bytes;
      const uint64_t cost = SessionBytes(limits, host.options.threads);
      CHECK(taken <= cost);
      CHECK(cost <= taken * 3 / 2 + (uint64_t{2} << 20));
    }
  }

  TEST_CASE("an opening costs what it takes, while it is built and afterwards") {
    const Host host({1 << 20, 1, 4, 8, 1, 4});
    const auto session = host.Make();
    REQUIRE(session.ok());
    for (const size_t num_ids : {size_t{1}, size_t{1} << 16, (size_t{1} << 20) - 3000}) {
      CAPTURE(num_ids);
      std::vector<TokenId> prompt(num_ids);
      std::iota(prompt.begin(), prompt.end(), 0);
      const SequenceParams params = LookingBack();
      const SequenceHistory history{prompt, {}};
      PeakWatcher watcher;
      const auto infos = (*session)->OpenSequences("a", params, history);
      REQUIRE(infos.ok());
      const uint64_t taken = watcher.now();
      CHECK(watcher.peak() <= std::max(BuildBytes(params, history), taken) + 65536);
      CHECK(BuildBytes(params, history) <= 2 * watcher.peak() + 65536);

      const SequenceOpening opening({.vocab_size = 1 << 20, .max_batch = 1, .max_draft = 8}, {},
                                    nullptr);
      const uint64_t cost = SequenceBytes(*opening.Build(params, history), params);
      CHECK(taken <= cost + 4096);
      CHECK(cost <= 2 * taken + 8192);
      REQUIRE((*session)->CloseSequence(infos->front().handle).ok());
    }
  }

  TEST_CASE("a session that costs more than it may is refused, and takes nothing") {
    Host host({8, 1, 1, 0, 1, 0});
    const uint64_t cost = SessionBytes(host.options.limits, 1);
    MemoryBudget all(10 * cost, "memory_mib");
    host.options.memory = &all;
    host.options.memory_bytes_max = cost - 1;
    const absl::Status refused = host.Make().status();
    CHECK(ErrorCodeOf(refused) == SPECD_ERROR_EXHAUSTED);
    CHECK(ErrorFieldOf(refused) == "session_memory_mib");
    CHECK(all.taken_bytes() == 0);

    host.options.memory_bytes_max = cost;
    {
      const auto session = host.Make();
      REQUIRE(session.ok());
      CHECK(all.taken_bytes() == cost);
    }
    CHECK(all.taken_bytes() == 0);
  }

  TEST_CASE("openings, forks and regions take their bytes, and ends give them back") {
    Host host({1 << 20, 1, 8, 8, 1, 4});
    const uint64_t cost = SessionBytes(host.options.limits, 1);
    MemoryBudget all(uint64_t{1} << 40, "memory_mib");
    host.options.memory = &all;
    host.options.memory_bytes_max = cost + (uint64_t{20} << 20);
    const auto made = host.Make();
    REQUIRE(made.ok());
    Session& session = **made;
    const std::vector<TokenId> prompt(100'000, 1);
    SequenceParams params = LookingBack();

    const auto first = session.OpenSequences("a", params, {prompt, {}});
    REQUIRE(first.ok());
    const uint64_t of_one = all.taken_bytes() - cost;
    CHECK(of_one > prompt.size() * 12);  // a history and two lists of its n-grams
    params.n = 2;
    const auto pair = session.OpenSequences("b", params, {prompt, {}});
    REQUIRE(pair.ok());
    CHECK(all.taken_bytes() == cost + 3 * of_one);
    REQUIRE(session.ForkSequence(first->front().handle, "c", 1).ok());
    CHECK(all.taken_bytes() == cost + 4 * of_one);
    REQUIRE(session.CloseSequence(first->front().handle).ok());
    CHECK(all.taken_bytes() == cost + 3 * of_one);

    // What a building takes for its time counts too: 64 bytes for each id.
    const std::vector<TokenId> longer(400'000, 1);
    const absl::Status refused = session.OpenSequences("d", params, {longer, {}}).status();
    CHECK(ErrorCodeOf(refused) == SPECD_ERROR_EXHAUSTED);
    CHECK(std::string(refused.message()).find("--session_memory_mib") != std::string::npos);
    CHECK(all.taken_bytes() == cost + 3 * of_one);
    CHECK(session.OpenSequences("a", {}).ok());  // the name is free, and small ones find room
  }

  TEST_CASE("the earlier ids in the event of an opening were charged to nobody") {
    // An engine that opens and closes fills the queue of events with them.
    Host host({1 << 20, 1, 8, 8, 1, 4});
    const uint64_t cost = SessionBytes(host.options.limits, 1);
    MemoryBudget all(uint64_t{1} << 40, "memory_mib");
    host.options.memory = &all;
    host.options.memory_bytes_max = cost + (uint64_t{8} << 20);
    host.options.text_side = [] { return true; };
    const auto made = host.Make();
    REQUIRE(made.ok());
    Session& session = **made;
    SequenceParams params;
    params.stop_strings = {std::string(30'000, 's')};
    params.max_tokens = 100'000;
    const std::vector<TokenId> outputs(40'000, 1);
    const auto open = [&] { return session.OpenSequences("a", params, {{}, outputs}); };
    const auto opened = open();
    REQUIRE(opened.ok());
    REQUIRE(session.CloseSequence(opened->front().handle).ok());
    // Without a tokenizer an id may be one byte: 29,999 and twice three for cut code points.
    SequenceHandle sequence = 0;
    TokenEvent event;
    const uint64_t charged = all.taken_bytes() - cost;
    CHECK(charged >= 30'005 * (2 * sizeof(TokenId)));
    CHECK(charged <= 30'005 * 16);
    // Further ones are refused before the session has taken more than it may.
    absl::Status refused;
    for (int i = 0; i < 100 && refused.ok(); ++i) {
      const auto again = open();
      refused = again.status();
      if (again.ok()) REQUIRE(session.CloseSequence(again->front().handle).ok());
    }
    CHECK(ErrorCodeOf(refused) == SPECD_ERROR_EXHAUSTED);
    CHECK(std::string(refused.message()).find("--session_memory_mib") != std::string::npos);
    while (session.PopEvent(&sequence, &event)) continue;
    CHECK(all.taken_bytes() == cost);
    CHECK(open().ok());
  }
}

}  // namespace
}  // namespace specd
