// MaskPool does the items of a batch on the calling thread, and on threads of its own where the
// batch takes long.
//
// The cache gives a known mask in a microsecond, and a new mask takes up to milliseconds. The
// caller cannot tell them apart beforehand. The caller therefore begins alone, and wakes the
// threads after kAloneNs of work. It never waits for a thread that has not begun, unlike the
// callers of WorkerPool. One batch at a time has the threads; the caller of another works alone.
// Safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace specd::grammar {

class MaskPool {
 public:
  using NowNs = std::function<int64_t()>;
  using Work = absl::FunctionRef<void(size_t item)>;

  // How long the caller works alone. On a busy machine of two cores, waking one to three threads
  // and hearing from them took 5 to 19 us; a row of 128k ids took 0.4 us if it was there and 1400
  // us if it was new. So about a hundred rows that are there stay on the caller, and the first new
  // row brings help (docs/BENCHMARKS.md, "Masks of a batch").
  static constexpr int64_t kAloneNs = 50'000;

  // `now_ns` tells the time in nanoseconds, to any thread.
  explicit MaskPool(NowNs now_ns);
  ~MaskPool();
  MaskPool(const MaskPool&) = delete;
  MaskPool& operator=(const MaskPool&) = delete;

  // Makes the threads of later batches now, so that Share makes none. A system that has no more
  // threads gives less help.
  void Start(int32_t num_threads);

  // Calls `work` once for each item below num_items, on at most num_threads threads, and returns
  // when all is done. Share throws the exceptions of `work`. REQUIRES: num_threads >= 1.
  void Share(size_t num_items, int32_t num_threads, Work work);

 private:
  class Crew;

  struct Batch {
    Batch(size_t num, const Work& what) : num_items(num), work(what) {}

    // Does the next item. Returns false if there is none.
    bool DoNext();

    const size_t num_items;
    const Work work;
    std::atomic<size_t> next{0};  // relaxed: it only numbers items
    std::mutex mutex;
    std::exception_ptr failure;  // the first; guarded by mutex
  };

  // The threads, made when they are first needed. Null in a child process, which has none.
  Crew* FindCrew();

  const NowNs now_ns_;
  std::mutex mutex_;
  std::unique_ptr<Crew> crew_;  // guarded by mutex_
};

}  // namespace specd::grammar
