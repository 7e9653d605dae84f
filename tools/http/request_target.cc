#include "tools/http/request_target.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "ipc/base/valid_text.h"

namespace specd::http {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

absl::Status Refused(std::string_view what, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("{} {}", ValidText(what, 100), why));
}

absl::Status AddValue(std::string_view part, const std::vector<std::string_view>& names,
                      RequestTarget* out) {
  if (part.empty()) return absl::OkStatus();
  const size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return Refused(name, names.empty()
                             ? "is no parameter: there are none here"
                             : fmt::format("is no parameter; here are {}", fmt::join(names, ", ")));
  }
  if (out->Find(name) != nullptr) return Refused(name, "is there twice; give one value");
  const std::optional<std::string> value =
      DecodePercents(equals == std::string_view::npos ? "" : part.substr(equals + 1));
  if (!value.has_value()) return Refused(part, "has a % without two hexadecimal digits");
  out->values.emplace_back(std::string(name), *value);
  return absl::OkStatus();
}

}  // namespace

const std::string* RequestTarget::Find(std::string_view name) const {
  for (const auto& [each, value] : values) {
    if (each == name) return &value;
  }
  return nullptr;
}

absl::StatusOr<RequestTarget> ParseTarget(std::string_view target,
                                          const std::vector<std::string_view>& names) {
  if (!target.starts_with('/')) return Refused(target, "is no path; a path begins with /");
  const size_t mark = target.find('?');
  RequestTarget out = {.path = std::string(target.substr(0, mark)), .values = {}};
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    if (absl::Status status = AddValue(rest.substr(0, end), names, &out); !status.ok()) {
      return status;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

std::optional<std::string> DecodePercents(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || HexDigit(text[i + 1]) < 0 || HexDigit(text[i + 2]) < 0) {
      return std::nullopt;
    }
    out += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
    i += 2;
  }
  return out;
}

bool IsKnownHost(std::string_view host, const std::vector<std::string>& names) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || bracket < colon);
  std::string name(has_port ? host.substr(0, colon) : host);
  unsigned char address[16];
  if (inet_pton(AF_INET, name.c_str(), address) == 1) return true;
  if (name.starts_with('[') && name.ends_with(']')) {
    return inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(), address) == 1;
  }
  if (absl::EqualsIgnoreCase(name, "localhost")) return true;
  return std::any_of(names.begin(), names.end(), [&name](const std::string& each) {
    return absl::EqualsIgnoreCase(each, name);
  });
}

}  // namespace specd::http
