// EngineRounds submits an engine's rounds and takes their completions.
//
// It submits rounds alone, on a CUDA stream, or inside a CUDA graph. It owns the engine's end of
// the session's channel, which EngineCalls uses too. Normal answers are SPECD_OK, SPECD_FULL and
// SPECD_EMPTY; errors are absl::Status made with ipc/base/error.h. One thread at a time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/batch_drafts.h"
#include "daemon/client/completion_wait.h"
#include "daemon/client/draft_arguments.h"
#include "daemon/client/engine_cuda_streams.h"
#include "daemon/client/engine_link.h"
#include "daemon/client/reattachment.h"
#include "daemon/client/round_results.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/engine_channel.h"
#include "ipc/segment/segment.h"

namespace specd {

class EngineRounds {
 public:
  // The link and the segment must outlive this object.
  // `spin_us` is that of specd_options.
  EngineRounds(EngineLink* link, Segment* segment, uint32_t stream_timeout_ms, int32_t spin_us);

  absl::StatusOr<int> Submit(uint64_t round_id, const specd_draft* drafts, uint32_t num_drafts);
  absl::StatusOr<int> SubmitOnStream(uint64_t round_id, const specd_draft* drafts,
                                     uint32_t num_drafts, void* cuda_stream);
  absl::StatusOr<int> MarkDrafts(void* cuda_stream);
  absl::StatusOr<int> StageRound(uint64_t round_id, const specd_draft* drafts, uint32_t num_drafts);
  absl::Status EnqueueStaged(uint32_t num_sequences, void* cuda_stream);
  absl::Status GetRoundEnd(specd_round_end* end) const { return streams_.GetRoundEnd(end); }
  absl::StatusOr<int> Poll(specd_completion* completion, int timeout_ms);

  // The same with arrays. *device_failed is set if a result has SPECD_STATUS_DEVICE_ERROR.
  absl::StatusOr<int> SubmitBatch(uint64_t round_id, const specd_batch& batch);
  absl::StatusOr<int> SubmitBatchOnStream(uint64_t round_id, const specd_batch& batch,
                                          void* cuda_stream);
  absl::StatusOr<int> PollBatch(specd_batch_results* results, int timeout_ms, bool* device_failed);
  absl::StatusOr<int> VerifyBatch(uint64_t round_id, const specd_batch& batch,
                                  specd_batch_results* results, int timeout_ms,
                                  bool* device_failed);

  // ---- for calls and the other parts of the engine

  // From now on a daemon that is gone is no error while another one may take its place.
  void ReattachBy(Reattachment* reattachment) {
    reattachment_ = reattachment;
    streams_.MayMove();
  }
  // OK if the daemon takes submissions. If it is gone, waits for the next one.
  absl::Status AwaitDaemon();
  // The same where `why` is the error of a call: the daemon is gone if MayPass(why).
  absl::Status AwaitDaemonAfter(const absl::Status& why);
  // True if an error of this code may pass, once AwaitDaemon has.
  bool MayPass(const absl::Status& status) const {
    return reattachment_ != nullptr && Reattachment::MayHelp(status);
  }

  // The role is bound from now on, to memory of a device or of the host. A bound role can be
  // replaced. Only another binding takes it away (BoundRoles).
  void NoteBound(int role, bool on_device) { bound_.Note(role, on_device); }
  EngineChannel& channel() { return channel_; }
  const EngineChannel& channel() const { return channel_; }
  // Waits for the oldest completion; false if none came.
  absl::StatusOr<bool> Await(int timeout_ms, CompletionView* view);
  absl::Status WhyNoCompletion() const { return wait_.WhyNone(); }
  EngineCudaStreams& cuda_streams() { return streams_; }

 private:
  // Refuses a staged round while other rounds are in flight, and any other round while staged
  // rounds are.
  absl::Status CheckKind(bool staged) const;
  // Refuses a round beside rounds of the other kind, if the engine may go to another daemon: those
  // on CUDA streams are aborted then, and the others run again.
  absl::Status CheckBeside(bool on_stream) const;
  // True if rounds on CUDA streams were left by a daemon that is gone, and poll has still to answer
  // them. The next one can only be asked after that.
  bool MustPollFirst() const;
  // Check a round, and fill inputs_ with it.
  absl::Status TakeDrafts(const specd_draft* drafts, uint32_t num_drafts);
  absl::Status TakeBatch(const specd_batch& batch, RoundSize* size);
  // `array` is the name of the caller's drafts.
  template <class Drafts>
  absl::Status TakeInputs(std::string_view array, const Drafts& drafts, uint32_t num_drafts);
  // Submits what was taken.
  absl::StatusOr<int> SubmitInputs(uint64_t round_id, uint32_t num_inputs);
  absl::StatusOr<int> SubmitInputsOnStream(uint64_t round_id, uint32_t num_inputs,
                                           void* cuda_stream);
  absl::StatusOr<int> CodeOf(PushResult pushed) const;
  // Waits for the oldest round; false if none was answered.
  absl::StatusOr<bool> AwaitRound(int timeout_ms, CompletionView* view);

  EngineLink& link_;
  Segment& segment_;
  EngineChannel channel_;
  CompletionWait wait_;
  EngineCudaStreams streams_;
  Reattachment* reattachment_ = nullptr;
  BoundRoles bound_;
  std::vector<SequenceInput> inputs_;
  const RowNumbers row_numbers_;
  CompletionWriter results_;
};

}  // namespace specd
