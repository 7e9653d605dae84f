#include "tools/http/listen_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <string_view>

#include "absl/strings/numbers.h"

namespace specd::http {
namespace {

constexpr std::string_view kUnix = "unix:";

bool IsLoopback(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) return address.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&address);
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  if (text.starts_with(kUnix) && text.size() > kUnix.size() && text[kUnix.size()] == '/') {
    return ListenAddress{.endpoint = "ipc://" + text.substr(kUnix.size()), .is_private = true};
  }
  const absl::Status refused = absl::InvalidArgumentError(fmt::format(
      "listen = {} is no numeric address with a port, and no unix:/PATH; use 127.0.0.1:9464, "
      "[::1]:9464 or unix:/run/specd/http.sock",
      text));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size() || text.size() - colon > 6) {
    return refused;
  }
  const std::string port = text.substr(colon + 1);
  uint32_t number = 0;
  if (port.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(port, &number) || number > 65535) {
    return refused;
  }
  std::string host = text.substr(0, colon);
  in_addr v4 = {};
  in6_addr v6 = {};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    const bool is_loopback = (ntohl(v4.s_addr) >> 24) == 127;
    return ListenAddress{.endpoint = "tcp://" + text, .is_private = is_loopback};
  }
  if (!host.starts_with('[') || !host.ends_with(']')) return refused;
  host = host.substr(1, host.size() - 2);
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return refused;
  return ListenAddress{.endpoint = "tcp://" + text, .is_private = IsLoopback(v6)};
}

}  // namespace specd::http
