// Backend runs the rounds of speculative/ on one kind of processor.
//
// A backend runs the bodies of kernels/bodies for every sequence of a round. Make a backend by the
// name of its device ("cpu", "cuda:1"; kernels/backend_registry.h); all backends give the same bits
// (CONTRACT §9). One backend serves one session, or the library calls of one thread for one device,
// and is used by one thread at a time; several backends of a device work at the same time. After
// Prepare a round allocates nothing. No function throws.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/round.h"
#include "kernels/core/types.h"

namespace specd {

// The most rounds that may be staged at a time: one runs, one waits for it, one is being staged,
// and one is done but not yet collected.
inline constexpr int32_t kStagedRoundsMax = 4;

// The largest round that a session can make; workspaces are sized from it.
struct BackendLimits {
  int32_t vocab_size = 0;
  int32_t max_batch = 0;
  int32_t max_draft = 0;   // the nodes of one draft
  int32_t threads = 1;     // the threads of a CPU backend; the bits do not depend on them
  uint32_t num_slots = 0;  // Task::slot is below it
  // The largest SlotStates::recent_room of rounds that bring their own slots.
  int32_t recent_room = 0;
  int32_t max_path = 0;  // nodes from the root to the end of a draft; 0: max_draft
  // Staged rounds may ask for decisions. Their launches are enqueued before any round is known, and
  // have one launch more for it. Other rounds need no permission.
  bool records_staged = false;

  // The most tokens that one sequence gains in a round: a path and one final token.
  constexpr int32_t max_output() const { return (max_path == 0 ? max_draft : max_path) + 1; }
};

// SlotStates::recent_room of staged rounds: the most tokens of one sequence that the staged rounds
// can confirm.
inline constexpr int32_t RecentRoomMax(const BackendLimits& limits) {
  return kStagedRoundsMax * limits.max_output();
}

// The greatest index that the name of a device may have.
inline constexpr uint32_t kDeviceIndexMax = 255;

struct BackendOptions {
  // For "cuda": the caller's cudaStream_t, which outlives the backend. Rounds run on its device, in
  // order with the caller's own work on it. While it is capturing, every call that would wait for
  // it returns FAILED_PRECONDITION; EnqueueStaged, Stage and Collect do not wait. Null: the backend
  // uses a CUDA stream of its own.
  void* cuda_stream = nullptr;
  // The index in the name of the device, which the registry sets. None: the device of the CUDA
  // stream, or the first one.
  std::optional<uint32_t> device_index = std::nullopt;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // The device whose memory rounds may use (MemorySpace::kDevice), as GpuDriver lists it; empty:
  // rounds use host memory only.
  virtual std::string_view device_uuid() const { return {}; }

  // Takes all memory for rounds within the limits.
  virtual absl::Status Prepare(const BackendLimits& limits) = 0;

  // REQUIRES: Prepare succeeded; the batch is inside its limits; row indices are inside the
  // tensors. An error means that the processor failed, or that the caller's CUDA stream is
  // capturing a graph. Unusual input is never an error: bad rows are outcomes. If a task's lists of
  // ids are longer than the memory for them, that is an outcome of this task alone.
  virtual absl::Status Run(const RoundBatch& batch) = 0;

  // Writes the slot outputs that Run would have written. Use it for a round that ran without them,
  // because the round could still be aborted. REQUIRES: Run has succeeded with the same
  // tasks, outcomes and tokens, and they are unchanged.
  virtual absl::Status WriteSlotOutputs(const RoundBatch& batch) = 0;

  // Copies draft tokens that the host must know before it can make a task of them. A writer may
  // write there again, so each id is read once. REQUIRES: Prepare succeeded; at most max_batch
  // reads of at most max_draft ids, inside the rows. Errors are those of Run.
  virtual absl::Status ReadDraftTokens(const TokenRows& rows, std::span<const TokenRowRead> reads);

  // Remembers that work of the caller's on this CUDA stream, up to now, writes the draft tokens of
  // a later round. cudaStreamLegacy and cudaStreamPerThread are those of the backend's device.
  // FAILED_PRECONDITION while the CUDA stream captures; INVALID_ARGUMENT if it is of another
  // device; UNIMPLEMENTED without a device.
  virtual absl::Status MarkDrafts(void* stream);
  // ReadDraftTokens before the round's rows are ready: waits for the last MarkDrafts, if there was
  // one, and for no other work of the caller's. The ids may still change. REQUIRES: as
  // ReadDraftTokens.
  virtual absl::Status ReadDraftTokensEarly(const TokenRows& rows,
                                            std::span<const TokenRowRead> reads) {
    return ReadDraftTokens(rows, reads);
  }

  // Has the rounds and transforms that follow come after the work that is on this CUDA stream of
  // the caller's now. Errors are those of MarkDrafts; a later MarkDrafts or ReadDraftTokensEarly is
  // not allowed.
  virtual absl::Status FollowStream(void* stream);

  // Keeps the columns of narrow rows (TensorView::columns), one for each id, until the next call or
  // Prepare, and returns their address where rounds read them. The caller's memory outlives that
  // use. REQUIRES: Prepare succeeded. Errors are those of Run.
  virtual absl::StatusOr<const int32_t*> KeepColumns(std::span<const int32_t> columns) {
    return columns.data();
  }

  // Copies memory of tensors, masks or draft tokens to the host: that of this backend's device if
  // it has one (MemorySpace::kDevice), else that of the host. The copies come after all rounds that
  // have run, and are complete on return. REQUIRES: Prepare succeeded. Errors are those of Run.
  virtual absl::Status ReadMemory(std::span<const MemoryRead> reads);

  // ---- rounds inside a graph of the caller's, for backends on a device
  //
  // The caller stages a round first. EnqueueStaged enqueues launches, which run once, or at every
  // replay of the graph that contains them. Each run takes the oldest staged round that has not
  // been taken; if there is none, it does nothing. No thread waits for a device here. Rounds are
  // answered in the order of Stage.
  //
  // The first call takes memory, also during a capture. The destructor and Prepare return the
  // memory and drop the rounds that were not collected. No enqueued work may run any more by then.

  // Enqueues on a CUDA stream of the caller's (a cudaStream_t, not null), which may be capturing.
  // The launch has the width for rounds of num_tasks, and runs any round. If the caller uses
  // several CUDA streams, the caller must order them.
  virtual absl::Status EnqueueStaged(void* stream, int32_t num_tasks);

  // Copies the batch before it returns. Only rows, masks, draft tokens and slot outputs stay on the
  // device, and Collect fills the places of answers. REQUIRES: as Run, with kVerify tasks only.
  //
  // INVALID_ARGUMENT: some of those tensors are not on the device. UNAVAILABLE: kStagedRoundsMax
  // rounds have not been collected. RESOURCE_EXHAUSTED: not all tasks fit. Some tasks then have the
  // outcome kNoRoom; the others may fit without them.
  virtual absl::Status Stage(const RoundBatch& batch);

  // Whether the oldest staged round is done. If so, its answers are filled in, and the round is no
  // longer staged.
  virtual absl::StatusOr<bool> Collect();

  // REQUIRES: as Run. The batch may have any number of rows.
  virtual absl::Status Transform(const TransformBatch& batch) = 0;
};

// Makes a backend of ProcessBackends (kernels/backend_registry.h). "cpu" always works. "cuda"
// returns UNIMPLEMENTED in a build without nvcc, and if there is no device or driver. It returns
// FAILED_PRECONDITION while cuda_stream captures. A device that names no backend returns
// INVALID_ARGUMENT and the known names.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view device,
                                                     const BackendOptions& options = {});

}  // namespace specd
