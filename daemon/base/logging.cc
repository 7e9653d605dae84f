#include "daemon/base/logging.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/str_split.h"
#include "daemon/base/clock.h"
#include "daemon/base/log_limit.h"
#include "daemon/base/log_writer.h"
#include "ipc/base/error.h"
#include "ipc/base/fault_guard.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"attach", "verify", "grammar",
                                                    "egress", "detok",  "trace"};
constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info",
                                                     "warn",  "error", "off"};
constexpr char kTextPattern[] = "%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %-7n %v";
constexpr char kJsonPattern[] =
    R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","logger":"%n","message":"%v"})";
// The text around a message takes less than the rest of a line.
constexpr size_t kMessageBytesMax = LogWriter::kLineBytesMax - 512;

// The message, cut to what a line has room for.
std::string Escaped(std::string_view message) {
  std::string escaped;
  for (const char c : Printable(message)) {
    if (escaped.size() + 2 > kMessageBytesMax) break;
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Formats a line in the thread that logs, and hands it to the writer.
class LogSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogSink(bool is_json)
      : is_json_(is_json),
        has_colors_(!is_json && isatty(STDERR_FILENO) == 1),
        writer_(std::make_unique<LogWriter>(
            STDERR_FILENO, [this](uint64_t num_lines) { return TextOfDropped(num_lines); })) {
    set_pattern(is_json ? kJsonPattern : kTextPattern);
  }

  void Stop() {
    const std::lock_guard lock(mutex_);
    writer_.reset();
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (writer_ != nullptr) writer_->Write(Format(message, formatter_.get()));
  }
  void flush_() override {}

  std::string Format(const spdlog::details::log_msg& message, spdlog::formatter* formatter) const {
    spdlog::details::log_msg copy = message;
    std::string escaped;
    if (is_json_) {
      escaped = Escaped({message.payload.data(), message.payload.size()});
      copy.payload = escaped;
    } else if (message.payload.size() > kMessageBytesMax) {
      copy.payload = {message.payload.data(), kMessageBytesMax};
    }
    spdlog::memory_buf_t buffer;
    formatter->format(copy, buffer);
    std::string line(buffer.data(), buffer.size());
    if (has_colors_ && copy.level >= spdlog::level::warn) {
      line.insert(copy.color_range_end, "\033[0m");
      line.insert(copy.color_range_start,
                  copy.level == spdlog::level::warn ? "\033[33m" : "\033[31m");
    }
    return line;
  }

  // The writer's thread calls this.
  std::string TextOfDropped(uint64_t num_lines) const {
    const std::string text =
        fmt::format("{} lines were dropped here, because stderr took none", num_lines);
    spdlog::pattern_formatter formatter(is_json_ ? kJsonPattern : kTextPattern);
    return Format({"attach", spdlog::level::warn, text}, &formatter);
  }

  const bool is_json_;
  const bool has_colors_;
  std::unique_ptr<LogWriter> writer_;
};

std::shared_ptr<LogSink>& Sink() {
  static auto& sink = *new std::shared_ptr<LogSink>;
  return sink;
}

absl::Status UnknownOf(std::string_view field, std::string_view value, std::string_view remedy) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field,
                   fmt::format("{} = {} is unknown; use {}", field, value, remedy));
}

// A level for each of kNames.
absl::Status ReadLevels(const std::string& text, std::array<spdlog::level::level_enum, 6>* levels) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (const std::string& part : parts) {
    const std::vector<std::string> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string& level = sides.back();
    if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) {
      return UnknownOf("log_level", level,
                       "trace, debug, info, warn, error or off, for all loggers or as in "
                       "info,attach=debug");
    }
    const auto name = std::find(kNames.begin(), kNames.end(), sides.front());
    if (sides.size() == 2 && name == kNames.end()) {
      return UnknownOf("log_level", part,
                       fmt::format("one of the loggers {}", fmt::join(kNames, ", ")));
    }
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (sides.size() == 2 && kNames[i] != *name) continue;
      (*levels)[i] = spdlog::level::from_str(level);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SetUpLogging(const LogOptions& options) {
  std::array<spdlog::level::level_enum, kNames.size()> levels = {};
  levels.fill(spdlog::level::info);
  if (absl::Status status = ReadLevels(options.levels, &levels); !status.ok()) return status;
  if (options.format != "text" && options.format != "json") {
    return UnknownOf("log_format", options.format, "text or json");
  }
  Sink() = std::make_shared<LogSink>(options.format == "json");
  for (size_t i = 0; i < kNames.size(); ++i) {
    const std::string name(kNames[i]);
    auto logger = std::make_shared<spdlog::logger>(name, Sink());
    logger->set_level(levels[i]);
    spdlog::drop(name);
    spdlog::register_logger(logger);
  }
  return absl::OkStatus();
}

void StopLogging() {
  if (Sink() != nullptr) Sink()->Stop();
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

void WriteOfPeer(const PeerLine& line, std::string_view text) {
  static auto& limit = *new LogLimit;
  const std::optional<uint64_t> left_out = limit.Take(line.kind, line.peer, Clock::Real()->NowNs());
  if (!left_out.has_value()) return;
  if (*left_out == 0) {
    Log(line.logger).log(line.level, "{}", text);
  } else {
    Log(line.logger).log(line.level, "{} ({} more like it were not logged)", text, *left_out);
  }
}

void ProtectProcess() {
  while (true) {
    const int fd = open("/dev/null", O_RDWR);
    if (fd < 0 || fd > STDERR_FILENO) {
      if (fd >= 0) close(fd);
      break;
    }
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  FaultGuard::Install();
}

}  // namespace specd
