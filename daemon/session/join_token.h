// JoinToken: what a rank must bring to join a session: the session's number and its secret.
//
// As text "SESSION-SECRET", both in lower hexadecimal digits, 32 of the secret. The secret keeps
// engines of one daemon apart that may all attach to it; it is made when a token is first asked
// for, so a session that never gave one away cannot be joined. Nothing prints it.
//
// Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace specd {

struct JoinToken {
  uint64_t session_id = 0;
  std::string secret;

  std::string text() const;
};

// Nothing for what is not the text of a token.
std::optional<JoinToken> ParseJoinToken(std::string_view text);

// 128 bits of the kernel's random numbers, as digits.
absl::StatusOr<std::string> MakeJoinSecret();

// Takes the same time wherever the first difference is; false where `secret` is empty.
bool IsSecret(std::string_view secret, std::string_view given);

}  // namespace specd
