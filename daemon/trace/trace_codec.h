// EncodeTrace and DecodeTrace turn the records of a trace into msgpack maps and back.
//
// Each struct of trace_record.h is a map from the names of its members to their values. A member
// that has its default value is left out. Floats keep every bit. A map may not have unknown keys:
// other versions of the records have another number in TraceInfo. Pure functions, safe from any
// thread.
//
//   std::string bytes;
//   EncodeTrace(round, &bytes);
//   absl::StatusOr<TraceRound> again = DecodeTrace<TraceRound>(bytes);
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/trace/trace_record.h"

namespace specd {

// The channels of a trace: one for each type of record.
inline constexpr std::string_view kTraceInfoTopic = "info";
inline constexpr std::string_view kTraceOpeningTopic = "opening";
inline constexpr std::string_view kTraceEndTopic = "end";
inline constexpr std::string_view kTraceRoundTopic = "round";
inline constexpr std::string_view kTraceDropsTopic = "drops";
inline constexpr std::string_view kTraceEncoding = "msgpack";

// The largest record. Decoding takes 24 bytes for each byte of a list of small numbers (an object
// of msgpack), and a trace comes from an untrusted file. Estimate: a round of 512 sequences with 8
// drafts each has some 2 MiB, and 10 MiB with the allowed ids of each sequence.
inline constexpr size_t kTraceRecordBytesMax = size_t{64} << 20;

// Appends the record. Record is TraceInfo, TraceOpening, TraceEnd, TraceRound or TraceDrops.
template <class Record>
void EncodeTrace(const Record& record, std::string* out);

// INVALID_ARGUMENT names the member that is wrong, or says that there are too many bytes. Numbers
// are inside their types and enumerations; the rebuilding of a round checks them against each
// other.
template <class Record>
absl::StatusOr<Record> DecodeTrace(std::string_view bytes);

}  // namespace specd
