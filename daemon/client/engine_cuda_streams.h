// EngineCudaStreams owns what an engine's CUDA streams share with the daemon, for EngineRounds: the
// words of the present daemon, and those of daemons that are gone.
//
// An engine may go to another daemon. Its CUDA streams then get words of their own there. Those
// that still have work of the old daemon keep its words, which the device may look at until the
// engine closes. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/cuda_streams.h"
#include "daemon/client/engine_link.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/segment.h"

namespace specd {

class EngineCudaStreams {
 public:
  // The link and the segment must outlive this object. A timeout of 0 is the default.
  EngineCudaStreams(EngineLink* link, Segment* segment, uint32_t timeout_ms);

  // The engine may go to another daemon from now on. Call before the first round or mark.
  void MayMove() { may_move_ = true; }
  // The engine goes to another daemon now.
  void LetGo();

  // Refuses CUDA streams in embedded mode.
  absl::Status CheckMode() const;
  // Like CudaStreams: Check, then Enqueue, and Mark. The first call is for the device of its CUDA
  // stream; a call that enqueues nothing leaves the next one free to be for another device.
  absl::Status Check(GpuStream stream, uint64_t number, bool* is_free);
  absl::Status Enqueue(GpuStream stream, uint64_t number);
  absl::StatusOr<bool> MarkDrafts(GpuStream stream, uint64_t number);

  absl::Status GetRoundEnd(specd_round_end* end) const;
  // True if a CPU thread of this process waits in place of CUDA streams.
  bool has_host_waits() const { return streams_ != nullptr && streams_->has_host_waits(); }
  // Releases every CUDA stream and waits until all have passed. False if one has not passed: it
  // will still write a word of the present segment, which must stay mapped.
  bool Close(int64_t timeout_ns);

 private:
  // The words of CUDA streams, and what they do with them.
  struct Words {
    std::unique_ptr<Segment> segment;  // null: the session's own
    std::unique_ptr<CudaStreams> streams;
  };

  // Opens streams_ for the device of this CUDA stream, if no round or mark has opened it.
  absl::Status Open(GpuStream stream);
  // Closes streams_ if no CUDA stream has work of it: the next one may be of another device.
  void DropUnused();

  EngineLink& link_;
  Segment& segment_;
  const int timeout_ms_;  // for a CUDA stream that waits
  bool may_move_ = false;
  std::vector<Words> left_;               // of daemons that are gone
  std::unique_ptr<Segment> words_;        // of streams_, if the engine may go to another daemon
  std::unique_ptr<CudaStreams> streams_;  // null before the first round or mark on a CUDA stream
  uint64_t last_on_stream_ = 0;           // number of the last round on a CUDA stream
  CudaStreams* last_streams_ = nullptr;   // whose words it has
};

}  // namespace specd
