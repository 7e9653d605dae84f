// HostWaits: rounds on streams of a device that has no stream memory operations. A function on the
// CPU stands in a stream's place: it says that the rows are ready, waits for the answer and says
// that the stream has gone on. To the daemon and to the watch the words look as they always do.
//
// An event between processes could not stand for the answer: a stream waits for the record that was
// called last, and the daemon has called none yet when the engine enqueues its wait.
//
// One thread at a time; the functions run on a thread of the driver's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ipc/segment/segment.h"
#include "kernels/core/gpu_context.h"

namespace specd {

class HostWaits {
 public:
  // Both outlive this, and this every function that was enqueued: until all have passed.
  static GpuResult Open(GpuContext* context, Segment* segment, std::unique_ptr<HostWaits>* opened);
  ~HostWaits() { (void)context_.DestroyEvent(turn_); }
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

  // All of a round but the turn of the next one. Where it fails, the stream has nothing of it.
  GpuResult Begin(GpuStream stream, uint64_t number);
  GpuResult Finish(GpuStream stream);

 private:
  struct Round {
    RoundWords* words = nullptr;
    uint64_t number = 0;
  };

  HostWaits(GpuContext* context, Segment* segment, GpuEvent turn);
  static void Hold(void* round);

  GpuContext& context_;
  Segment& segment_;
  const GpuEvent turn_;  // recorded behind the function of the last round
  // By slot. A function has read its own when it says that the rows are ready, so before there can
  // be an answer and another round of the slot.
  std::vector<Round> rounds_;
};

}  // namespace specd
