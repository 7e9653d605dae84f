#include "daemon/session/request_id.h"

#include <fmt/format.h>

#include <algorithm>

#include "detokenizer/utf8_stream.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr size_t kRequestIdBytesMax = 128;

}  // namespace

absl::Status CheckRequestId(const std::string& request_id) {
  if (request_id.empty() || request_id.size() > kRequestIdBytesMax) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "request_id",
                     fmt::format("request_id has {} bytes, 1 .. {} are allowed", request_id.size(),
                                 kRequestIdBytesMax));
  }
  std::string decoded;
  Utf8Stream utf8;
  utf8.Push(request_id, &decoded);
  utf8.Finish(&decoded);
  const bool control = std::any_of(request_id.begin(), request_id.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (decoded != request_id || control) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "request_id",
                     "request_id must be UTF-8 without control characters");
  }
  return absl::OkStatus();
}

std::vector<std::string> NamesOf(const std::string& request_id, size_t n) {
  std::vector<std::string> names = {request_id};
  for (size_t i = 1; i < n; ++i) names.push_back(fmt::format("{}#{}", request_id, i));
  return names;
}

}  // namespace specd
