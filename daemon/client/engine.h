// Engine is the engine's side of a session, for the C functions of specd_engine.
//
// An engine has a link to the verifier, the memory that it shares, and its sequences. EngineRounds
// and EngineCalls do its rounds and calls, and SequenceEnds tells how sequences ended. specd_api.cc
// wraps every method for C. Errors here are absl::Status made with ipc/base/error.h. One thread at
// a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/engine_calls.h"
#include "daemon/client/engine_link.h"
#include "daemon/client/engine_rounds.h"
#include "daemon/client/sequence_ends.h"
#include "ipc/base/mapping.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/segment.h"

namespace specd {

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Open(const std::string& uri,
                                                      const specd_options& options);
  // Opens a session over a link that has just been made. `options` and `hello` are checked.
  static absl::StatusOr<std::unique_ptr<Engine>> Attach(std::unique_ptr<EngineLink> link,
                                                        HelloRequest hello,
                                                        const specd_options& options);
  // The limits of the session that it opens, unchecked.
  static SessionLimits LimitsOf(const specd_options& options);
  ~Engine();

  absl::Status Alloc(uint64_t size_bytes, specd_region* region);
  absl::Status ImportFd(int fd, uint64_t size_bytes, specd_region* region);
  absl::Status ImportDevice(uint64_t address, uint64_t size_bytes, specd_region* region);
  absl::Status Lend(void* data, uint64_t size_bytes, specd_region* region);
  absl::Status Unregister(uint32_t region);
  absl::Status Bind(int role, const specd_tensor& tensor);

  absl::Status OpenSequence(const char* request_id, const specd_params& params,
                            specd_sequence_info* info);
  absl::Status ForkSequence(specd_sequence sequence, const char* request_id, const uint64_t* seed,
                            specd_sequence_info* info);
  // The openings of a caller, checked for their sizes. After a refusal of one opening *refused is
  // its index.
  absl::Status OpenSequences(const specd_openings& openings, uint32_t* refused);
  absl::StatusOr<int> AwaitOpening(specd_sequence sequence, int timeout_ms);
  // The warnings of the last opening, one a line; valid until ForgetWarnings. At first those of the
  // engine's own opening.
  const std::string& opening_warnings() const { return opening_warnings_; }
  void ForgetWarnings() { opening_warnings_.clear(); }
  absl::Status CloseSequence(specd_sequence sequence);
  absl::Status AbortSequence(specd_sequence sequence);
  absl::Status GetState(specd_sequence sequence, specd_sequence_state* state) const;
  absl::StatusOr<int> AwaitFinal(specd_sequence sequence, specd_sequence_state* state,
                                 int timeout_ms);

  absl::Status ReadText(specd_sequence sequence, specd_text* text);
  // Of an embedded engine with a tokenizer; valid as long as the engine is.
  absl::StatusOr<std::string_view> TokenBytes(TokenId id) const;

  EngineRounds& rounds() { return rounds_; }
  EngineCalls& calls() { return calls_; }
  absl::Status SetCoins(specd_sequence sequence, std::span<const specd_coin> coins);

  void GetSharing(specd_sharing* sharing);
  // Embedded mode: why results last said SPECD_STATUS_DEVICE_ERROR; empty if none did.
  std::string WhyDeviceFailed() const { return link_->WhyDeviceFailed(); }
  absl::Status GetStats(specd_engine_stats* stats);
  absl::Status GetGroup(specd_group* group);
  absl::Status DumpTrace(specd_trace_dump* dump);

 private:
  // Bytes of a region before the address that the engine gave. The struct is a type of its own, so
  // that the library shows no instance of a standard container.
  struct Skip {
    uint64_t bytes = 0;
  };

  Engine(std::unique_ptr<EngineLink> link, std::unique_ptr<Segment> segment, HelloRequest asked,
         HelloReply hello, const specd_options& options);

  // Refuses what another daemon could not be told of (reconnect_ms).
  absl::Status CheckCanTell(const char* field, const char* what) const;
  // The request with the daemon's numbers of regions.
  Request AtDaemon(const Request& request) const;
  // Calls attempt() until a daemon has answered, or none will: the present one, or with
  // reconnect_ms one that comes after it.
  template <class Attempt>
  auto Insist(const Attempt& attempt) -> decltype(attempt());
  // Sends a request with a file descriptor beside it, if there is one, and waits for the reply.
  absl::StatusOr<Reply> Ask(const Request& request, int fd = -1);
  // The same status; if the daemon is gone, what became of the daemon.
  absl::Status WhyUnanswered(const absl::Status& status) const;
  absl::StatusOr<uint32_t> RegisterRegion(int fd, uint64_t size_bytes);
  // The region of memory that stays the caller's, or why there is none.
  absl::Status Note(const absl::StatusOr<EngineLink::Registration>& registered, void* data,
                    uint64_t size_bytes, specd_region* region);

  const std::unique_ptr<EngineLink> link_;
  std::unique_ptr<Segment> segment_;
  const HelloReply hello_;
  const int timeout_ms_;  // for a call
  EngineRounds rounds_;
  EngineCalls calls_;
  const SequenceEnds ends_;
  std::unique_ptr<Reattachment> reattachment_;  // null without reconnect_ms
  uint32_t owner_ = 0;                    // the part of all handles that this session gives out
  std::string opening_warnings_;          // of the last opening
  std::string sharing_text_;              // text of the last GetSharing
  std::string join_token_;                // text of the last GetGroup
  std::string trace_path_;                // path of the last DumpTrace
  std::map<uint32_t, Mapping> mappings_;  // made by Alloc, by region
  std::map<uint32_t, Skip> skips_;        // for device and lent memory, by region
};

}  // namespace specd
