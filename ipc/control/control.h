// Control messages: what an engine and the daemon say to each other over the unix socket.
//
// A message is a 24-byte little-endian header and a msgpack map with string keys. Decoding is
// strict: a missing, repeated, unknown or wrongly typed field is an error that names it, every
// string and array has a bound, and nothing larger than kControlBytesMax is looked at. Decoding
// checks types and sizes only; what the values mean is checked by whoever uses them. Descriptors
// travel beside the message; num_fds says how many.
//
// Pure functions, safe from any thread. docs/PROTOCOL.md lists every message.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/control/control_messages.h"

namespace specd {

inline constexpr uint32_t kControlMagic = 0x44435053;  // the bytes "SPCD"
inline constexpr size_t kControlHeaderBytes = 24;
inline constexpr size_t kControlBytesMax = 64 * 1024;  // header and body

struct ControlHeader {
  ControlType type = ControlType::kHello;
  uint32_t request_id = 0;  // chosen by the engine, echoed in the reply
  uint32_t body_bytes = 0;
  uint32_t num_fds = 0;  // descriptors that travel with this message
};

// ---- encoding and decoding ----------------------------------------------------------------------

// Which program reads the message: says whom to upgrade when the versions do not match.
enum class ControlReader { kLibrary, kDaemon };

// A message ready for UnixConnection::Send. INVALID_ARGUMENT (with the field) if a string or an
// array is over its bound, so that what leaves can always be read.
absl::StatusOr<std::vector<uint8_t>> EncodeRequest(const Request& request, uint32_t request_id);
absl::StatusOr<std::vector<uint8_t>> EncodeReply(const Reply& reply, uint32_t request_id);

// Checks magic, version, type and sizes against the message as received. The daemon decodes the
// header first, so that it can answer a bad body under its request_id.
absl::StatusOr<ControlHeader> DecodeHeader(std::span<const uint8_t> message, ControlReader reader);

// REQUIRES: `header` came from DecodeHeader of the same message.
absl::StatusOr<Request> DecodeRequest(const ControlHeader& header,
                                      std::span<const uint8_t> message);
absl::StatusOr<Reply> DecodeReply(const ControlHeader& header, std::span<const uint8_t> message);

// A status as a reply (texts over the bound are cut), and back.
ErrorReply MakeErrorReply(const absl::Status& status);
absl::Status StatusFromReply(const ErrorReply& reply);

}  // namespace specd
