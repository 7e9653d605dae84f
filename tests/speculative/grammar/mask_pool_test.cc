#include "speculative/grammar/masks/mask_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/manual_clock.h"

namespace specd::grammar {
namespace {

// Counts the items, and the threads that did them.
class Record {
 public:
  explicit Record(size_t num_items) : counts_(num_items) {}

  void Note(size_t item) {
    ++counts_[item];
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    changed_.notify_all();
  }
  // Returns once `count` threads have done an item.
  void AwaitThreads(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return threads_.size() >= count; });
  }
  size_t num_threads() {
    const std::lock_guard lock(mutex_);
    return threads_.size();
  }
  void CheckEachOnce() const {
    for (const std::atomic<int>& count : counts_) REQUIRE(count == 1);
  }

 private:
  std::vector<std::atomic<int>> counts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> threads_;
};

TEST_SUITE("unit") {
  TEST_CASE("MaskPool: while no time has passed, the caller does every item") {
    ManualClock clock;
    MaskPool pool([&clock] { return clock.NowNs(); });
    Record record(100);
    pool.Share(100, 8, [&](size_t item) { record.Note(item); });
    record.CheckEachOnce();
    CHECK(record.num_threads() == 1);
  }

  TEST_CASE("MaskPool: an item that takes long brings other threads, and each item is done once") {
    ManualClock clock;
    MaskPool pool([&clock] { return clock.NowNs(); });
    for (const int32_t num_threads : {2, 3, 5, 2}) {
      Record record(40);
      // Every item but the first waits until all threads have one, so all of them must come.
      pool.Share(40, num_threads, [&](size_t item) {
        clock.AdvanceNs(MaskPool::kAloneNs);
        record.Note(item);
        if (item > 0) record.AwaitThreads(static_cast<size_t>(num_threads));
      });
      record.CheckEachOnce();
      CHECK(record.num_threads() == static_cast<size_t>(num_threads));
    }
  }

  TEST_CASE("MaskPool: one thread is asked for, and one works") {
    ManualClock clock;
    MaskPool pool([&clock] { return clock.NowNs(); });
    Record record(10);
    pool.Share(10, 1, [&](size_t item) {
      clock.AdvanceNs(MaskPool::kAloneNs);
      record.Note(item);
    });
    record.CheckEachOnce();
    CHECK(record.num_threads() == 1);
    pool.Share(0, 4, [&](size_t) { FAIL("there is no item"); });
  }

  TEST_CASE("MaskPool: batches of several threads at once, each complete") {
    ManualClock clock;
    MaskPool pool([&clock] { return clock.NowNs(); });
    std::vector<std::thread> callers;
    std::atomic<int> num_wrong{0};
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] {
        for (int batch = 0; batch < 50; ++batch) {
          std::vector<std::atomic<int>> counts(17);
          pool.Share(17, 3, [&](size_t item) {
            clock.AdvanceNs(MaskPool::kAloneNs);
            ++counts[item];
          });
          for (const std::atomic<int>& count : counts) num_wrong += count != 1;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(num_wrong == 0);
  }

  TEST_CASE("MaskPool: what an item throws reaches the caller, and the pool goes on") {
    ManualClock clock;
    MaskPool pool([&clock] { return clock.NowNs(); });
    std::atomic<int> num_done{0};
    CHECK_THROWS_AS(pool.Share(20, 4,
                               [&](size_t item) {
                                 clock.AdvanceNs(MaskPool::kAloneNs);
                                 ++num_done;
                                 if (item % 2 == 1) throw std::bad_alloc();
                               }),
                    std::bad_alloc);
    CHECK(num_done == 20);
    Record record(20);
    pool.Share(20, 4, [&](size_t item) { record.Note(item); });
    record.CheckEachOnce();
  }
}

}  // namespace
}  // namespace specd::grammar
