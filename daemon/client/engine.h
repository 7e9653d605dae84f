// Engine: what stands behind specd_engine. The engine side of a session: its link, its end of the
// rings, the memory it shares.
//
// specd_api.cc wraps every method for C; here errors are absl::Status made with ipc/base/error.h,
// and the normal answers are SPECD_OK, SPECD_FULL and SPECD_EMPTY. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/engine_link.h"
#include "daemon/client/engine_streams.h"
#include "ipc/base/mapping.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/round_channel.h"
#include "ipc/segment/segment.h"

namespace specd {

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Open(const std::string& uri,
                                                      const specd_options& options);
  ~Engine();

  absl::Status Alloc(uint64_t size_bytes, specd_region* region);
  absl::Status ImportFd(int fd, uint64_t size_bytes, specd_region* region);
  absl::Status ImportDevice(uint64_t address, uint64_t size_bytes, specd_region* region);
  absl::Status Unregister(uint32_t region);
  absl::Status Bind(int role, const specd_tensor& tensor);

  absl::Status OpenSequence(const char* request_id, const specd_params& params,
                            specd_sequence_info* info);
  absl::Status ForkSequence(specd_sequence sequence, const char* request_id, const uint64_t* seed,
                            specd_sequence_info* info);
  absl::Status CloseSequence(specd_sequence sequence);
  absl::Status AbortSequence(specd_sequence sequence);
  absl::Status GetState(specd_sequence sequence, specd_sequence_state* state);

  absl::StatusOr<int> Submit(uint64_t round_id, const specd_draft* drafts, uint32_t num_drafts);
  absl::StatusOr<int> SubmitOnStream(uint64_t round_id, const specd_draft* drafts,
                                     uint32_t num_drafts, void* cuda_stream);
  absl::StatusOr<int> StageRound(uint64_t round_id, const specd_draft* drafts, uint32_t num_drafts);
  absl::Status EnqueueStaged(uint32_t num_sequences, void* cuda_stream);
  absl::Status GetVerdict(specd_verdict* verdict) const;
  void GetSharing(specd_sharing* sharing);
  absl::StatusOr<int> Poll(specd_completion* completion, int timeout_ms);
  // Embedded mode: why results last said SPECD_STATUS_DEVICE_ERROR; empty where none has.
  std::string WhyDeviceFailed() const { return link_->WhyDeviceFailed(); }

  absl::Status SampleDraft(std::span<const specd_draft_request> requests,
                           specd_draft_children* results);
  absl::Status Score(std::span<const specd_score_request> requests, specd_score_result* results);
  absl::Status SetCoins(specd_sequence sequence, std::span<const specd_coin> coins);
  absl::Status GetStats(specd_engine_stats* stats);
  absl::Status GetGroup(specd_group* group);

 private:
  // Bytes of a region before the address that the engine gave. A type of its own, so that no
  // instance of a standard container is visible in the library.
  struct Skip {
    uint64_t bytes = 0;
  };

  Engine(std::unique_ptr<EngineLink> link, std::unique_ptr<Segment> segment, HelloReply hello,
         const specd_options& options);

  absl::StatusOr<uint32_t> RegisterRegion(int fd, uint64_t size_bytes);
  absl::Status CheckDraft(uint32_t index, const specd_draft& draft) const;
  // Rounds of a graph and other rounds are not in flight together.
  absl::Status CheckKind(bool staged) const;
  // Checks a round, and fills drafts_ with it.
  absl::Status TakeDrafts(const specd_draft* drafts, uint32_t num_drafts);
  absl::StatusOr<int> CodeOf(PushResult pushed) const;
  void CloseStreams(int64_t timeout_ns);
  bool WaitForCompletion(int timeout_ms);
  // Embedded: does what there is to do, and waits for the graph where rounds are staged.
  bool StepForCompletion(int timeout_ms);
  // The oldest completion, waiting for it; false if none came.
  absl::StatusOr<bool> Await(int timeout_ms, CompletionView* view);
  void Deliver(const CompletionView& view, specd_completion* completion);
  absl::Status WhyNoCompletion() const;
  // ---- engine_calls.cc
  // Nothing is in flight and the daemon takes submissions; else why not.
  absl::Status CheckReady();
  absl::Status CheckCount(size_t num_requests) const;
  // Submits a call and waits for its answer.
  template <class Call>
  absl::StatusOr<CompletionView> Answer(const Call& call);

  const std::unique_ptr<EngineLink> link_;
  std::unique_ptr<Segment> segment_;
  const HelloReply hello_;
  const int timeout_ms_;         // of a call
  const int stream_timeout_ms_;  // of a stream that waits
  EngineChannel channel_;
  std::unique_ptr<EngineStreams> streams_;  // none before the first round on one
  bool keeps_words_ = false;                // a stream may still write them
  std::string sharing_text_;                // of the last GetSharing
  std::string join_token_;                  // of the last GetGroup
  uint64_t last_on_stream_ = 0;             // the number of that round
  bool in_flight_staged_ = false;           // meaningful while rounds are in flight
  std::map<uint32_t, Mapping> mappings_;    // from Alloc, by region
  std::map<uint32_t, Skip> skips_;          // of device memory, by region
  std::vector<EngineDraft> drafts_;
  std::vector<specd_result> results_;
  std::vector<ChildrenCall> children_calls_;
  std::vector<ScoreCall> score_calls_;
};

}  // namespace specd
