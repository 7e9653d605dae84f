#include "daemon/base/logging.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <array>
#include <memory>
#include <string_view>

#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"attach", "verify", "egress", "detok", "trace"};

}  // namespace

absl::Status SetUpLogging(const std::string& level) {
  constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info",
                                                       "warn",  "error", "off"};
  bool known = false;
  for (std::string_view name : kLevels) known = known || name == level;
  if (!known) {
    return absl::InvalidArgumentError(fmt::format(
        "log_level = {} is unknown; use trace, debug, info, warn, error or off", level));
  }
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  for (std::string_view name : kNames) {
    auto logger = std::make_shared<spdlog::logger>(std::string(name), sink);
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %-6n %v");
    logger->set_level(spdlog::level::from_str(level));
    logger->flush_on(spdlog::level::info);
    spdlog::drop(std::string(name));
    spdlog::register_logger(logger);
  }
  return absl::OkStatus();
}

std::string Printable(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return line;
}

spdlog::logger& Log(const char* name) {
  spdlog::logger* logger = spdlog::get(name).get();
  SPECD_CHECK(logger != nullptr);
  return *logger;
}

}  // namespace specd
