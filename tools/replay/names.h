// Names turns the enumerations and handles of a trace into the words that the commands print.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

std::string_view NameOf(VerifyMethod method);
// The name, and that the method is lossy if it is.
std::string MethodText(VerifyMethod method);
std::string_view NameOf(RoundStatus status);
std::string_view NameOf(FinishReason reason);
std::string_view NameOf(OutcomeStatus status);
// After "the row": "holds NaN or a negative probability". A trace of an earlier program names none.
std::string_view NameOf(RowFault fault);
std::string_view NameOf(TraceLevel level);
// After "rows": "that the device did not give".
std::string_view NameOf(NoRows why);
std::string_view NameOf(TraceTensor tensor);
std::string_view NameOf(DType dtype);
std::string_view NameOf(RowKind kind);
std::string_view NameOf(Purpose purpose);
// After "p is 0:": "an end before min_tokens".
std::string_view NameOf(ZeroStep step);

// False if no method or status has the name.
bool ParseMethod(std::string_view name, VerifyMethod* method);
bool ParseStatus(std::string_view name, RoundStatus* status);

// "0x100000001".
std::string HandleText(SequenceHandle sequence);

// A time as ISO 8601 in UTC, to the millisecond.
std::string TimeText(int64_t unix_ns);
// "1.25 ms", "14.8 us".
std::string DurationText(int64_t ns);
// "12.3 MiB".
std::string SizeText(uint64_t size_bytes);

}  // namespace specd::replay
