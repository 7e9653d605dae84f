// EngineLink connects libspecd to a verifier: over a unix socket, or inside this process.
//
// Both links carry the same control messages to the same ControlService. Rounds and calls go
// through the session's segment in both. Only the link knows which mode libspecd is in. One thread
// at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/client/embedded_profile.h"
#include "daemon/session/session_sequences.h"
#include "ipc/base/error.h"
#include "ipc/control/control.h"
#include "ipc/include/specd/answers.h"
#include "ipc/segment/segment.h"

namespace specd {

class EngineLink {
 public:
  virtual ~EngineLink() = default;

  // Sends a request, with a descriptor if fd >= 0, and waits for its reply. An ErrorReply comes
  // back as its status. *segment_fd receives the descriptor that comes with a HelloReply. After
  // SPECD_ERROR_TIMEOUT the link goes on: the other side is told, and the late reply is dropped.
  virtual absl::StatusOr<Reply> Call(const Request& request, int fd, UniqueFd* segment_fd) = 0;

  // Makes device memory of this process a region. Attached, the memory is exported and the daemon
  // maps it. Embedded, rounds use the address itself.
  struct Registration {
    uint32_t region = 0;
    uint64_t skip_bytes = 0;  // from the region's beginning to the address
  };
  virtual absl::StatusOr<Registration> RegisterDevice(uint64_t address, uint64_t size_bytes) = 0;

  // Makes host memory of this process a region, which rounds read in place. Embedded mode only.
  virtual absl::StatusOr<Registration> RegisterLent(void* data, uint64_t size_bytes) = 0;

  // Connects to the daemon that listens now, in place of one that is gone. Nothing else of the
  // link's state goes along. SPECD_ERROR_NOT_FOUND: none listens.
  virtual absl::Status Reconnect() {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "uri", "this link has no other side to come back");
  }

  // Gives up the connection of the last Reconnect, whose other side did not do what it should.
  virtual void Drop() {}

  // While a link is held it looks as if the other side were gone: nothing but SetHeld(false) gets
  // through. Reattachment holds the link to a daemon that is not ready for calls and rounds yet.
  virtual void SetHeld(bool) {}

  // Ends the connection, and waits until the other side has unmapped this process's memory. An
  // error if that is not certain. No function may be called afterwards.
  virtual absl::Status Finish() = 0;

  // Embedded mode: SessionRounds::MarkDrafts. Over a socket a CUDA stream writes the mark into the
  // segment instead.
  virtual absl::Status MarkDrafts(void* stream, uint64_t number) = 0;

  // ---- for rounds inside the engine's CUDA graph: embedded:cuda only, else
  // SPECD_ERROR_UNSUPPORTED

  // OK if rounds can be staged now; otherwise the reason.
  virtual absl::Status CheckStaging() = 0;
  virtual absl::Status EnqueueStaged(void* stream, uint32_t num_sequences) = 0;

  // Embedded mode: does at most one piece of the verifier's work (Session::StepPiece), and returns
  // true if there was any. Over a socket: the daemon does the work, and the result is false.
  virtual bool StepPiece() = 0;
  // Embedded mode: why rounds or calls last ended with SPECD_STATUS_DEVICE_ERROR; empty if none
  // did. A daemon logs the reason instead.
  virtual std::string WhyDeviceFailed() const { return {}; }
  // Embedded mode: SessionSequences::TextOf. A daemon publishes the text instead.
  virtual absl::StatusOr<SessionSequences::Text> TextOf(uint64_t sequence) = 0;
  // Embedded mode: the tokens' bytes; null: there is no tokenizer here.
  virtual const Vocabulary* vocabulary() const { return nullptr; }
  // Embedded mode: WarnOfUnreachableIds. A daemon logs the warning instead.
  virtual std::string WarningsOfModel(uint32_t) const { return {}; }
  virtual bool is_embedded() const = 0;

  // True if the other side is gone for good, or the link can no longer be used.
  virtual bool PeerGone() const = 0;
  // Over a socket: true if the other side is gone and will write nothing more into shared memory.
  virtual bool HungUp() const = 0;
  // A descriptor that hangs up when the other side is gone, or -1 if there is none. Any thread may
  // poll the descriptor while the link lives.
  virtual int hangup_fd() const = 0;
};

struct EngineLinkOptions {
  absl::Duration timeout;
  uint32_t threads = 0;         // the field of specd_options
  void* cuda_stream = nullptr;  // the field of specd_options
  EmbeddedModel model = {};     // of embedded mode; empty over a socket
  std::string profile = {};     // the model's name over a socket; empty in embedded mode
  std::string trace = {};       // the fields of specd_options; empty over a socket
  std::string trace_options = {};
};

// Takes "unix:/path", or "embedded:" and the name of a device of EngineBackends, such as
// "embedded:cuda:1".
absl::StatusOr<std::unique_ptr<EngineLink>> MakeEngineLink(const std::string& uri,
                                                           const EngineLinkOptions& options);

// Checks the value of an option that is a timeout.
absl::Status CheckTimeout(std::string_view field, uint32_t timeout_ms, uint32_t min_ms);

// The reply in a message. An ErrorReply comes back as its status, and so does the reply to another
// request.
absl::StatusOr<Reply> ReadReply(std::span<const uint8_t> message, uint32_t request_id);

absl::Status UnexpectedReply();

// The reply if it has type T; otherwise the reason.
template <class T>
absl::StatusOr<T> Expect(absl::StatusOr<Reply> reply) {
  if (!reply.ok()) return reply.status();
  if (T* body = std::get_if<T>(&*reply)) return *std::move(body);
  return UnexpectedReply();
}

}  // namespace specd
