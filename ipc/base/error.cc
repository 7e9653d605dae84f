#include "ipc/base/error.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr char kCodePayload[] = "specd/code";
constexpr char kFieldPayload[] = "specd/field";

struct CodeEntry {
  int code;
  const char* name;
  absl::StatusCode status_code;
};

constexpr CodeEntry kCodes[] = {
    {SPECD_OK, "SPECD_OK", absl::StatusCode::kOk},
    {SPECD_FULL, "SPECD_FULL", absl::StatusCode::kOk},
    {SPECD_EMPTY, "SPECD_EMPTY", absl::StatusCode::kOk},
    {SPECD_ERROR_INVALID_ARGUMENT, "SPECD_ERROR_INVALID_ARGUMENT",
     absl::StatusCode::kInvalidArgument},
    {SPECD_ERROR_UNSUPPORTED, "SPECD_ERROR_UNSUPPORTED", absl::StatusCode::kUnimplemented},
    {SPECD_ERROR_NOT_FOUND, "SPECD_ERROR_NOT_FOUND", absl::StatusCode::kNotFound},
    {SPECD_ERROR_PERMISSION, "SPECD_ERROR_PERMISSION", absl::StatusCode::kPermissionDenied},
    {SPECD_ERROR_VERSION, "SPECD_ERROR_VERSION", absl::StatusCode::kFailedPrecondition},
    {SPECD_ERROR_VOCABULARY, "SPECD_ERROR_VOCABULARY", absl::StatusCode::kInvalidArgument},
    {SPECD_ERROR_REGION, "SPECD_ERROR_REGION", absl::StatusCode::kInvalidArgument},
    {SPECD_ERROR_STATE, "SPECD_ERROR_STATE", absl::StatusCode::kFailedPrecondition},
    {SPECD_ERROR_EXHAUSTED, "SPECD_ERROR_EXHAUSTED", absl::StatusCode::kResourceExhausted},
    {SPECD_ERROR_DISCONNECTED, "SPECD_ERROR_DISCONNECTED", absl::StatusCode::kUnavailable},
    {SPECD_ERROR_SHUTDOWN, "SPECD_ERROR_SHUTDOWN", absl::StatusCode::kUnavailable},
    {SPECD_ERROR_INTERNAL, "SPECD_ERROR_INTERNAL", absl::StatusCode::kInternal},
    {SPECD_ERROR_TIMEOUT, "SPECD_ERROR_TIMEOUT", absl::StatusCode::kDeadlineExceeded},
};

const CodeEntry* FindCode(int code) {
  for (const CodeEntry& entry : kCodes) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
}

// For a status that MakeError did not make.
int NearestCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return SPECD_OK;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return SPECD_ERROR_INVALID_ARGUMENT;
    case absl::StatusCode::kUnimplemented:
      return SPECD_ERROR_UNSUPPORTED;
    case absl::StatusCode::kNotFound:
      return SPECD_ERROR_NOT_FOUND;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return SPECD_ERROR_PERMISSION;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
      return SPECD_ERROR_STATE;
    case absl::StatusCode::kResourceExhausted:
      return SPECD_ERROR_EXHAUSTED;
    case absl::StatusCode::kUnavailable:
      return SPECD_ERROR_DISCONNECTED;
    case absl::StatusCode::kDeadlineExceeded:
      return SPECD_ERROR_TIMEOUT;
    case absl::StatusCode::kCancelled:
      return SPECD_ERROR_SHUTDOWN;
    default:
      return SPECD_ERROR_INTERNAL;
  }
}

}  // namespace

absl::Status MakeError(int code, std::string_view field, std::string_view text) {
  const CodeEntry* entry = FindCode(code);
  const absl::StatusCode status_code =
      entry == nullptr || entry->status_code == absl::StatusCode::kOk ? absl::StatusCode::kInternal
                                                                      : entry->status_code;
  absl::Status status(status_code, {text.data(), text.size()});
  status.SetPayload(kCodePayload, absl::Cord(fmt::format("{}", code)));
  if (!field.empty()) status.SetPayload(kFieldPayload, absl::Cord({field.data(), field.size()}));
  return status;
}

absl::Status Invalid(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field, text);
}

absl::Status MakeErrnoError(int code, std::string_view field, std::string_view text,
                            int error_number) {
  char buffer[128];
  // The GNU strerror_r may return a string of its own instead of the buffer.
  const char* meaning = strerror_r(error_number, buffer, sizeof(buffer));
  return MakeError(code, field, fmt::format("{}: {}", text, meaning));
}

int ErrorCodeOf(const absl::Status& status) {
  int code = 0;
  if (const auto payload = status.GetPayload(kCodePayload);
      payload.has_value() && absl::SimpleAtoi(std::string(*payload), &code)) {
    return code;
  }
  return NearestCode(status.code());
}

std::string ErrorFieldOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kFieldPayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

const char* ErrorCodeName(int code) {
  const CodeEntry* entry = FindCode(code);
  return entry == nullptr ? "SPECD_ERROR_INTERNAL" : entry->name;
}

}  // namespace specd
