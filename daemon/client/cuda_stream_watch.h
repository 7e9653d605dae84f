// CudaStreamWatch releases CUDA streams that wait for a round in vain, for CudaStreams.
//
// Nothing in CUDA times out, and an engine that waits for its CUDA stream calls no function. The
// watch therefore has a thread of its own.
//
// A CUDA stream is released in two cases: its rows have been ready for the timeout without an
// answer, or the daemon is gone. Only time in which the watch looked counts (AwakeTime). Before its
// rows are ready, the CUDA stream has not come to its wait and may take any time.
// ipc/segment/round_words.h says what a late daemon may still do. While the daemon lives, a round
// that it has claimed is left to it: only bookkeeping and slot outputs are missing.
//
// Any thread may call; the thread runs from Start to Stop.
#pragma once

#include <array>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/base/awake_time.h"
#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/client/library_thread.h"
#include "ipc/segment/segment.h"

namespace specd {

class CudaStreamWatch {
 public:
  struct Options {
    Segment* segment = nullptr;
    Clock* clock = nullptr;
    int64_t timeout_ns = 0;
    int hangup_fd = -1;  // hangs up when the daemon is gone
  };

  explicit CudaStreamWatch(const Options& options);
  ~CudaStreamWatch() { Stop(); }
  CudaStreamWatch(const CudaStreamWatch&) = delete;
  CudaStreamWatch& operator=(const CudaStreamWatch&) = delete;

  absl::Status Start();
  void Stop() { thread_.Stop(); }

  // A CUDA stream may wait for this round from now on. `stream` is only compared.
  void Add(uint64_t number, const void* stream);

  // True if a CUDA stream may wait for this round. False while another CUDA stream has not passed
  // the round one lap earlier: both would write the same words, in an unknown order.
  bool IsFree(uint64_t number, const void* stream);

  // Looks at every round once. The thread calls it again and again.
  void Look(int64_t now_ns, bool daemon_gone);

  // Releases every CUDA stream, ready or not, because the engine closes. The daemon releases a
  // round that it has claimed, after its last write. With also_claimed, such a round is called off
  // too.
  void ReleaseAll(bool also_claimed);
  // The daemon is gone, and nothing looks at the rounds any more: stops the thread, and releases
  // every CUDA stream. Rounds that the daemon has not answered are aborted.
  void LetGo();
  // True if no CUDA stream will touch the words any more.
  bool HaveAllPassed();

 private:
  // The last round of a ring entry that was enqueued on a CUDA stream; number 0 means none.
  struct Round {
    uint64_t number = 0;
    const void* stream = nullptr;
    int64_t ready_ns = -1;  // of awake_, when its rows were first seen to be ready
  };

  void Run();
  Round& RoundOf(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return rounds_[(number - 1) & (options_.segment->limits().ring_depth - 1)];
  }
  // The daemon is gone: the round is aborted, unless it was answered.
  void Abort(RoundWords* words, uint64_t number) const;
  // True if a CUDA stream was released.
  bool LookAt(Round* round, bool daemon_gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Mutex mutex_;
  AwakeTime awake_ ABSL_GUARDED_BY(mutex_);  // stepped by Look
  std::array<Round, SessionLimits::kRingDepthMax> rounds_ ABSL_GUARDED_BY(mutex_);
  LibraryThread thread_;
};

}  // namespace specd
