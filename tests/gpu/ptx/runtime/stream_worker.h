// StreamWorker runs the work that CUDA streams enqueue, on a thread of its own.
//
// The work of one CUDA stream runs in order, one piece at a time. The seed chooses the next CUDA
// stream among those that have work. The host decides when work comes, so a seed does not repeat an
// order. A mark stands for a piece of work, and work may have to come after a mark. The first error
// ends everything: work that is left is dropped, and counts as done. Thread-safe.
//
//   StreamWorker worker(seed);
//   auto queue = std::make_shared<StreamQueue>();
//   worker.Push(queue, {.run = [&] { return Launch(); }});
//   worker.AwaitIdle(*queue);
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace specd::ptx {

// A piece of work. A graph runs its pieces repeatedly.
using Work = std::function<absl::Status()>;

// Whether a piece of work is done, and since when. A null mark is done.
class Mark {
 public:
  using Clock = std::chrono::steady_clock;

 private:
  friend class StreamWorker;
  using Since = std::optional<Clock::time_point>;
  std::shared_ptr<Since> since_;  // guarded by the worker's mutex
};

// The work that one CUDA stream has enqueued. The worker keeps a queue until its work is done.
class StreamQueue {
 private:
  friend class StreamWorker;
  struct Item {
    Work run;
    Mark after;
    Mark done;
  };
  std::deque<Item> items_;
  Mark last_;
};

class StreamWorker {
 public:
  // The most pieces that wait on one CUDA stream. Push waits for room, as a launch does on a
  // device.
  static constexpr size_t kMostWaiting = 128;
  // The longest time that IsIdle waits.
  static constexpr std::chrono::milliseconds kPollTime{10};

  explicit StreamWorker(uint64_t seed);
  StreamWorker(const StreamWorker&) = delete;
  StreamWorker& operator=(const StreamWorker&) = delete;
  // Waits for all work.
  ~StreamWorker();

  struct Piece {
    Work run = nullptr;  // null: nothing, for the mark alone
    Mark after = {};     // it does not run before
  };
  Mark Push(const std::shared_ptr<StreamQueue>& queue, Piece piece);

  // Whether its work is done. Waits for that, but not for long: a caller that polls takes little of
  // the processor from the work.
  bool IsIdle(const StreamQueue& queue);
  void AwaitIdle(const StreamQueue& queue);
  void AwaitAll();
  // Calls function() when no work is left; none begins before it has returned.
  void WhenIdle(const std::function<void()>& function);
  // Empty if the work is not done, or if the mark is null.
  std::optional<Mark::Clock::time_point> DoneSince(const Mark& mark);

  // Ends everything with the caller's error, as an error of the work does.
  void Fail(const absl::Status& status);
  absl::Status status();

 private:
  static bool IsDone(const Mark& mark) { return mark.since_ == nullptr || *mark.since_; }
  // A queue whose first piece may run, without that piece.
  StreamQueue::Item TakeNext();
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<StreamQueue>> busy_;  // that have items, the longest busy first
  size_t num_left_ = 0;
  bool stopping_ = false;
  absl::Status status_;
  std::mt19937_64 random_;  // used by the thread
  std::thread thread_;
};

}  // namespace specd::ptx
