// Control messages are the requests of an engine to the daemon over the unix socket, and the
// replies.
//
// A message is a 24-byte little-endian header and a msgpack map with string keys. Decoding is
// strict: a missing, repeated, unknown or wrongly typed field is an error that names the field.
// Every string and array has a bound, and nothing larger than kControlBytesMax is read. Decoding
// checks types and sizes only; the code that uses a value checks its meaning. Descriptors travel
// with the message; num_fds counts them.
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

// The program that reads the message. An error about versions says which side to upgrade.
enum class ControlReader { kLibrary, kDaemon };

// Returns a message for UnixConnection::Send. If a string or an array is over its bound, the answer
// is INVALID_ARGUMENT with the field. A message that was sent can therefore always be read.
absl::StatusOr<std::vector<uint8_t>> EncodeRequest(const Request& request, uint32_t request_id);
absl::StatusOr<std::vector<uint8_t>> EncodeReply(const Reply& reply, uint32_t request_id);

// Checks magic, version, type and sizes against the message as received. The daemon decodes the
// header first, so that it can answer a bad body under its request_id.
absl::StatusOr<ControlHeader> DecodeHeader(std::span<const uint8_t> message, ControlReader reader);

// The size of the message at the beginning of these bytes, as its header says, and at most all of
// them. For messages that stand one after another; DecodeHeader judges the message.
size_t FirstMessageBytes(std::span<const uint8_t> bytes);

// REQUIRES: `header` came from DecodeHeader of the same message.
absl::StatusOr<Request> DecodeRequest(const ControlHeader& header,
                                      std::span<const uint8_t> message);
absl::StatusOr<Reply> DecodeReply(const ControlHeader& header, std::span<const uint8_t> message);

// Convert a status to a reply, which cuts texts over the bound, and a reply to a status.
ErrorReply MakeErrorReply(const absl::Status& status);
absl::Status StatusFromReply(const ErrorReply& reply);

// Makes each warning one line, and cuts the list and its texts so that they fit into a
// SequenceReply. A text that was cut ends with "...". If warnings were left out, the last line
// counts them.
std::vector<std::string> MakeReplyWarnings(std::span<const std::string> warnings);

}  // namespace specd
