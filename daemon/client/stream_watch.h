// StreamWatch: releases CUDA streams that wait for a round in vain. Nothing in CUDA times out, and
// an engine that waits for its stream calls nobody, so this has a thread of its own.
//
// A stream is released where its rows have been ready for the timeout and the daemon has not
// answered, and where the daemon is gone; before that the stream has not come to its wait, and has
// every right to be slow. What a late daemon may still do then is in ipc/segment/round_words.h. A
// round that the daemon has claimed is left to it while it lives: all that is missing is
// bookkeeping and next tokens.
//
// Any thread may call; the thread runs from Start to Stop.
#pragma once

#include <array>
#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "ipc/base/unique_fd.h"
#include "ipc/segment/segment.h"

namespace specd {

class StreamWatch {
 public:
  struct Options {
    Segment* segment = nullptr;
    Clock* clock = nullptr;
    int64_t timeout_ns = 0;
    int hangup_fd = -1;  // hangs up when the daemon is gone
  };

  explicit StreamWatch(const Options& options) : options_(options) {}
  ~StreamWatch() { Stop(); }
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  absl::Status Start();
  void Stop();

  // From now on a stream may wait for this round. `stream` is only compared.
  void Add(uint64_t number, const void* stream);

  // May a stream wait for this round? Not while another one has yet to pass the round of a lap ago:
  // the two would write the same words in an order that nobody knows.
  bool IsFree(uint64_t number, const void* stream);

  // One look at every round; what the thread does again and again.
  void Look(int64_t now_ns, bool daemon_gone);

  // Releases every stream, ready or not: the engine closes. A round that the daemon has claimed is
  // the daemon's to release, behind what it still writes; with also_claimed it is called off.
  void ReleaseAll(bool also_claimed);
  // No stream will touch the words any more.
  bool HaveAllPassed();

 private:
  // The last round of a slot that was enqueued on a stream; none where number is 0.
  struct Round {
    uint64_t number = 0;
    const void* stream = nullptr;
    int64_t ready_ns = -1;  // when its rows were first seen to be ready
  };

  void Run();
  Round& RoundOf(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return rounds_[(number - 1) & (options_.segment->limits().ring_depth - 1)];
  }
  // True if a stream was released.
  bool LookAt(Round* round, int64_t now_ns, bool daemon_gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  UniqueFd stop_fd_;  // an eventfd
  std::thread thread_;
  Mutex mutex_;
  std::array<Round, SessionLimits::kRingDepthMax> rounds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specd
