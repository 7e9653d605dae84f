// JoinToken holds the session number and the secret that a rank brings to join a session.
//
// Its text is "SESSION-SECRET", both in lower hexadecimal digits; the secret has 32. Several
// engines may attach to one daemon, and the secret keeps them apart. The session makes the secret
// when a token is first asked for. A session that never gave a token away cannot be joined. Nothing
// prints a secret.
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

// Nothing if the text is not a token's.
std::optional<JoinToken> ParseJoinToken(std::string_view text);

// Draws 128 random bits from the kernel, as digits.
absl::StatusOr<std::string> MakeJoinSecret();

// The error of a token whose session does not come back.
absl::Status SessionHasEnded();

// Takes the same time wherever the first difference is. False if `secret` is empty.
bool IsSecret(std::string_view secret, std::string_view given);

}  // namespace specd
