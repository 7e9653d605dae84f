// EngineLink: how libspecd reaches a verifier. Over a unix socket, or in this process.
//
// Both carry the same control messages to the same ControlService, and both leave the hot path to
// the session segment; this is the only place in libspecd that knows which mode it is in. Used by
// one thread at a time.
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
#include "ipc/control/control.h"
#include "ipc/segment/segment.h"

namespace specd {

class EngineLink {
 public:
  virtual ~EngineLink() = default;

  // Sends a request, with a descriptor if fd >= 0, and waits for its reply. An ErrorReply comes
  // back as its status. *segment_fd receives the descriptor that comes with a HelloReply.
  virtual absl::StatusOr<Reply> Call(const Request& request, int fd, UniqueFd* segment_fd) = 0;

  // Makes device memory of this process a region. Attached: it is exported, and the daemon maps it;
  // embedded: rounds use the address itself.
  struct DeviceRegistration {
    uint32_t region = 0;
    uint64_t skip_bytes = 0;  // the address is so far behind the region's beginning
  };
  virtual absl::StatusOr<DeviceRegistration> RegisterDevice(uint64_t address,
                                                            uint64_t size_bytes) = 0;

  // Ends the connection and waits until the other side has let go of this process's memory; an
  // error where it is not known to have. Nothing may be asked behind it.
  virtual absl::Status Finish() = 0;

  // ---- rounds inside a graph of the engine's: embedded:cuda only, else SPECD_ERROR_UNSUPPORTED

  // Why no round can be staged now.
  virtual absl::Status CheckStaging() = 0;
  virtual absl::Status EnqueueStaged(void* stream, uint32_t num_sequences) = 0;

  // Embedded mode: does a piece of the verifier's work, true if there was any. Over a socket: the
  // daemon does it, always false.
  virtual bool Step() = 0;
  // Embedded mode: why rounds or calls last ended SPECD_STATUS_DEVICE_ERROR; empty where none did.
  // A daemon logs it.
  virtual std::string WhyDeviceFailed() const { return {}; }
  virtual bool is_embedded() const = 0;

  // The other side is gone for good, or of no more use.
  virtual bool PeerGone() const = 0;
  // Over a socket: the other side is gone, and will write nothing more into shared memory.
  virtual bool HungUp() const = 0;
  // Hangs up when the other side is gone; any thread may poll it while the link lives. -1 where
  // there is none.
  virtual int hangup_fd() const = 0;
};

struct EngineLinkOptions {
  absl::Duration timeout;
  uint32_t threads = 0;         // as in specd_options
  void* cuda_stream = nullptr;  // the same
};

// "unix:/path", "embedded:cpu" or "embedded:cuda".
absl::StatusOr<std::unique_ptr<EngineLink>> MakeEngineLink(const std::string& uri,
                                                           const EngineLinkOptions& options);

// Of an option that is a timeout.
absl::Status CheckTimeout(std::string_view field, uint32_t timeout_ms, uint32_t min_ms);

absl::Status UnexpectedReply();

// The reply of type T, or why not.
template <class T>
absl::StatusOr<T> Expect(absl::StatusOr<Reply> reply) {
  if (!reply.ok()) return reply.status();
  if (T* body = std::get_if<T>(&*reply)) return *std::move(body);
  return UnexpectedReply();
}

}  // namespace specd
