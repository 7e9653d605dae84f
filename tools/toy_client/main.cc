// specd-toy-client subscribes to the daemon's text and shows it as it arrives.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/base/awake_time.h"
#include "daemon/base/command_line.h"
#include "ipc/events/token_event.h"
#include "ipc/sockets/zmq_socket.h"
#include "tools/toy_client/display.h"
#include "tools/toy_client/stream_tracker.h"

ABSL_FLAG(std::string, text, "ipc:///run/specd/specd.sock.text",
          "the daemon's ZeroMQ endpoint of text events");
ABSL_FLAG(std::string, stream, "", "request id of the one stream to show; empty: all streams");
ABSL_FLAG(uint32_t, columns, 4, "streams side by side, at most");
ABSL_FLAG(uint32_t, width, 100, "cells of a row where the output is not a terminal");
ABSL_FLAG(bool, raw, false, "show the text of one stream and nothing else");
ABSL_FLAG(bool, json, false, "show each event as one line of JSON");
ABSL_FLAG(uint32_t, streams, 0, "end when so many streams have ended; 0: never");
ABSL_FLAG(uint32_t, timeout_ms, 5000, "without a sign of life for so long the daemon is gone");
ABSL_FLAG(std::string, ready_file, "", "file to make when the subscription is active");

namespace specd::toy {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr char kUsage[] =
    "subscribes to specd's text and shows streams as they arrive, side by side.\n\n"
    "Accepted draft tokens are green on a terminal and [in brackets] elsewhere.\n\n"
    "Examples:\n"
    "  specd-toy-client --text=ipc:///run/specd/specd.sock.text\n"
    "  specd-toy-client --streams=4 --columns=2 --width=80 > streams.txt\n"
    "  specd-toy-client --stream='The daemon' --raw --streams=1\n"
    "  specd-toy-client --json --streams=1\n\n"
    "Exit status: 0 done; 1 an error; 2 bad flags; 3 the daemon is gone; 4 text was lost;\n"
    "130 interrupted.";

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;
constexpr int kExitDisconnected = 3;
constexpr int kExitLoss = 4;
constexpr int kExitInterrupted = 130;

constexpr std::string_view kTextTopicPrefix = "text/";

// The longest wait for one message. It bounds the delay of an interrupt or a new picture.
constexpr std::chrono::milliseconds kTick(30);

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "written by a signal handler");

void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = true; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void Say(std::string_view message) { fmt::print(stderr, "specd-toy-client: {}\n", message); }

int Fail(int exit_code, std::string_view message) {
  Say(message);
  return exit_code;
}

int ExitCode(const absl::Status& status) {
  if (absl::IsDataLoss(status)) return kExitLoss;
  return absl::IsAborted(status) ? kExitDisconnected : kExitError;
}

struct ClientOptions {
  std::string endpoint;
  std::string stream;
  size_t num_streams = 0;
  std::chrono::milliseconds timeout;
  std::string ready_file;
};

// Receives messages and hands them to the display until one of the ends of kUsage is reached.
class Client {
 public:
  Client(const ClientOptions& options, Display* display)
      : options_(options), display_(*display), tracker_(options.stream.empty()) {}

  int Run();

 private:
  int Loop(ZmqSocket* socket);
  absl::Status Handle(const std::vector<std::string>& frames);
  absl::Status HandleText(std::string_view payload);
  absl::Status HandleHeartbeat(std::string_view payload);
  absl::Status AnnounceSubscription();
  bool IsDone() const {
    return options_.num_streams > 0 && tracker_.num_ended() >= options_.num_streams;
  }

  ClientOptions options_;
  Display& display_;
  StreamTracker tracker_;
  bool subscribed_ = false;
};

int Client::Run() {
  absl::StatusOr<ZmqContext> context = ZmqContext::Make();
  if (!context.ok()) return Fail(kExitError, std::string(context.status().message()));
  absl::StatusOr<ZmqSocket> socket = ZmqSocket::Make(&*context, ZmqKind::kSubscribe, {});
  absl::Status status = socket.status();
  // Subscribes to the text first: a client that hears the heartbeat then hears the text as well.
  const std::string topic =
      options_.stream.empty() ? std::string(kTextTopicPrefix) : TextTopic(options_.stream);
  if (status.ok()) status = socket->Subscribe(topic);
  if (status.ok()) status = socket->Subscribe(kHeartbeatTopic);
  if (status.ok()) status = socket->Connect(options_.endpoint);
  if (!status.ok()) return Fail(kExitError, std::string(status.message()));
  const int exit_code = Loop(&*socket);
  display_.Finish();
  return exit_code;
}

int Client::Loop(ZmqSocket* socket) {
  std::vector<std::string> frames;
  SteadyClock::time_point last_refresh = SteadyClock::now();
  // A pause of the client is no silence of the daemon.
  const std::chrono::nanoseconds timeout = options_.timeout;
  AwakeTime awake(std::max(timeout, 16 * std::chrono::nanoseconds(kTick)).count() / 4);
  int64_t last_life_ns = 0;
  while (!IsDone()) {
    if (stop_requested) return kExitInterrupted;
    const absl::StatusOr<bool> received = socket->Receive(&frames, absl::FromChrono(kTick));
    absl::Status status = received.status();
    if (status.ok() && *received) status = Handle(frames);
    if (!status.ok()) return Fail(ExitCode(status), std::string(status.message()));
    const SteadyClock::time_point now = SteadyClock::now();
    awake.Step(std::chrono::nanoseconds(now.time_since_epoch()).count());
    if (*received) last_life_ns = awake.now_ns();
    if (awake.now_ns() - last_life_ns > timeout.count()) {
      return Fail(kExitDisconnected,
                  fmt::format("no sign of life on {} for {} ms: {}", options_.endpoint,
                              options_.timeout.count(),
                              subscribed_ ? "the daemon is gone" : "is the daemon running?"));
    }
    if (!*received || now - last_refresh > kTick) {
      display_.Refresh();
      last_refresh = now;
    }
  }
  return 0;
}

absl::Status Client::Handle(const std::vector<std::string>& frames) {
  if (frames.size() != 2) {
    return absl::InvalidArgumentError(
        fmt::format("a message of {} frames came from {}; specd sends a topic and a payload",
                    frames.size(), options_.endpoint));
  }
  return frames[0] == kHeartbeatTopic ? HandleHeartbeat(frames[1]) : HandleText(frames[1]);
}

absl::Status Client::HandleText(std::string_view payload) {
  absl::StatusOr<TextEvent> event = DecodeTextEvent(payload);
  if (!event.ok()) return event.status();
  const uint64_t byte_offset = event->byte_offset;
  const absl::StatusOr<Novelty> novelty = tracker_.Take(&*event);
  if (!novelty.ok()) return novelty.status();
  if (*novelty == Novelty::kJoinedLate) {
    Say(fmt::format("\"{}\" had begun before; it is shown from byte {} on", event->request_id,
                    byte_offset));
  }
  if (*novelty != Novelty::kNothing) display_.Show(*event);
  return absl::OkStatus();
}

absl::Status Client::HandleHeartbeat(std::string_view payload) {
  const absl::StatusOr<Heartbeat> heartbeat = DecodeHeartbeat(payload);
  if (!heartbeat.ok()) return heartbeat.status();
  if (absl::Status status = tracker_.Take(*heartbeat); !status.ok()) return status;
  return subscribed_ ? absl::OkStatus() : AnnounceSubscription();
}

absl::Status Client::AnnounceSubscription() {
  subscribed_ = true;
  Say("subscribed");
  if (options_.ready_file.empty()) return absl::OkStatus();
  std::ofstream file(options_.ready_file);
  file << "subscribed\n";
  file.close();
  if (file) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("ready_file = {} cannot be written; name a file in a folder that exists",
                  options_.ready_file));
}

DisplayMode ModeFromFlags() {
  if (absl::GetFlag(FLAGS_raw)) return DisplayMode::kRaw;
  if (absl::GetFlag(FLAGS_json)) return DisplayMode::kJson;
  // https://no-color.org, and terminals that cannot move the cursor.
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool plain = (no_color != nullptr && *no_color != '\0') || terminal == nullptr ||
                     std::string_view(terminal) == "dumb";
  return isatty(STDOUT_FILENO) == 1 && !plain ? DisplayMode::kLive : DisplayMode::kColumns;
}

int Main(int argc, char** argv) {
  const std::vector<char*> arguments =
      ParseFlags(argc, argv, {.usage = kUsage, .source = "tools/toy_client/main.cc"});
  if (arguments.size() > 1) {
    return Fail(kExitUsage, fmt::format("unexpected argument {}; flags begin with --, see --help",
                                        arguments[1]));
  }
  if (absl::GetFlag(FLAGS_raw) && absl::GetFlag(FLAGS_json)) {
    return Fail(kExitUsage, "raw and json exclude each other; give one of them");
  }
  DisplayOptions display = {.mode = ModeFromFlags(),
                            .num_columns = absl::GetFlag(FLAGS_columns),
                            .width = static_cast<int>(absl::GetFlag(FLAGS_width))};
  if (display.num_columns < 1 || display.num_columns > 64) {
    return Fail(kExitUsage, fmt::format("columns = {} is outside 1 .. 64", display.num_columns));
  }
  if (display.width < 8 || display.width > 10000) {
    return Fail(kExitUsage, fmt::format("width = {} is outside 8 .. 10000", display.width));
  }
  const ClientOptions options = {
      .endpoint = absl::GetFlag(FLAGS_text),
      .stream = absl::GetFlag(FLAGS_stream),
      .num_streams = absl::GetFlag(FLAGS_streams),
      .timeout = std::chrono::milliseconds(absl::GetFlag(FLAGS_timeout_ms)),
      .ready_file = absl::GetFlag(FLAGS_ready_file)};
  if (options.num_streams > 0) {
    display.num_columns = std::min(display.num_columns, options.num_streams);
  }
  CatchSignals();
  const std::unique_ptr<Display> shown = Display::Make(display);
  return Client(options, shown.get()).Run();
}

}  // namespace
}  // namespace specd::toy

int main(int argc, char** argv) { return specd::toy::Main(argc, argv); }
