// WorkerPool shares a round's items (tasks, or rows to transform) among threads for CpuBackend.
//
// Each free worker takes the next whole item. If fewer items than workers remain, a team of workers
// shares each of them. The assignment never changes a bit: items do not depend on each other, and a
// team's bits do not depend on its groups.
//
// The caller of Share is one of the workers. The others spin for a short time between calls and
// then sleep. They have a floating-point environment of their own and end with the pool. One caller
// at a time; Share allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/spin_barrier.h"

namespace specd {

class WorkerPool {
 public:
  // Does item number `item` from this seat. Workers of one team get the same `workspace`: a number
  // below num_workers that no other team has at that time.
  using Work = absl::FunctionRef<void(int32_t item, int32_t workspace, const TeamSeat& seat)>;

  // Throws std::system_error if the system has no more threads.
  explicit WorkerPool(int32_t num_workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int32_t num_workers() const { return num_workers_; }

  // Returns when every item is done. With `alone` the caller does all of them, for rounds that end
  // before another thread would wake.
  void Share(int32_t num_items, bool alone, Work work);

 private:
  void WorkerMain(int32_t worker);
  void DoItems(int32_t worker, const Work& work);
  // The first worker of the team for remaining item `team` of num_shared_.
  int32_t FirstOfTeam(int32_t team) const;
  void Stop();

  const int32_t num_workers_;
  std::unique_ptr<SpinBarrier[]> barriers_;  // one for each item that may be shared
  std::vector<std::thread> threads_;

  // The call in progress. The caller writes it before it raises round_, and workers read it
  // afterwards.
  const Work* work_ = nullptr;  // null: end
  int32_t num_whole_ = 0;
  int32_t num_shared_ = 0;

  // Raised by the caller (release) for each call, awaited by workers (acquire).
  alignas(64) std::atomic<uint32_t> round_{0};
  // The next whole item. Relaxed: it only numbers items.
  alignas(64) std::atomic<int32_t> next_{0};
  // num_finished_rounds_ is raised by the last worker to finish (release) and awaited by the caller
  // (acquire). num_busy_ counts the busy workers; its read-modify-writes carry the results of all
  // workers to the last one.
  alignas(64) std::atomic<int32_t> num_busy_{0};
  std::atomic<uint32_t> num_finished_rounds_{0};
};

}  // namespace specd
