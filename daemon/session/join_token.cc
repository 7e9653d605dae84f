#include "daemon/session/join_token.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr size_t kSecretBytes = 16;
constexpr size_t kSecretDigits = 2 * kSecretBytes;

bool AreDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string JoinToken::text() const { return fmt::format("{:x}-{}", session_id, secret); }

std::optional<JoinToken> ParseJoinToken(std::string_view text) {
  const std::string_view number = text.substr(0, text.find('-'));
  if (number.size() == text.size()) return std::nullopt;
  const std::string_view secret = text.substr(number.size() + 1);
  JoinToken token;
  // A number has at most 64 bits.
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), token.session_id, 16);
  if (!AreDigits(number) || error != std::errc() || end != number.data() + number.size() ||
      !AreDigits(secret) || secret.size() != kSecretDigits) {
    return std::nullopt;
  }
  token.secret = secret;
  return token;
}

absl::StatusOr<std::string> MakeJoinSecret() {
  std::array<uint8_t, kSecretBytes> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return MakeErrnoError(SPECD_ERROR_INTERNAL, "token", "no random numbers", errno);
  }
  std::string secret;
  for (const uint8_t byte : bytes) secret += fmt::format("{:02x}", byte);
  return secret;
}

absl::Status SessionHasEnded() {
  return MakeError(SPECD_ERROR_STATE, "token",
                   "token is of a session that has ended; join the engine's new session with the "
                   "token of that one");
}

bool IsSecret(std::string_view secret, std::string_view given) {
  if (secret.empty() || secret.size() != given.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < secret.size(); ++i) {
    difference |= static_cast<unsigned>(secret[i]) ^ static_cast<unsigned>(given[i]);
  }
  return difference == 0;
}

}  // namespace specd
