// Errors that cross the wire: an absl::Status that also knows its SPECD_ERROR_* code and the field
// it is about.
//
// Make one with MakeError wherever an outsider's number, message or descriptor is refused; the
// daemon turns it into an ErrorReply (ipc/control/control.h), the library back into a code and a
// text. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace specd {

// `code` is one of SPECD_ERROR_* (specd/specd.h), `field` the name of what is wrong or "". The text
// names value, range and remedy, and is shown to the user as it is.
absl::Status MakeError(int code, std::string_view field, std::string_view text);

// The same for a failed system call: appends what errno means.
absl::Status MakeErrnoError(int code, std::string_view field, std::string_view text,
                            int error_number);

// The code that MakeError was given; for a status made elsewhere the code nearest in meaning;
// SPECD_OK for an OK status.
int ErrorCodeOf(const absl::Status& status);

// The field that MakeError was given, or "".
std::string ErrorFieldOf(const absl::Status& status);

// "SPECD_ERROR_REGION" for -7; "SPECD_ERROR_INTERNAL" for a number that is no code; "SPECD_OK",
// "SPECD_FULL" and "SPECD_EMPTY" for the answers that are no errors. Never null.
const char* ErrorCodeName(int code);

}  // namespace specd
