// Backend: the seam between what a round means (speculative/) and the processor it runs on.
//
// A backend runs the bodies of kernels/bodies for every sequence of a round. Backends are made by
// name ("cpu", "cuda") and give the same bits (CONTRACT §9). One backend serves one session and is
// used by one thread at a time; after Prepare a round allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/round.h"
#include "kernels/core/types.h"

namespace specd {

// Rounds that may be staged at a time: one runs, one is behind it, one is being staged, and one has
// been run and is not yet collected.
inline constexpr int32_t kStagedRoundsMax = 4;

// The largest round that will come; workspaces are sized from it.
struct BackendLimits {
  int32_t vocab_size = 0;
  int32_t max_batch = 0;
  int32_t max_draft = 0;   // nodes of one draft
  int32_t threads = 1;     // of a CPU backend; the bits do not depend on it
  uint32_t num_slots = 0;  // Task::slot is below it
  // SlotStates::recent_room of rounds that bring slots of their own is at most this.
  int32_t recent_room = 0;
  int32_t max_path = 0;  // nodes from the root to the end of a draft; 0: max_draft

  // The most tokens that one sequence gains in a round: a path and one more.
  constexpr int32_t max_output() const { return (max_path == 0 ? max_draft : max_path) + 1; }
};

// SlotStates::recent_room of staged rounds: what those that may be under way can confirm of a
// sequence.
inline constexpr int32_t RecentRoomMax(const BackendLimits& limits) {
  return kStagedRoundsMax * limits.max_output();
}

struct BackendOptions {
  // For "cuda": the caller's cudaStream_t, on whose device rounds run, in order with what the
  // caller enqueues there; it must outlive the backend. While it is capturing, what would be waited
  // for on it is FAILED_PRECONDITION: all but EnqueueStaged, Stage and Collect. Null: a stream of
  // the backend's own on the first device.
  void* cuda_stream = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // The device whose memory rounds may be given (MemorySpace::kDevice), as GpuDriver lists it;
  // empty: rounds are given host memory only.
  virtual std::string_view device_uuid() const { return {}; }

  // Takes all memory that rounds within the limits need.
  virtual absl::Status Prepare(const BackendLimits& limits) = 0;

  // REQUIRES: Prepare succeeded; the batch is inside its limits; row indices are inside the
  // tensors. An error means that the processor failed, or that the stream it was given captures a
  // graph now, never that the input was unusual: bad rows are outcomes, and so are lists of ids
  // that are longer than there is memory for, which is a matter of that task alone.
  virtual absl::Status Run(const RoundBatch& batch) = 0;

  // What Run writes to next tokens, by itself: for a round that is run without any because nobody
  // knows yet whether it will stand. REQUIRES: Run has succeeded with the same tasks, outcomes and
  // tokens, and they are as it left them.
  virtual absl::Status WriteNextTokens(const RoundBatch& batch) = 0;

  // ---- rounds inside a graph of the caller's, for backends on a device
  //
  // A round is staged first; what EnqueueStaged enqueued, once or at every replay of the graph that
  // it became part of, takes the oldest staged round that has not been taken, and does nothing
  // where there is none. Nobody waits for a device here. Rounds are answered in the order of Stage.
  //
  // The first call takes memory, also during a capture. The destructor and Prepare give it back,
  // and with it go rounds that were not collected: nothing of what was enqueued may run by then.

  // Enqueues on a stream of the caller's (a cudaStream_t, not null), which may be capturing. The
  // launch is as wide as rounds of num_tasks want it, and does any round. What is enqueued on
  // several streams must be ordered by the caller.
  virtual absl::Status EnqueueStaged(void* stream, int32_t num_tasks);

  // REQUIRES: as Run, with kVerify tasks only. All of the batch is copied before this returns, but
  // for rows, masks, draft tokens and next tokens, which lie on the device (INVALID_ARGUMENT: some
  // do not), and for the places of answers, which Collect fills. UNAVAILABLE: kStagedRoundsMax
  // rounds have not been collected. RESOURCE_EXHAUSTED, and some tasks have the outcome
  // kNoRoom: not all fit, but the others may without them.
  virtual absl::Status Stage(const RoundBatch& batch);

  // Has the oldest staged round been done? If so its answers are there, and it is staged no more.
  virtual absl::StatusOr<bool> Collect();

  // REQUIRES: as Run. Rows of any number.
  virtual absl::Status Transform(const TransformBatch& batch) = 0;
};

// "cpu" always works. "cuda" is UNIMPLEMENTED in a build without nvcc and where no device or driver
// is found, and FAILED_PRECONDITION while cuda_stream captures; any other name is INVALID_ARGUMENT
// and lists the known ones.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const BackendOptions& options = {});

}  // namespace specd
