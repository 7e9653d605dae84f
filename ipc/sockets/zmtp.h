// Zmtp reads and writes one side of ZMTP 3, the protocol of ZeroMQ sockets: that of a publisher, a
// puller or a replier.
//
// The rules are those of https://rfc.zeromq.org/spec/23 (3.0, where a subscription is a message)
// and https://rfc.zeromq.org/spec/37 (3.1, where it is a command), with the mechanism NULL. libzmq
// speaks them since 4.0. Pure functions, and a reader of one connection's bytes; no sockets.
//
//   ZmtpReader reader(ZmtpRole::kPublisher);
//   absl::Status status = reader.Read(bytes, [&](ZmtpInput kind, std::string_view body) { ... });
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace specd {

// No peer has a reason to send more in one frame. READY may bring properties of its own.
inline constexpr size_t kZmtpFrameBytesMax = 4096;

// What this side is.
enum class ZmtpRole {
  kPublisher,  // of SUB and XSUB sockets
  kPuller,     // of PUSH sockets, whose messages have two frames
  kReplier,    // of REQ and DEALER sockets; the first of two frames is empty
};

// What this side sends once a connection is accepted: the greeting, and the command READY.
std::string ZmtpHello(ZmtpRole role);
// A message of two frames.
std::string ZmtpMessage(std::string_view topic, std::string_view payload);
// The answer to a PING with this body.
std::string ZmtpPong(std::string_view ping_body);

enum class ZmtpInput {
  kReady,      // the handshake is complete
  kSubscribe,  // body: the prefix
  kCancel,     // body: the prefix
  kTopic,      // body: the first frame of a message
  kPayload,    // body: the second and last one
  kPing,       // body: for ZmtpPong
};

// A ZmtpReader takes the bytes of one connection in pieces of any size. It keeps the beginning of
// one frame at most.
class ZmtpReader {
 public:
  explicit ZmtpReader(ZmtpRole role) : role_(role) {}

  // Calls `take` for each frame that the bytes complete and that this side has to know. If the peer
  // is no partner of this side in ZMTP 3, the status says why and the connection has to be closed.
  absl::Status Read(std::string_view bytes,
                    absl::FunctionRef<void(ZmtpInput kind, std::string_view body)> take);

  bool ready() const { return ready_; }

 private:
  using Take = absl::FunctionRef<void(ZmtpInput kind, std::string_view body)>;

  absl::Status TakeGreeting(std::string_view* rest);
  // Sets `complete` if there was a whole frame.
  absl::Status TakeFrame(std::string_view* rest, bool* complete, Take take);
  absl::Status TakeMessageFrame(bool more, std::string_view body, Take take);
  absl::Status TakeCommand(std::string_view body, Take take);
  absl::Status TakeReady(std::string_view properties, Take take);

  ZmtpRole role_;
  std::string kept_;  // the bytes of the frame that is not complete
  bool greeted_ = false;
  bool ready_ = false;
  bool has_topic_ = false;  // not of a publisher: the payload comes next
};

}  // namespace specd
