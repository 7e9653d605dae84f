// ChannelFault says why one end of a session's hot path cannot be used any more.
//
// A channel with a fault stays broken, and its session must be closed. Plain data.
#pragma once

namespace specd {

// The other side wrote a value that no correct peer writes. A fault is permanent.
enum class ChannelFault {
  kNone,
  kSequence,  // a ring entry's sequence number jumped
  kConsumed,  // the consumed word went backward, or ahead of the published messages
  kPayload,   // a completion names results outside the result area, or counts out of range
};
constexpr const char* ChannelFaultName(ChannelFault fault) {
  switch (fault) {
    case ChannelFault::kNone:
      return "none";
    case ChannelFault::kSequence:
      return "a ring entry's sequence number jumped";
    case ChannelFault::kConsumed:
      return "a consumed counter is impossible";
    case ChannelFault::kPayload:
      return "a completion's results are out of bounds";
  }
  return "unknown";
}

}  // namespace specd
