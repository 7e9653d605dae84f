// CudaStreams enqueues an engine's rounds on its CUDA streams, for EngineRounds.
//
// It registers the session's words with the device, enqueues the operations that
// ipc/segment/round_words.h shows, and watches the CUDA streams. The first specd_submit_on_stream
// makes it, for the device of that CUDA stream. The words, their width and the turns of host
// functions belong to that device, so CUDA streams of other devices are refused. One thread at a
// time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/mutex.h"
#include "daemon/client/cuda_stream_watch.h"
#include "daemon/client/host_waits.h"
#include "kernels/core/gpu_context.h"

namespace specd {

// Keeps memory that a CUDA stream may still touch. A leak checker can find the memory.
template <class T>
void KeepForever(std::unique_ptr<T> kept) {
  static Mutex* const mutex = new Mutex;
  static auto* const all = new std::vector<std::unique_ptr<T>>;
  MutexLock lock(mutex);
  all->push_back(std::move(kept));
}

class CudaStreams {
 public:
  static absl::StatusOr<std::unique_ptr<CudaStreams>> Open(const CudaStreamWatch::Options& options,
                                                           GpuStream stream);
  // REQUIRES: Close was called.
  ~CudaStreams();

  // OK if a round may be enqueued on this CUDA stream: now if *is_free is set, otherwise later.
  absl::Status Check(GpuStream stream, uint64_t number, bool* is_free);
  // Enqueues three things: the rows of the round are ready, the CUDA stream waits for the answer,
  // and the CUDA stream has continued. REQUIRES: Check allowed this round.
  absl::Status Enqueue(GpuStream stream, uint64_t number);

  // Enqueues the mark that the draft tokens of a round are written, which is no part of the round.
  // False, and nothing is enqueued, if an earlier mark of the ring entry has still to come: it may
  // be on another CUDA stream. If a mark of this round has still to come, it serves.
  absl::StatusOr<bool> MarkDrafts(GpuStream stream, uint64_t number);

  // The address at which the device finds how the round ended.
  GpuAddress StatusAddress(uint64_t number) const;

  // True if a CPU thread of this process waits in place of the CUDA streams. Known from the first
  // round on.
  bool has_host_waits() const { return host_waits_ != nullptr; }
  // True if no mark and no part of a round was enqueued on any CUDA stream.
  bool is_unused() const { return is_unused_; }

  CudaStreamWatch& watch() { return watch_; }

  // Releases every CUDA stream and waits until all of them have passed. False if one did not pass
  // within the timeout. It may still touch the words, which must then stay mapped for the life of
  // the process.
  bool Close(int64_t timeout_ns);

 private:
  CudaStreams(const CudaStreamWatch::Options& options, std::unique_ptr<GpuPlatform> platform,
              std::unique_ptr<GpuContext> context, size_t device_index, GpuWord width,
              GpuAddress words);
  absl::Status CheckStream(GpuStream stream) const;
  absl::Status CheckDevice(GpuStream stream) const;
  GpuAddress AddressOf(uint64_t number, uint64_t offset_bytes) const;
  // Has the CUDA stream write the number into a word of its round. If a function of the host must
  // do that, nothing is enqueued, and *by_host is set.
  absl::Status WriteWord(GpuStream stream, uint64_t number, uint64_t offset_bytes, bool* by_host);
  bool HaveAllMarksCome() const;
  // If Begin fails, the CUDA stream has nothing of the round. If Finish fails, it has a part of the
  // round.
  absl::Status Begin(GpuStream stream, uint64_t number);
  GpuResult Finish(GpuStream stream, uint64_t number);

  const CudaStreamWatch::Options options_;
  std::unique_ptr<GpuPlatform> platform_;
  std::unique_ptr<GpuContext> context_;
  const size_t device_index_;
  const GpuWord width_;
  const GpuAddress words_;                 // of the first ring entry, as the device sees it
  std::unique_ptr<HostWaits> host_waits_;  // null if the CUDA streams write and wait themselves
  bool forces_host_waits_ = false;         // set by SPECD_STREAM_WAITS
  bool is_unused_ = true;
  bool broken_ = false;  // a CUDA stream took a part of a round and not the rest
  CudaStreamWatch watch_;
  // By ring entry: the number of the last mark that was enqueued; 0: none.
  std::array<uint64_t, SessionLimits::kRingDepthMax> marks_ = {};
};

}  // namespace specd
