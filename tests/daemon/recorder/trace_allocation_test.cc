// A traced round takes no memory in the thread that runs it.
#include <doctest/doctest.h>

#include "daemon/recorder/session_trace.h"
#include "tests/daemon/recorder/traced_session.h"
#include "tests/support/session_steps.h"
#include "tests/support/watched_memory.h"

namespace specd::test {
namespace {

class Counter : public MemoryWatcher {
 public:
  void OnNew(size_t) override { ++num_taken; }
  void OnDelete(size_t) override { ++num_given_back; }
  uint64_t num_taken = 0;
  uint64_t num_given_back = 0;
};

TEST_SUITE("unit") {
  TEST_CASE("a traced round allocates nothing, at every level and while the ring is full") {
    for (const char* const options :
         {"level=rounds", "level=hashes", "level=rows", "level=rows,buffer_mib=1,flight=3"}) {
      TracedSession traced({.trace_options = options});
      traced.FillRows(5, 0.5f);
      SequenceParams params;
      params.max_tokens = 1'000'000;
      params.repetition_penalty = 1.1;
      params.logprobs = 2;
      const SequenceHandle s = traced.Open("s", params);
      const std::vector<TokenId> tokens = {5, 6, 7};
      const std::vector<uint32_t> rows = {0, 1, 2, 3};
      const std::vector<DraftKind> kinds(3, DraftKind::kSampled);
      const std::vector<int32_t> masks = {-1, 1, 1, -1};
      traced.MaskRow(1)[0] = ~uint32_t{0};
      SequenceInput input;
      input.sequence = s;
      input.draft = {.num_nodes = 3,
                     .tokens = tokens.data(),
                     .kinds = kinds.data(),
                     .target_rows = rows.data(),
                     .draft_rows = rows.data()};
      input.mask_rows = masks.data();
      Counter counter;
      CompletionView done;
      for (int i = 0; i < 2000; ++i) {
        if (i == 3) memory_watcher = &counter;  // the first rounds warm the backend up
        const bool is_submitted =
            traced.engine->Submit(static_cast<uint64_t>(i), {&input, 1}, 0) == PushResult::kOk;
        const bool is_answered = is_submitted && StepSession(traced.session);
        if (!is_answered || !traced.engine->Poll(&done)) break;
      }
      memory_watcher = nullptr;
      CHECK(done.round_id == 1999);
      CHECK(counter.num_taken == 0);
      CHECK(counter.num_given_back == 0);
    }
  }
}

}  // namespace
}  // namespace specd::test
