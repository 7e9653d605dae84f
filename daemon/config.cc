#include "daemon/config.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "daemon/base/cpus.h"
#include "daemon/base/logging.h"
#include "daemon/session/compile_limits.h"
#include "ipc/base/error.h"
#include "ipc/events/ask.h"
#include "ipc/events/token_event.h"
#include "ipc/include/specd/specd.h"
#include "ipc/sockets/zmq_socket.h"
#include "speculative/grammar/base/grammar_memory.h"

namespace specd {
namespace {

// The room of sockaddr_un, less the zero at its end.
constexpr size_t kSocketPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

// Whether a socket can be made at the path of a flag.
absl::Status CheckPlace(std::string_view flag, std::string_view scheme, const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) {
    return absl::InvalidArgumentError(
        fmt::format("{} = {}{}: the path is a directory; name a socket in it, such as "
                    "{}{}/specd.sock",
                    flag, scheme, path, scheme, path.substr(0, path.find_last_not_of('/') + 1)));
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
  if (!folder.empty() && stat(folder.c_str(), &found) != 0 && errno == ENOENT) {
    return absl::InvalidArgumentError(
        fmt::format("{} = {}{}: there is no directory {}; make it (mkdir -p {}, or "
                    "RuntimeDirectory= of a systemd unit), or choose another with --{}",
                    flag, scheme, path, folder, folder, flag));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseListen(const std::string& listen, std::string* path) {
  constexpr std::string_view kScheme = "unix:";
  const std::string_view text = listen;
  if (text.substr(0, kScheme.size()) != kScheme || text.size() == kScheme.size()) {
    return absl::InvalidArgumentError(
        fmt::format("listen = {} is not of the form unix:/path/to/socket", listen));
  }
  *path = listen.substr(kScheme.size());
  if (path->front() != '/') {
    return absl::InvalidArgumentError(
        fmt::format("listen = {}: the path must be absolute, engines run elsewhere", listen));
  }
  return absl::OkStatus();
}

absl::Status CheckListenPath(const std::string& path) {
  if (path.size() > kSocketPathBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("listen: the path has {} bytes, and a socket's path has at most {}; choose a "
                    "shorter one, such as /run/specd/specd.sock",
                    path.size(), kSocketPathBytesMax));
  }
  return CheckPlace("listen", "unix:", path);
}

absl::Status ParseDetokenizerMode(const std::string& text, DetokenizerMode* mode) {
  if (text == "thread")
    *mode = DetokenizerMode::kThread;
  else if (text == "process")
    *mode = DetokenizerMode::kProcess;
  else if (text == "off")
    *mode = DetokenizerMode::kOff;
  else {
    return absl::InvalidArgumentError(
        fmt::format("detokenizer = {} is unknown; use thread, process or off", text));
  }
  return absl::OkStatus();
}

absl::Status ParseEosIds(const std::vector<std::string>& texts, std::vector<TokenId>* ids) {
  for (const std::string& text : texts) {
    TokenId id = 0;
    if (!absl::SimpleAtoi(text, &id)) {
      return absl::InvalidArgumentError(
          fmt::format("eos_token_ids: {} is no number; give a token's text to --eos_tokens", text));
    }
    ids->push_back(id);
  }
  return absl::OkStatus();
}

absl::Status SetSpin(int32_t spin_us, int32_t max_sessions, DaemonConfig* config) {
  if (spin_us < -1 || spin_us > 1'000'000) {
    return absl::InvalidArgumentError(
        fmt::format("spin_us = {} is outside -1 .. 1000000", spin_us));
  }
  // The verify thread sleeps on one bell per session and one of its own (kWaitAnyMax is 128).
  constexpr int32_t kSessionsMax = 64;
  if (max_sessions < 1 || max_sessions > kSessionsMax) {
    return absl::InvalidArgumentError(
        fmt::format("max_sessions = {} is outside 1 .. {}", max_sessions, kSessionsMax));
  }
  config->max_sessions = static_cast<uint32_t>(max_sessions);
  cpu_set_t usable;
  const bool spare = sched_getaffinity(0, sizeof(usable), &usable) == 0 && CPU_COUNT(&usable) > 2;
  config->spin_ns = int64_t{spin_us >= 0 ? spin_us : (spare ? 1000 : 0)} * 1000;
  return absl::OkStatus();
}

absl::Status SetThreads(int32_t threads, DaemonConfig* config) {
  if (threads < 0 || threads > static_cast<int32_t>(kThreadsMax)) {
    return absl::InvalidArgumentError(
        fmt::format("threads = {} is outside 0 .. {}", threads, kThreadsMax));
  }
  config->threads = ResolveThreads(static_cast<uint32_t>(threads));
  return absl::OkStatus();
}

absl::Status SetMemory(const MemoryFlags& flags, const AvailableMemory& available,
                       DaemonConfig* config) {
  constexpr int64_t kMibMax = int64_t{1} << 30;
  constexpr uint64_t kMib = uint64_t{1} << 20;
  for (const auto& [flag, mib] : {std::pair{"memory_mib", flags.memory_mib},
                                  std::pair{"session_memory_mib", flags.session_memory_mib}}) {
    if (mib >= 0 && mib <= kMibMax) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} = {} is outside 0 .. {}; 0 leaves it to specd", flag, mib, kMibMax));
  }
  const uint64_t all = flags.memory_mib > 0 ? static_cast<uint64_t>(flags.memory_mib) * kMib
                                            : std::min(available.bytes, kMib << 30) / 4 * 3;
  uint64_t& compile_bytes = config->compile_limits.bytes;
  compile_bytes = std::min(all / 16, grammar::kCompileMibDefault * kMib);
  if (flags.compile_mib != 0) {
    absl::Status status = SetCompileMib(flags.compile_mib, &config->compile_limits);
    if (!status.ok()) return status;
  }
  if (compile_bytes > all / 16) {
    return absl::InvalidArgumentError(fmt::format(
        "compile_mib = {} is more than a sixteenth of the memory for engines, {} MiB; lower it, or "
        "raise memory_mib",
        flags.compile_mib, all / 16 / kMib));
  }
  MemoryBounds& memory = config->memory;
  memory.constraints_bytes = std::min<uint64_t>(all / 4, grammar::GrammarMemory::kProcessBytesMax);
  memory.endpoint_bytes = std::min(all / 8, kMib * 512) / 2;
  memory.kept_bytes = std::min(all / 32, kMib * 64);
  memory.sessions_bytes = all - memory.constraints_bytes - kLongCompiles * compile_bytes -
                          2 * memory.endpoint_bytes - 2 * memory.kept_bytes;
  memory.session_bytes = flags.session_memory_mib > 0
                             ? static_cast<uint64_t>(flags.session_memory_mib) * kMib
                             : memory.sessions_bytes / 2;
  if (memory.session_bytes <= memory.sessions_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "session_memory_mib = {} is more than all sessions may have, {} MiB; lower it, or "
      "raise memory_mib",
      flags.session_memory_mib, memory.sessions_bytes / kMib));
}

absl::Status SetSessionBounds(const SessionFlags& flags, DaemonConfig* config) {
  const auto sequences_max = static_cast<int32_t>(SessionLimits::kSequencesMax);
  const auto rounds_max = static_cast<int32_t>(SessionLimits::kRingDepthMax);
  for (const auto& [flag, value, min, max] :
       {std::tuple{"session_sequences", flags.sequences, 1, sequences_max},
        std::tuple{"session_rounds", flags.rounds, 1, rounds_max},
        std::tuple{"session_openings_per_second", flags.openings_per_second, 0, 1'000'000}}) {
    if (value >= min && value <= max) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} = {} is outside {} .. {}", flag, value, min, max));
  }
  config->session = {.sequences = static_cast<uint32_t>(flags.sequences),
                     .rounds = static_cast<uint32_t>(flags.rounds),
                     .openings_per_second = static_cast<uint32_t>(flags.openings_per_second)};
  return absl::OkStatus();
}

absl::Status CheckSessionBounds(const SessionBounds& bounds, const SessionLimits& asked) {
  for (const auto& [field, value, flag, max] :
       {std::tuple{"max_sequences", asked.max_sequences, "session_sequences", bounds.sequences},
        std::tuple{"ring_depth", asked.ring_depth, "session_rounds", bounds.rounds}}) {
    if (value <= max) continue;
    // No later try would go better.
    return MakeError(SPECD_ERROR_UNSUPPORTED, field,
                     fmt::format("{} = {} is more than this daemon lets one engine have, {}; lower "
                                 "it, or start the daemon with --{}={}",
                                 field, value, max, flag, value));
  }
  return absl::OkStatus();
}

absl::Status ParseShard(const std::string& text, TextShard* shard) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  TextShard read;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &read.index) ||
      !absl::SimpleAtoi(parts[1], &read.count)) {
    return absl::InvalidArgumentError(
        fmt::format("shard = {} is not I/N, such as 0/2 and 1/2 for two detokenizers", text));
  }
  if (read.count < 1 || read.count > kTextShardsMax) {
    return absl::InvalidArgumentError(
        fmt::format("shard = {}: {} shards are outside 1 .. {}", text, read.count, kTextShardsMax));
  }
  if (read.index >= read.count) {
    return absl::InvalidArgumentError(
        fmt::format("shard = {}: {} is outside 0 .. {}", text, read.index, read.count - 1));
  }
  *shard = read;
  return absl::OkStatus();
}

absl::Status SetPatience(int32_t keep_ended, int32_t text_grace, DaemonConfig* config) {
  constexpr int32_t kSecondsMax = 86'400;
  // A text side says every second that it lives.
  constexpr int32_t kGraceMin = 3;
  for (const auto& [flag, seconds, least] :
       {std::tuple{"keep_ended", keep_ended, 0}, std::tuple{"text_grace", text_grace, kGraceMin}}) {
    if (seconds >= least && seconds <= kSecondsMax) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} = {} is outside {} .. {} seconds", flag, seconds, least, kSecondsMax));
  }
  config->keep_ended_ns = int64_t{keep_ended} * 1'000'000'000;
  config->text_grace_ns = int64_t{text_grace} * 1'000'000'000;
  return absl::OkStatus();
}

absl::Status SetCanary(int32_t seconds, DaemonConfig* config) {
  constexpr int32_t kSecondsMax = 3600;
  if (seconds < 0 || seconds > kSecondsMax) {
    return absl::InvalidArgumentError(
        fmt::format("canary = {} is outside 0 .. {} seconds; 0 runs none", seconds, kSecondsMax));
  }
  config->canary_ns = int64_t{seconds} * 1'000'000'000;
  return absl::OkStatus();
}

void FillEndpoints(DaemonConfig* config) {
  const auto fill = [config](std::string* endpoint, std::string_view suffix) {
    if (endpoint->empty()) *endpoint = fmt::format("ipc://{}.{}", config->listen_path, suffix);
  };
  const TextShard& shard = config->text_shard;
  const std::string of_shard = shard.count == 1 ? "" : fmt::format("{}.", shard.index);
  fill(&config->tokens_endpoint, "tokens");
  fill(&config->text_endpoint, of_shard + "text");
  fill(&config->aborts_endpoint, "aborts");
  fill(&config->ask_endpoint, "ask");
  fill(&config->text_ask_endpoint, of_shard + "text_ask");
  if (config->counters_path == kCountersBeside) {
    config->counters_path = config->listen_path + ".counters";
  }
}

absl::Status CheckEndpoints(const DaemonConfig& config) {
  constexpr size_t kEndpointBytesMax = 256;  // the limit of the reply to an engine's hello
  for (const auto& [flag, endpoint] :
       {std::pair<std::string_view, const std::string&>{"tokens", config.tokens_endpoint},
        {"text", config.text_endpoint},
        {"aborts", config.aborts_endpoint},
        {"ask", config.ask_endpoint},
        {"text_ask", config.text_ask_endpoint}}) {
    if (absl::Status status = ValidateEndpoint(flag, endpoint); !status.ok()) return status;
    if (endpoint.size() > kEndpointBytesMax || endpoint.find('*') != std::string::npos) {
      return absl::InvalidArgumentError(
          fmt::format("{} = {} must name one address (no *) in at most {} bytes", flag, endpoint,
                      kEndpointBytesMax));
    }
    constexpr std::string_view kIpc = "ipc://";
    if (!endpoint.starts_with(kIpc)) continue;
    const std::string path = endpoint.substr(kIpc.size());
    if (absl::Status status = CheckPlace(flag, kIpc, path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ParseUids(const std::vector<std::string>& texts, std::vector<uint32_t>* uids) {
  for (const std::string& text : texts) {
    uint32_t uid = 0;
    if (!absl::SimpleAtoi(text, &uid)) {
      return absl::InvalidArgumentError(
          fmt::format("allow_uid = {} is not a numeric user id", text));
    }
    uids->push_back(uid);
  }
  return absl::OkStatus();
}

namespace {

// The users that may connect to the endpoint. A refused connection is logged.
AcceptRules RulesFor(const char* endpoint, const std::vector<uint32_t>& allowed_uids) {
  return {.uids = allowed_uids, .on_turned_away = [endpoint](std::string_view why) {
            LogOfPeer({"egress", spdlog::level::warn, endpoint},
                      "a connection to {} is turned away: {}", endpoint, why);
          }};
}

}  // namespace

BroadcastOptions SubscribersFor(const char* endpoint, const std::vector<uint32_t>& allowed_uids,
                                uint64_t queued_bytes) {
  return {.accept = RulesFor(endpoint, allowed_uids),
          .subscriptions = {.admits = &IsTopicPrefix},
          .queued_bytes_max = queued_bytes,
          .on_trouble = [endpoint](std::string_view what) {
            LogOfPeer({"egress", spdlog::level::warn, endpoint}, "a subscriber of {}, {}", endpoint,
                      what);
          }};
}

PullOptions TextSidesFor(const char* endpoint, const std::vector<uint32_t>& allowed_uids) {
  return {.accept = RulesFor(endpoint, allowed_uids),
          .on_trouble = [endpoint](std::string_view what) {
            LogOfPeer({"egress", spdlog::level::warn, endpoint}, "a sender of {}, {}", endpoint,
                      Printable(what));
          }};
}

ReplyOptions AskersFor(const char* endpoint, const std::vector<uint32_t>& allowed_uids) {
  ReplyOptions options = {.accept = RulesFor(endpoint, allowed_uids),
                          .on_trouble = [endpoint](std::string_view what) {
                            LogOfPeer({"egress", spdlog::level::warn, endpoint},
                                      "an asker of {}, {}", endpoint, Printable(what));
                          }};
  AppendRefusal(absl::UnavailableError("too many answers wait for others; ask again later"),
                &options.busy);
  return options;
}

KeepLimits KeptFor(const DaemonConfig& config) {
  return {.bytes_max = config.memory.kept_bytes, .ended_ns = config.keep_ended_ns};
}

void WarnOfOpenEndpoint(std::string_view flag, const std::string& endpoint) {
  if (!endpoint.starts_with("tcp://")) return;
  Log("egress").warn(
      "{} = {} is open to everybody who can reach it{}, because TCP tells no users; use "
      "ipc://PATH, "
      "or let a firewall choose the machines",
      flag, endpoint, flag == "ask" ? " and abort requests by their names" : "");
}

void OpenSocketsToGroup() { umask(0007); }

}  // namespace specd
