// EngineStreams: the engine's CUDA streams, as far as rounds are submitted on them. Registers the
// words of the session with the device, enqueues what ipc/segment/round_words.h shows, and watches.
//
// Made by the first specd_submit_on_stream, for the device of its stream; streams of other devices
// are refused, because the words, their width and the host's turns are that device's. One thread at
// a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/mutex.h"
#include "daemon/client/host_waits.h"
#include "daemon/client/stream_watch.h"
#include "kernels/core/gpu_context.h"

namespace specd {

// For what a stream may still touch. It can be found by whoever looks for leaks.
template <class T>
void KeepForever(std::unique_ptr<T> kept) {
  static Mutex* const mutex = new Mutex;
  static auto* const all = new std::vector<std::unique_ptr<T>>;
  MutexLock lock(mutex);
  all->push_back(std::move(kept));
}

class EngineStreams {
 public:
  static absl::StatusOr<std::unique_ptr<EngineStreams>> Open(const StreamWatch::Options& options,
                                                             GpuStream stream);
  // REQUIRES: Close was called.
  ~EngineStreams();

  // OK where a round may be enqueued on this stream now or, see *is_free, later.
  absl::Status Check(GpuStream stream, uint64_t number, bool* is_free);
  // Enqueues that the rows of the round are ready, that the stream waits for its answer, and that
  // it has gone on. REQUIRES: Check said that it may.
  absl::Status Enqueue(GpuStream stream, uint64_t number);

  // Where the device finds how the round ended.
  GpuAddress StatusAddress(uint64_t number) const;

  // Does a CPU of this process wait in the streams' place? Known from the first round on.
  bool has_host_waits() const { return host_waits_ != nullptr; }
  // Is there no stream that anything of a round was enqueued on?
  bool is_unused() const { return is_unused_; }

  StreamWatch& watch() { return watch_; }

  // Releases every stream and waits until all of them have passed. False if one did not within the
  // timeout: it may still touch the words, which must stay mapped for the life of the process.
  bool Close(int64_t timeout_ns);

 private:
  EngineStreams(const StreamWatch::Options& options, std::unique_ptr<GpuPlatform> platform,
                std::unique_ptr<GpuContext> context, size_t device_index, GpuWord width,
                GpuAddress words);
  absl::Status CheckDevice(GpuStream stream) const;
  GpuAddress AddressOf(uint64_t number, uint64_t offset_bytes) const;
  // Nothing of the round is on the stream where Begin fails, and a part of it where Finish does.
  absl::Status Begin(GpuStream stream, uint64_t number);
  GpuResult Finish(GpuStream stream, uint64_t number);

  const StreamWatch::Options options_;
  std::unique_ptr<GpuPlatform> platform_;
  std::unique_ptr<GpuContext> context_;
  const size_t device_index_;
  const GpuWord width_;
  const GpuAddress words_;                 // of the first slot, as the device sees it
  std::unique_ptr<HostWaits> host_waits_;  // none where streams write and wait themselves
  bool forces_host_waits_ = false;         // SPECD_STREAM_WAITS
  bool is_unused_ = true;
  bool broken_ = false;  // a stream took a part of a round and not the rest
  StreamWatch watch_;
};

}  // namespace specd
