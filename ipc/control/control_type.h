// ControlType has the number of each control message, for the message's header. OptionalKey names a
// field of a message that may be left out.
//
// Plain values, safe from any thread.
#pragma once

#include <cstdint>

namespace specd {

enum class ControlType : uint16_t {
  kHello = 1,
  kMapped = 2,
  kRegisterRegion = 3,
  kBindTensor = 4,
  kOpenSequence = 5,
  kCloseSequence = 6,
  kAbortSequence = 7,
  kForkSequence = 8,
  kGetStats = 9,
  kRegisterDeviceRegion = 10,
  kUnregisterRegion = 11,
  kGetGroup = 12,
  kJoin = 13,
  kDumpTrace = 14,
  kOpenSequences = 15,
  kGiveUp = 16,
  kGetOpening = 17,
  kListSequences = 18,
  kAbortStreams = 19,
  kDrain = 20,
  kDumpSession = 21,
  kListSessions = 22,

  kHelloReply = 101,
  kRegionReply = 102,
  kSequenceReply = 103,
  kOkReply = 104,
  kErrorReply = 105,
  kStatsReply = 106,
  kGroupReply = 107,
  kJoinReply = 108,
  kTraceReply = 109,
  kSequencesReply = 110,
  kSequenceListReply = 111,
  kAbortedReply = 112,
  kDrainReply = 113,
  kSessionTraceReply = 114,
  kSessionListReply = 115,
};

// A message leaves the field out if the field is empty or 0. Its reader then keeps that value.
struct OptionalKey {
  const char* name;
};

}  // namespace specd
