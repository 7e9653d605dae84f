#include "daemon/client/api_guard.h"

#include <utility>

namespace specd::api {
namespace {

thread_local std::string last_error;

}  // namespace

const std::string& LastError() { return last_error; }

int Fail(int code, std::string text) {
  last_error = std::move(text);
  return code;
}

int NullArgument(const char* field) {
  return Fail(SPECD_ERROR_INVALID_ARGUMENT, fmt::format("{} is NULL", field));
}

int Finish(const absl::Status& status) {
  if (status.ok()) return SPECD_OK;
  return Fail(ErrorCodeOf(status), std::string(status.message()));
}

int Finish(const absl::StatusOr<int>& answer) {
  return answer.ok() ? *answer : Finish(answer.status());
}

}  // namespace specd::api
