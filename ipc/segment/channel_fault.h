// ChannelFault: why one end of a session's hot path cannot be used any more.
//
// A channel that has a fault stays broken; its session is to be closed. Plain data.
#pragma once

namespace specd {

// Why a channel cannot be used any more: the other side wrote what no correct peer writes. Sticky;
// the session is to be closed.
enum class ChannelFault {
  kNone,
  kSequence,  // a slot's sequence number jumped
  kConsumed,  // the consumed word went backward or ahead of what was published
  kPayload,   // a completion names results outside the result area, or counts out of range
};
constexpr const char* ChannelFaultName(ChannelFault fault) {
  switch (fault) {
    case ChannelFault::kNone:
      return "none";
    case ChannelFault::kSequence:
      return "a slot's sequence number jumped";
    case ChannelFault::kConsumed:
      return "a consumed counter is impossible";
    case ChannelFault::kPayload:
      return "a completion's results are out of bounds";
  }
  return "unknown";
}

}  // namespace specd
