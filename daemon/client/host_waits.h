// HostWaits runs rounds on CUDA streams of a device that has no memory operations on them, for
// CudaStreams.
//
// A function on the CPU waits in the CUDA stream's place. The function says that the rows are
// ready, waits for the answer, and says that the CUDA stream has continued. The daemon and the
// watch see the same words as always.
//
// An event between processes could not be the answer. A CUDA stream waits for the record
// that was called last, and the daemon has called none yet when the engine enqueues its wait.
//
// One thread at a time; the functions run on a thread of the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ipc/segment/segment.h"
#include "kernels/core/gpu_context.h"

namespace specd {

class HostWaits {
 public:
  // The context and the segment must outlive this object. It must outlive every function that was
  // enqueued, until all have passed.
  static GpuResult Open(GpuContext* context, Segment* segment, std::unique_ptr<HostWaits>* opened);
  ~HostWaits() { (void)context_.DestroyEvent(turn_); }
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

  // Enqueues all parts of a round except the turn of the next round. If it fails, the CUDA stream
  // has nothing of the round.
  GpuResult Begin(GpuStream stream, uint64_t number);
  GpuResult Finish(GpuStream stream);
  // Enqueues the mark of a round's draft tokens. REQUIRES: the last mark of the ring entry has
  // come.
  GpuResult Mark(GpuStream stream, uint64_t number);

 private:
  struct Round {
    RoundWords* words = nullptr;
    uint64_t number = 0;
  };

  HostWaits(GpuContext* context, Segment* segment, GpuEvent turn);
  static void Hold(void* round);
  static void SayMarked(void* round);
  // Writes the record of a function.
  Round* Record(std::vector<Round>* records, uint64_t number);

  GpuContext& context_;
  Segment& segment_;
  const GpuEvent turn_;  // recorded after the function of the last round
  // By ring entry. A function has read its own record when it says that the rows are ready. The
  // answer, and another round of the entry, can only come later.
  std::vector<Round> rounds_;
  std::vector<Round> marks_;  // likewise; a function has read its own record when it has marked
};

}  // namespace specd
