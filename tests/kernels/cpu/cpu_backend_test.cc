#include "kernels/cpu/cpu_backend.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/kernels/cuda/run_backend.h"
#include "tests/support/grid_size.h"
#include "tests/support/round_case.h"
#include "tests/support/rows.h"

namespace {
// Counts while a test asks for it. Everything in this binary allocates through here, the workers of
// a backend included.
std::atomic<bool> counting_allocations = false;
std::atomic<int> num_allocations = 0;
}  // namespace

// GCC warns of a free() of memory from operator new once both are inlined.
__attribute__((noinline)) void* operator new(size_t size) {
  if (counting_allocations) ++num_allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// The library's temporary buffers come this way, and go the way of all.
__attribute__((noinline)) void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (counting_allocations) ++num_allocations;
  return std::malloc(size);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace specd {
namespace {

constexpr RoundCase::Options kWhole{.vocab_size = kTileSize + 300,
                                    .batch = 64,
                                    .max_draft = 4,
                                    .dtype = DType::kBFloat16,
                                    .seed = 41,
                                    .grammar_masks = true};

std::unique_ptr<Backend> Prepared(const RoundCase::Options& options, CpuTarget target,
                                  int32_t threads = 1) {
  auto backend = std::make_unique<CpuBackend>(target);
  REQUIRE(backend->Prepare({options.vocab_size, 256, options.max_draft, threads}).ok());
  return backend;
}

std::vector<CpuTarget> SupportedTargets() {
  std::vector<CpuTarget> targets;
  for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
    if (CpuTargetIsSupported(target)) targets.push_back(target);
  }
  return targets;
}

TEST_SUITE("unit") {
  // So large a vocabulary that even one row is shared by the workers.
  TEST_CASE("a round gives the same answers for any number of workers") {
    RoundCase::Options options = kWhole;
    options.vocab_size = 64 * kTileSize - 5;
    options.batch = 24;
    options.max_draft = 3;
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      if (kIsSanitized && dtype == DType::kFloat32) continue;
      options.dtype = dtype;
      RoundCase round(options);
      const auto expected = RunAll(*Prepared(options, BestCpuTarget()), round);
      for (const int32_t threads : {2, 3, 5, 8}) {
        if (kIsSanitized && threads != 3) continue;
        CAPTURE(threads);
        const auto backend = Prepared(options, BestCpuTarget(), threads);
        const auto answers = RunAll(*backend, round);
        for (size_t i = 0; i < answers.size(); ++i) REQUIRE(answers[i] == expected[i]);
        // Fewer tasks than workers, and one more.
        for (const std::vector<int32_t>& places :
             {std::vector<int32_t>{7}, {3, 11}, {0, 1, 2}, {23, 4, 9, 14, 2, 6}}) {
          REQUIRE(backend->Run(round.Some(places)).ok());
          for (size_t i = 0; i < places.size(); ++i) {
            CAPTURE(places[i]);
            REQUIRE(round.answer(static_cast<int32_t>(i)) == expected[places[i]]);
          }
        }
      }
    }
  }

  TEST_CASE("transformed rows are the same for any target and number of workers") {
    constexpr int32_t kVocabSize = 33 * kTileSize + 100;
    const RowMatrix rows = TransformRows(DType::kFloat32, kVocabSize);
    const auto transformed = [&](CpuTarget target, int32_t threads) {
      CpuBackend backend(target);
      REQUIRE(backend.Prepare({kVocabSize, 1, 0, threads}).ok());
      return OutputsOf(backend, rows.view(), MixedTransforms(9));
    };
    const auto expected = transformed(CpuTarget::kBaseline, 1);
    CHECK(expected[0].back() == static_cast<uint32_t>(OutcomeStatus::kOk));
    CHECK(expected[4].back() == static_cast<uint32_t>(OutcomeStatus::kBadTargetRow));
    for (const CpuTarget target : SupportedTargets()) {
      for (const int32_t threads : {1, 2, 3, 8}) {
        CAPTURE(threads);
        // Not a comparison of vectors in the macro: it would print them.
        const bool equal = transformed(target, threads) == expected;
        REQUIRE(equal);
      }
    }
  }

  TEST_CASE("a round allocates nothing") {
    RoundCase round(kWhole);
    for (const CpuTarget target : SupportedTargets()) {
      const auto backend = Prepared(kWhole, target, 3);
      const RoundBatch batch = round.All();
      num_allocations = 0;
      counting_allocations = true;
      const bool ok = backend->Run(batch).ok();
      counting_allocations = false;
      CHECK(ok);
      CHECK(num_allocations == 0);
    }
    counting_allocations = true;
    int* volatile counted = new int(1);
    counting_allocations = false;
    delete counted;
    CHECK(num_allocations == 1);
  }

#if defined(__x86_64__)
  TEST_CASE("flush-to-zero and another rounding mode change nothing and come back") {
    // Among 30,000 ids of like probability, the id that a coin falls on feels the last bits of the
    // masses before it.
    constexpr int32_t kVocabSize = 30000;
    constexpr int32_t kBatch = 128;
    std::mt19937_64 random(46);
    RowMatrix rows({.vocab_size = kVocabSize, .num_rows = 1});
    rows.Set(0, RandomLogits(random, kVocabSize, 0.1));
    ChainCase chain(VerifyMethod::kExactMatch, {}, DraftKind::kOneHot);
    std::vector<Task> tasks(kBatch, chain.task);
    for (Task& task : tasks) task.seed = random();
    std::vector<TaskOutcome> outcomes(kBatch);
    std::vector<TokenId> expected(kBatch);
    std::vector<TokenId> tokens(kBatch);
    RoundBatch batch;
    batch.target = rows.view();
    batch.tasks = tasks.data();
    batch.num_tasks = kBatch;
    batch.outcomes = outcomes.data();
    batch.tokens = expected.data();
    batch.tokens_stride = 1;
    CpuBackend backend(CpuTarget::kBaseline);
    REQUIRE(backend.Prepare({kVocabSize, kBatch, 0, 2}).ok());
    REQUIRE(backend.Run(batch).ok());

    constexpr uint32_t kFlushAndRoundUp = 0x8040u | 0x4000u | 0x1F80u;
    batch.tokens = tokens.data();
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(kFlushAndRoundUp);
    const bool ok = backend.Run(batch).ok();
    const uint32_t after = _mm_getcsr();
    // The same work without the backend's protection, to see that the settings matter here.
    std::vector<uint64_t> memory = PoisonedWorkspace(kVocabSize, 0);
    const TaskWorkspace workspace = TaskWorkspaceAt(memory.data(), kVocabSize, 0);
    std::vector<TokenId> unprotected(kBatch);
    batch.tokens = unprotected.data();
    for (int32_t i = 0; i < kBatch; ++i) kChainsBaseline.run_task(batch, i, workspace, TeamSeat{});
    _mm_setcsr(before);
    REQUIRE(ok);
    CHECK((after & 0xFFC0u) == (kFlushAndRoundUp & 0xFFC0u));
    CHECK(tokens == expected);
    CHECK(unprotected != expected);
  }
#endif
}

}  // namespace
}  // namespace specd
