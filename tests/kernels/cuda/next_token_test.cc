// The last token of each sequence, by its slot: what the sequence's next forward reads, and nothing
// else is written.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

constexpr TokenId kUntouched = -9;

// Greedy rounds over eight ids: row r is won by id r, and row 7 holds a NaN.
class GreedyRound {
 public:
  GreedyRound() : rows_({.vocab_size = 8, .num_rows = 8}) {
    for (int row = 0; row < 8; ++row) {
      std::vector<double> values(8, 0.0);
      values[static_cast<size_t>(row)] = row == 7 ? NAN : 5.0;
      rows_.Set(row, values);
    }
  }

  // A sequence that drafts `drafts` and is judged by these rows.
  Task& Add(uint32_t slot, const std::vector<TokenId>& drafts, const std::vector<uint32_t>& rows) {
    chains_.push_back(std::make_unique<Chain>(Chain{drafts, rows}));
    Task task;
    task.slot = slot;
    task.draft.num_nodes = static_cast<int32_t>(drafts.size());
    task.draft.tokens = chains_.back()->drafts.data();
    task.draft.target_rows = chains_.back()->rows.data();
    tasks_.push_back(task);
    return tasks_.back();
  }

  void Run(Backend& backend, const std::vector<SlotOutput>& arrays, int32_t threads = 1) {
    REQUIRE(backend.Prepare({8, 8, 2, threads}).ok());
    const absl::Status status = backend.Run(Batch(arrays));
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  }

  // The round without its next tokens, and then these; `held_back` is called in between.
  absl::Status RunHeldBack(Backend& backend, const std::vector<SlotOutput>& arrays,
                           const std::function<void()>& held_back) {
    REQUIRE(backend.Prepare({8, 8, 2, 1}).ok());
    const RoundBatch batch = Batch(arrays);
    RoundBatch without = batch;
    without.num_slot_outputs = 0;
    REQUIRE(backend.Run(without).ok());
    held_back();
    return backend.WriteSlotOutputs(batch);
  }

 private:
  RoundBatch Batch(const std::vector<SlotOutput>& arrays) {
    outcomes_.assign(tasks_.size(), {});
    tokens_.assign(tasks_.size() * 3, -7);
    samples_.assign(tasks_.size(), {});
    RoundBatch batch;
    batch.target = rows_.view();
    batch.tasks = tasks_.data();
    batch.num_tasks = static_cast<int32_t>(tasks_.size());
    batch.outcomes = outcomes_.data();
    batch.tokens = tokens_.data();
    batch.tokens_stride = 3;
    batch.samples = samples_.data();
    batch.samples_stride = 1;
    batch.slot_outputs = arrays.data();
    batch.num_slot_outputs = static_cast<int32_t>(arrays.size());
    return batch;
  }

  struct Chain {
    std::vector<TokenId> drafts;
    std::vector<uint32_t> rows;
  };
  RowMatrix rows_;
  std::vector<std::unique_ptr<Chain>> chains_;
  std::vector<Task> tasks_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
  std::vector<DraftSample> samples_;
};

// Every way in which a task ends, and the token at its slot afterwards.
void AddEveryEnd(GreedyRound* round) {
  round->Add(5, {3, 4}, {3, 4, 1});  // both stand: the token after them
  round->Add(2, {3, 6}, {3, 4, 1});  // the second does not: its replacement
  round->Add(7, {}, {6});            // plain sampling
  round->Add(3, {3, 6}, {3, 7, 1});  // a bad row after an accepted token
  round->Add(4, {3}, {7, 1});        // a bad row at once: no token
  round->Add(1, {2}, {2, 2}).kind = TaskKind::kScore;
  Task& draft = round->Add(6, {}, {4});
  draft.kind = TaskKind::kSampleDraft;
  draft.num_children = 1;
}
const std::vector<TokenId> kExpected = {kUntouched, kUntouched, 4, 3, kUntouched, 1, kUntouched, 6};

std::vector<TokenId> Untouched() { return std::vector<TokenId>(8, kUntouched); }

TEST_SUITE("unit") {
  TEST_CASE("next tokens by slot, on the CPU") {
    for (const int32_t threads : {1, 3}) {
      GreedyRound round;
      AddEveryEnd(&round);
      CpuBackend cpu(BestCpuTarget());
      std::vector<TokenId> next = Untouched();
      round.Run(cpu, {{next.data(), MemorySpace::kHost}}, threads);
      CHECK(next == kExpected);
    }
  }

  TEST_CASE("next tokens by slot, written by the device to its memory and by the host to its own") {
    for (const int64_t upload_bytes : {int64_t{1}, int64_t{1} << 24}) {
      CAPTURE(upload_bytes);
      GreedyRound round;
      AddEveryEnd(&round);
      FakeGpu gpu;
      std::vector<std::vector<TokenId>> next(4, Untouched());
      std::vector<SlotOutput> arrays;
      for (size_t i = 0; i < next.size(); ++i) {
        arrays.push_back({next[i].data(), i % 2 == 1 ? MemorySpace::kDevice : MemorySpace::kHost});
      }
      gpu.is_imported = [&](const void* address) {
        return address == next[1].data() || address == next[3].data();
      };
      CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), upload_bytes);
      round.Run(cuda, arrays);
      for (const std::vector<TokenId>& ids : next) CHECK(ids == kExpected);
      // Device memory alone: no list of the host's is needed.
      std::fill(next[3].begin(), next[3].end(), kUntouched);
      round.Run(cuda, {arrays[3]});
      CHECK(next[3] == kExpected);
    }
  }

  TEST_CASE("next tokens that the host must not write are the kernels' alone") {
    // If a kernel wrote host memory, the fake device would say so. To notice a write by the host,
    // the test overwrites the kernel's token before any answer comes back.
    GreedyRound round;
    round.Add(0, {}, {6});
    FakeGpu gpu;
    std::vector<TokenId> next = Untouched();
    bool is_launched = false;
    gpu.is_imported = [&](const void* address) { return address == next.data(); };
    gpu.after_round = [&](const RoundBatch&) { is_launched = std::exchange(next[0], -5) == 6; };
    CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), 1 << 20);
    round.Run(cuda, {{next.data(), MemorySpace::kDevice}});
    CHECK(is_launched);
    CHECK(next[0] == -5);
  }
}

TEST_SUITE("unit") {
  TEST_CASE("next tokens on another device are copied there, because no kernel reaches them") {
    GreedyRound round;
    AddEveryEnd(&round);
    FakeGpu gpu;
    std::vector<TokenId> other = Untouched();
    gpu.is_on_other_device = [&](const void* address) {
      return address >= other.data() && address < other.data() + other.size();
    };
    CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), 1 << 20);
    round.Run(cuda, {{other.data(), MemorySpace::kOtherDevice}});
    CHECK(other == kExpected);
    // Neighbours go together.
    CHECK(gpu.copied_to_other_device == std::set<const void*>{&other[2], &other[5], &other[7]});
  }

  TEST_CASE("held back, next tokens are written by themselves, wherever they lie") {
    GreedyRound round;
    AddEveryEnd(&round);
    std::vector<TokenId> next = Untouched();
    CpuBackend cpu(BestCpuTarget());
    const auto is_untouched = [&] { CHECK(next == Untouched()); };
    CHECK(round.RunHeldBack(cpu, {{next.data(), MemorySpace::kHost}}, is_untouched).ok());
    CHECK(next == kExpected);
    for (const int64_t upload_bytes : {int64_t{1}, int64_t{1} << 24}) {
      CAPTURE(upload_bytes);
      FakeGpu gpu;
      std::vector<std::vector<TokenId>> all(3, Untouched());
      const auto is_in = [&](size_t array) {
        return [&all, array](const void* address) {
          return address >= all[array].data() && address < all[array].data() + all[array].size();
        };
      };
      gpu.is_imported = is_in(1);
      gpu.is_on_other_device = is_in(2);
      CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), upload_bytes);
      const std::vector<SlotOutput> arrays = {{all[0].data(), MemorySpace::kHost},
                                              {all[1].data(), MemorySpace::kDevice},
                                              {all[2].data(), MemorySpace::kOtherDevice}};
      const auto are_untouched = [&] {
        for (const std::vector<TokenId>& ids : all) CHECK(ids == Untouched());
      };
      CHECK(round.RunHeldBack(cuda, arrays, are_untouched).ok());
      for (const std::vector<TokenId>& ids : all) CHECK(ids == kExpected);
    }
  }

  TEST_CASE("next tokens that a device does not take are its failure") {
    for (const char* const call : {"ToDevice", "Synchronize"}) {
      CAPTURE(call);
      GreedyRound round;
      round.Add(0, {}, {6});
      FakeGpu gpu;
      std::vector<TokenId> next = Untouched();
      gpu.is_imported = [&](const void* address) {
        return address >= next.data() && address < next.data() + next.size();
      };
      CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), 1 << 20);
      const absl::Status status = round.RunHeldBack(cuda, {{next.data(), MemorySpace::kDevice}},
                                                    [&] { gpu.failing_call = call; });
      CHECK(status.code() == absl::StatusCode::kInternal);
      CHECK(status.message().find(call) != std::string::npos);
    }
  }
}

TEST_SUITE("invariance") {
  TEST_CASE("of random rounds, next tokens are the last ones, in every array and nowhere else") {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      CAPTURE(seed);
      const RoundCase::Options options{
          .vocab_size = 700, .batch = 40, .max_draft = 3, .seed = 400 + seed};
      RoundCase round(options);
      FakeGpu gpu;
      CpuBackend cpu(BestCpuTarget());
      CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), int64_t{1} << 24);
      for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&cuda)}) {
        REQUIRE(backend->Prepare({700, 40, 3}).ok());
        const RoundBatch all = round.All();
        RoundBatch batch = all;
        if (seed % 2 == 1) batch.num_slot_outputs = 0;  // held back
        REQUIRE(backend->Run(batch).ok());
        if (seed % 2 == 1) REQUIRE(backend->WriteSlotOutputs(all).ok());
        std::vector<TokenId> expected(round.next_tokens(0).size(), RoundCase::kUnwritten);
        int num_written = 0;
        for (int32_t i = 0; i < options.batch; ++i) {
          const std::vector<TokenId> tokens = round.tokens(i);
          if (tokens.empty()) continue;
          expected[round.slot(i)] = tokens.back();
          ++num_written;
        }
        CHECK(num_written > 10);
        CHECK(num_written < options.batch);
        CHECK(round.next_tokens(0) == expected);
        CHECK(round.next_tokens(1) == expected);
      }
    }
  }
}

}  // namespace
}  // namespace specd
