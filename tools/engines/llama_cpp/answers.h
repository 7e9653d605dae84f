// StatusOf and BadRound turn specd's answers into absl::Status. An engine calls them right after
// the call that failed. Safe from any thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "specd/specd.h"

namespace specd::llama_cpp {

// The error that the last call of this thread returned. Unavailable: the daemon is gone, or does
// not answer.
inline absl::Status StatusOf(int code) {
  if (code == SPECD_OK) return absl::OkStatus();
  const std::string text = fmt::format("{} ({})", specd_last_error(), specd_code_name(code));
  const bool is_gone = code == SPECD_ERROR_DISCONNECTED || code == SPECD_ERROR_SHUTDOWN ||
                       code == SPECD_ERROR_TIMEOUT;
  return is_gone ? absl::UnavailableError(text) : absl::InvalidArgumentError(text);
}

// A SPECD_STATUS_... that this engine has no use for.
inline absl::Status BadRound(uint32_t status, uint32_t detail) {
  return absl::InternalError(
      fmt::format("a round was answered with status {}: {}", status, specd_detail_text(detail)));
}

}  // namespace specd::llama_cpp
