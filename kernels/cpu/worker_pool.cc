#include "kernels/cpu/worker_pool.h"

#include "kernels/core/check.h"
#include "kernels/core/fp_environment.h"

namespace specd {

WorkerPool::WorkerPool(int32_t num_workers)
    : num_workers_(num_workers), barriers_(std::make_unique<SpinBarrier[]>(num_workers)) {
  SPECD_CHECK(num_workers >= 1);
  threads_.reserve(num_workers - 1);
  try {
    for (int32_t worker = 1; worker < num_workers; ++worker) {
      threads_.emplace_back([this, worker] { WorkerMain(worker); });
    }
  } catch (...) {
    Stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Stop() {
  work_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Share(int32_t num_items, bool alone, Work work) {
  if (alone || num_workers_ == 1) {
    for (int32_t item = 0; item < num_items; ++item) work(item, 0, TeamSeat{});
    return;
  }
  work_ = &work;
  num_shared_ = num_items % num_workers_;
  num_whole_ = num_items - num_shared_;
  for (int32_t team = 0; team < num_shared_; ++team) {
    barriers_[team].Reset(FirstOfTeam(team + 1) - FirstOfTeam(team));
  }
  next_.store(0, std::memory_order_relaxed);
  num_busy_.store(num_workers_, std::memory_order_relaxed);
  const uint32_t finished = num_finished_rounds_.load(std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  DoItems(0, work);
  AwaitChange(num_finished_rounds_, finished);
}

void WorkerPool::WorkerMain(int32_t worker) {
  const FpEnvironment environment;
  for (uint32_t round = 0;; ++round) {
    AwaitChange(round_, round);
    if (work_ == nullptr) return;
    DoItems(worker, *work_);
  }
}

void WorkerPool::DoItems(int32_t worker, const Work& work) {
  const int32_t num_whole = num_whole_;
  for (int32_t item = next_.fetch_add(1, std::memory_order_relaxed); item < num_whole;
       item = next_.fetch_add(1, std::memory_order_relaxed)) {
    work(item, worker, TeamSeat{});
  }
  if (num_shared_ > 0) {
    // There are fewer items than workers, so every worker has a team, and no team is empty.
    const int32_t team = static_cast<int32_t>(int64_t{worker} * num_shared_ / num_workers_);
    const int32_t first = FirstOfTeam(team);
    TeamSeat seat{.group = worker - first,
                  .num_groups = FirstOfTeam(team + 1) - first,
                  .barrier = &barriers_[team]};
    // The workspace is that of the first worker, which may still use it for an item of its own.
    seat.barrier->Wait();
    work(num_whole + team, first, seat);
    seat.barrier->Leave();
  }
  if (num_busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    num_finished_rounds_.fetch_add(1, std::memory_order_release);
    num_finished_rounds_.notify_one();
  }
}

// The smallest worker w with w * num_shared_ / num_workers_ == team.
int32_t WorkerPool::FirstOfTeam(int32_t team) const {
  return static_cast<int32_t>((int64_t{team} * num_workers_ + num_shared_ - 1) / num_shared_);
}

}  // namespace specd
