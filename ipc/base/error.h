// MakeError makes errors that cross the wire: an absl::Status that also knows its SPECD_ERROR_*
// code and the name of its field.
//
// Call it wherever an outsider's number, message or descriptor is refused. The daemon turns the
// status into an ErrorReply (ipc/control/control.h); the library turns the reply back into a code
// and a text. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace specd {

// `code` is one of SPECD_ERROR_* (specd/specd.h). `field` names the wrong value, or is "". The text
// names value, range and remedy; the user sees it unchanged.
absl::Status MakeError(int code, std::string_view field, std::string_view text);

// MakeError(SPECD_ERROR_INVALID_ARGUMENT, field, text), which most errors are.
absl::Status Invalid(std::string_view field, std::string_view text);

// MakeError for a failed system call: appends the text of errno.
absl::Status MakeErrnoError(int code, std::string_view field, std::string_view text,
                            int error_number);

// Returns the code that MakeError was given. For a status made elsewhere it returns the code
// nearest in meaning, and for an OK status SPECD_OK.
int ErrorCodeOf(const absl::Status& status);

// Returns the field that MakeError was given, or "".
std::string ErrorFieldOf(const absl::Status& status);

// Returns "SPECD_ERROR_REGION" for -7, and "SPECD_ERROR_INTERNAL" for a number that is no code.
// Answers that are no errors have names too: "SPECD_OK", "SPECD_FULL", "SPECD_EMPTY". Never null.
const char* ErrorCodeName(int code);

}  // namespace specd
