// A round takes no memory: every operator new of this program is counted.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "tests/ipc/segment/ipc_test_support.h"

namespace {
std::atomic<uint64_t> num_allocations{0};
}  // namespace

void* operator new(size_t size_bytes) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size_bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t size_bytes) { return operator new(size_bytes); }
void* operator new(size_t size_bytes, const std::nothrow_t&) noexcept {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size_bytes);
}
void* operator new[](size_t size_bytes, const std::nothrow_t& tag) noexcept {
  return operator new(size_bytes, tag);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("allocation: none per round, on either side") {
    Segment segment = test::MakeSegment();
    EngineChannel engine(&segment);
    DaemonChannel daemon(&segment);
    daemon.SetRowLimits({100, 100});
    SubmissionCopy copy(segment.limits());
    CompletionView completion;
    const test::DraftBuffers buffers = test::TwoTokens();
    const SequenceInput drafts[] = {buffers.View(0x100000000), buffers.View(0x100000001)};
    const TokenId tokens[] = {1, 2, 3};
    const int32_t path[] = {0, 1};
    SequenceResult results[2];
    for (uint32_t i = 0; i < 2; ++i) {
      results[i] = {.sequence = uint64_t{1} << 32 | i,
                    .num_accepted = 2,
                    .num_kept = 3,
                    .total_kept = 3,
                    .tokens = tokens,
                    .path = path};
    }
    const WaitOptions options{1000, absl::Seconds(10)};

    uint64_t completed = 0;
    const uint64_t before = num_allocations.load();
    for (uint64_t round = 0; round < 100; ++round) {
      engine.Submit(round, drafts, 1);
      daemon.submission_bell().Wait(options, [&daemon] { return daemon.HasSubmission(); });
      daemon.Take(&copy, 2);
      daemon.Complete(copy, results, 3);
      daemon.WriteState(0, {1, 0, 3});
      engine.WaitCompletion(options);
      completed += engine.Poll(&completion) ? 1 : 0;
      engine.ReadState(0);
    }
    const uint64_t after = num_allocations.load();
    CHECK(after == before);
    CHECK(completed == 100);

    const DraftInput child = {
        .sequence = 0x100000000, .prefix = tokens, .num_prefix = 2, .first_node = 3};
    const uint32_t rows[] = {0, 1, 2};
    const ScoreInput score = {.rows = rows, .ids = tokens, .num_ids = 3, .request = {}};
    const DraftSample sample{5, 1, 0.5f, DraftKind::kSampled, 1.0};
    const DraftResult answer = {.sequence = 0x100000000, .reason = {}, .children = {&sample, 1}};
    const uint64_t before_calls = num_allocations.load();
    for (int i = 0; i < 100; ++i) {
      engine.Call({&child, 1}, 1);
      daemon.Take(&copy, 2);
      daemon.Complete(copy, std::span<const DraftResult>(&answer, 1), 3);
      completed += engine.Poll(&completion) ? 1 : 0;
      engine.Call({&score, 1}, 1);
      daemon.Take(&copy, 2);
      daemon.Complete(copy, std::span<const SequenceResult>(results, 1), 3);
      completed += engine.Poll(&completion) ? 1 : 0;
    }
    CHECK(num_allocations.load() == before_calls);
    CHECK(completed == 300);
    // The counter counts.
    const std::vector<int> something(10);
    CHECK(num_allocations.load() > after);
  }
}

}  // namespace
}  // namespace specd
