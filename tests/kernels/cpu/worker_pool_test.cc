#include "kernels/cpu/worker_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/grid_size.h"

namespace specd {
namespace {

constexpr int32_t kWorkerCounts[] = {1, 2, 3, 5, 8, 16};

TEST_SUITE("unit") {
  TEST_CASE("every item is done once, whole or by all groups of one team") {
    for (const int32_t num_workers : kWorkerCounts) {
      WorkerPool pool(num_workers);
      for (const int32_t num_items : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 100}) {
        CAPTURE(num_workers);
        CAPTURE(num_items);
        std::vector<std::atomic<int32_t>> visits(num_items);      // one bit for each group
        std::vector<std::atomic<int32_t>> num_groups(num_items);  // as the groups were told
        std::vector<std::atomic<int32_t>> owners(num_workers);    // item + 1 in each workspace
        std::atomic<int32_t> num_errors = 0;
        pool.Share(num_items, false, [&](int32_t item, int32_t workspace, const TeamSeat& seat) {
          if ((visits[item].fetch_or(1 << seat.group) >> seat.group & 1) != 0) ++num_errors;
          num_groups[item] = seat.num_groups;
          const int32_t before = owners[workspace].exchange(item + 1);
          if (before != 0 && before != item + 1) ++num_errors;
          // Long enough for others to come to items that they share.
          for (int i = 0; i < 20; ++i) std::this_thread::yield();
          if (seat.num_groups > 1) seat.barrier->Wait();
          if (seat.group == 0) owners[workspace] = 0;
          if (seat.num_groups > 1) seat.barrier->Wait();
        });
        CHECK(num_errors == 0);
        for (int32_t i = 0; i < num_items; ++i) {
          REQUIRE(visits[i] == (1 << num_groups[i]) - 1);
          const bool shared = i >= num_items / num_workers * num_workers;
          if (!shared) REQUIRE(num_groups[i] == 1);
        }
        // No worker is idle while another does an item alone.
        int32_t num_seats = 0;
        const int32_t num_shared = num_items % num_workers;
        for (int32_t i = num_items - num_shared; i < num_items; ++i) num_seats += num_groups[i];
        CHECK(num_seats == (num_shared == 0 ? 0 : num_workers));
      }
    }
  }

  TEST_CASE("alone, the caller does everything, in order") {
    WorkerPool pool(4);
    const std::thread::id caller = std::this_thread::get_id();
    std::vector<int32_t> items;
    pool.Share(5, true, [&](int32_t item, int32_t workspace, const TeamSeat& seat) {
      REQUIRE(std::this_thread::get_id() == caller);
      REQUIRE(seat.num_groups == 1);
      REQUIRE(workspace == 0);
      items.push_back(item);
    });
    CHECK(items == std::vector<int32_t>{0, 1, 2, 3, 4});
  }

  // The integers are plain, so ThreadSanitizer reports accesses that the barrier does not order.
  TEST_CASE("what a group writes before the barrier every group reads behind it") {
    for (const int32_t num_workers : {2, 3, 5}) {
      WorkerPool pool(num_workers);
      std::vector<int32_t> published(num_workers, 0);
      std::atomic<int32_t> num_errors = 0;
      for (int32_t round = 0; round < 20; ++round) {
        pool.Share(1, false, [&](int32_t, int32_t, const TeamSeat& seat) {
          for (int32_t pass = 0; pass < 50; ++pass) {
            published[seat.group] = round * 1000 + pass;
            seat.barrier->Wait();
            for (const int32_t value : published) {
              if (value != round * 1000 + pass) ++num_errors;
            }
            seat.barrier->Wait();
          }
        });
      }
      CHECK(num_errors == 0);
    }
  }

  TEST_CASE("a group that leaves early does not hold the others") {
    WorkerPool pool(4);
    std::atomic<int32_t> num_waits = 0;
    for (int32_t round = 0; round < 50; ++round) {
      pool.Share(1, false, [&](int32_t, int32_t, const TeamSeat& seat) {
        for (int32_t i = 0; i < 10 * seat.group; ++i) {
          seat.barrier->Wait();
          ++num_waits;
        }
      });
    }
    CHECK(num_waits == 50 * (10 + 20 + 30));
  }

#if !defined(__SANITIZE_THREAD__)  // which would rightly report the rows
  // Groups of a team that read different values take different branches. The groups must not wait
  // for one another for ever. They must not follow each other's numbers out of the workspace.
  TEST_CASE("rows that change while they are read do no harm") {
    constexpr int32_t kVocabSize = 64 * kTileSize;
    constexpr int32_t kNumRows = 4;
    std::mt19937_64 random(48);
    std::vector<float> rows(size_t{kNumRows} * kVocabSize);
    for (float& x : rows) x = static_cast<float>(random() % 1000) / 100;
    std::atomic<bool> stop = false;
    std::thread engine([&] {
      std::mt19937_64 values(49);
      while (!stop) {
        for (int i = 0; i < 1000; ++i) {
          const uint64_t draw = values();
          auto* x = const_cast<volatile float*>(&rows[draw % rows.size()]);
          *x = draw >> 40 == 0 ? NAN : static_cast<float>(draw >> 50 & 1023) / 64;
        }
      }
    });
    ChainCase chain(VerifyMethod::kExactMatch, {5, 6, 7}, DraftKind::kSampled);
    std::vector<Task> tasks(4, chain.task);
    tasks[0].method = VerifyMethod::kGreedy;
    tasks[1].target_filters.top_k = 1500;
    tasks[2].target_filters.top_p = kTopPOff / 10 * 8;
    tasks[3].method = VerifyMethod::kBlock;
    std::vector<TaskOutcome> outcomes(4);
    std::vector<TokenId> tokens(4 * 4);
    RoundBatch batch;
    batch.target =
        batch.draft = {rows.data(), DType::kFloat32, kNumRows, kVocabSize, kVocabSize, {}};
    batch.outcomes = outcomes.data();
    batch.tokens = tokens.data();
    batch.tokens_stride = 4;
    batch.num_tasks = 1;
    CpuBackend backend(BestCpuTarget());
    REQUIRE(backend.Prepare({kVocabSize, 4, 3, 3}).ok());
    for (int round = 0; round < GridSize({.full = 100, .sanitized = 20}); ++round) {
      batch.tasks = &tasks[round % 4];
      REQUIRE(backend.Run(batch).ok());
      REQUIRE(outcomes[0].num_tokens <= 4);
      for (int32_t i = 0; i < outcomes[0].num_tokens; ++i) {
        REQUIRE(tokens[i] >= 0);
        REQUIRE(tokens[i] < kVocabSize);
      }
    }
    stop = true;
    engine.join();
  }
#endif

#if defined(__x86_64__)
  TEST_CASE("workers have the default floating-point environment, whoever made them") {
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(0x8040u | 0x4000u | 0x1F80u);
    std::vector<uint32_t> words(8, 0);
    {
      WorkerPool pool(8);
      pool.Share(1, false, [&](int32_t, int32_t, const TeamSeat& seat) {
        words[seat.group] = _mm_getcsr() & 0xFFC0u;  // without the sticky flags
      });
    }
    _mm_setcsr(before);
    for (int32_t worker = 1; worker < 8; ++worker) CHECK(words[worker] == 0x1F80u);
  }
#endif
}

}  // namespace
}  // namespace specd
