// specd-http serves the streams and the counters of a daemon over HTTP.

#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "daemon/base/command_line.h"
#include "daemon/base/version.h"
#include "daemon/config.h"
#include "daemon/reader/text_subscription.h"
#include "detokenizer/tokenizer_file.h"
#include "tools/http/abort_queue.h"
#include "tools/http/derender.h"
#include "tools/http/http_server.h"
#include "tools/http/listen_address.h"
#include "tools/http/say.h"
#include "tools/http/site.h"
#include "tools/http/text_hub.h"
#include "tools/terminal/terminal.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:9464",
          "a numeric address with a port, or unix:/PATH; other than loopback and a path need a "
          "token");
ABSL_FLAG(std::string, specd, "unix:/run/specd/specd.sock",
          "the daemon's socket; its endpoints and its counters file lie beside it");
ABSL_FLAG(std::string, text, "", "ZeroMQ endpoint of the daemon's texts");
ABSL_FLAG(std::string, text_ask, "", "ZeroMQ endpoint on which texts are given again");
ABSL_FLAG(std::string, ask, "", "ZeroMQ endpoint on which the daemon ends requests");
ABSL_FLAG(uint32_t, shards, 1,
          "so many specd-detok share the streams, 1 .. 64, on SOCKET.I.text and SOCKET.I.text_ask");
ABSL_FLAG(std::string, counters, "", "the daemon's counters file");
ABSL_FLAG(std::string, token, "",
          "bearer token that every request needs but those to /live, /ready and the page");
ABSL_FLAG(std::string, token_file, "", "file with the token, which other users do not see there");
ABSL_FLAG(std::vector<std::string>, hosts, {},
          "names by which clients reach this server, besides numeric addresses and localhost");
ABSL_FLAG(std::vector<std::string>, allow_uid, {},
          "numeric user ids that may connect to unix:/PATH besides this process's own");
ABSL_FLAG(std::string, model, "specd", "the model's name in OpenAI's framings");
ABSL_FLAG(std::string, tokenizer, "", "tokenizer file of the model, for POST /v1/detokenize");
ABSL_FLAG(int32_t, keep_ended, 60, "seconds that the text of an ended stream can be read");
ABSL_FLAG(uint32_t, memory_mib, 64, "MiB for the text of all streams, 1 .. 65536");
ABSL_FLAG(uint32_t, streams_max, 1024, "clients that read streams at a time, 1 .. 65536");
ABSL_FLAG(uint32_t, ping_ms, 15000, "a client with events hears something so often, 10 .. 3600000");

namespace specd::http {
namespace {

constexpr char kUsage[] =
    "serves the streams of a specd daemon as server-sent events, and its counters.\n\n"
    "  GET    /v1/streams/ID  the text of a request (?format=completions|chat|responses|specd)\n"
    "  DELETE /v1/streams/ID  ends the request by an abort\n"
    "  GET    /v1/streams     all streams\n"
    "  POST   /v1/detokenize  ids to text (with --tokenizer)\n"
    "  GET    /metrics, /live, /ready\n"
    "  GET    /               a page that shows all streams\n\n"
    "Examples:\n"
    "  specd-http --listen=127.0.0.1:9464\n"
    "  curl -N 'http://127.0.0.1:9464/v1/streams/req-1?format=chat&usage=1'\n"
    "  curl --fail http://127.0.0.1:9464/ready\n\n"
    "Exit status: 0; 1 if the address cannot be listened to; 2 for a wrong command line.";

int Fail(int code, std::string_view message) { return FailAs("specd-http", code, message); }

absl::Status Outside(std::string_view flag, uint64_t value, std::string_view range) {
  return absl::InvalidArgumentError(fmt::format("{} = {} is outside {}", flag, value, range));
}

struct Settings {
  DaemonConfig daemon;  // where the daemon's endpoints are
  std::vector<TextSubscription::Options> texts;
  std::string counters;
  std::string token;
  KeepLimits keep;
  HttpServer::Options server;
};

absl::Status ReadToken(const ListenAddress& listen, std::string* token) {
  const std::string path = absl::GetFlag(FLAGS_token_file);
  *token = absl::GetFlag(FLAGS_token);
  if (!path.empty()) {
    if (!token->empty()) {
      return absl::InvalidArgumentError("token and token_file exclude each other; give one");
    }
    std::ifstream file(path);
    std::getline(file, *token);
    *token = std::string(absl::StripAsciiWhitespace(*token));
    if (token->empty()) {
      return absl::InvalidArgumentError(
          fmt::format("token_file = {} cannot be read, or its first line is empty", path));
    }
  }
  if (!listen.is_private && token->empty()) {
    return absl::InvalidArgumentError(
        fmt::format("listen = {} can be reached from other machines, and then a token is needed; "
                    "give --token_file, or listen on 127.0.0.1 or unix:/PATH",
                    absl::GetFlag(FLAGS_listen)));
  }
  return absl::OkStatus();
}

absl::Status ReadEndpoints(Settings* out) {
  DaemonConfig* const config = &out->daemon;
  config->text_endpoint = absl::GetFlag(FLAGS_text);
  config->text_ask_endpoint = absl::GetFlag(FLAGS_text_ask);
  config->ask_endpoint = absl::GetFlag(FLAGS_ask);
  if (absl::Status status = ParseListen(absl::GetFlag(FLAGS_specd), &config->listen_path);
      !status.ok()) {
    return status;
  }
  const uint32_t shards = absl::GetFlag(FLAGS_shards);
  if (shards < 1 || shards > kTextShardsMax) return Outside("shards", shards, "1 .. 64");
  if (shards > 1 && !(config->text_endpoint.empty() && config->text_ask_endpoint.empty())) {
    return absl::InvalidArgumentError(
        "text and text_ask name the endpoints of one; with --shards leave them out");
  }
  for (uint32_t i = 0; i < shards; ++i) {
    DaemonConfig shard = *config;
    shard.text_shard = {.index = i, .count = shards};
    FillEndpoints(&shard);
    out->texts.push_back({.text = shard.text_endpoint, .text_ask = shard.text_ask_endpoint});
  }
  FillEndpoints(config);
  out->counters = absl::GetFlag(FLAGS_counters);
  if (out->counters.empty()) out->counters = config->listen_path + ".counters";
  return ValidateEndpoint("ask", config->ask_endpoint);
}

absl::Status ReadFlags(Settings* out) {
  HttpServer::Options* const server = &out->server;
  server->listen = absl::GetFlag(FLAGS_listen);
  const absl::StatusOr<ListenAddress> listen = ParseListenAddress(server->listen);
  if (!listen.ok()) return listen.status();
  absl::Status status = ReadToken(*listen, &out->token);
  if (status.ok()) status = ReadEndpoints(out);
  if (status.ok()) status = ParseUids(absl::GetFlag(FLAGS_allow_uid), &server->uids);
  if (!status.ok()) return status;
  const int32_t keep_ended = absl::GetFlag(FLAGS_keep_ended);
  const uint32_t memory_mib = absl::GetFlag(FLAGS_memory_mib);
  server->streams_max = absl::GetFlag(FLAGS_streams_max);
  server->ping_ms = absl::GetFlag(FLAGS_ping_ms);
  if (keep_ended < 0) return absl::InvalidArgumentError("keep_ended is negative; give seconds");
  if (memory_mib < 1 || memory_mib > 65536) return Outside("memory_mib", memory_mib, "1 .. 65536");
  if (server->streams_max < 1 || server->streams_max > 65536) {
    return Outside("streams_max", server->streams_max, "1 .. 65536");
  }
  if (server->ping_ms < 10 || server->ping_ms > 3'600'000) {
    return Outside("ping_ms", absl::GetFlag(FLAGS_ping_ms), "10 .. 3600000");
  }
  out->keep = {.bytes_max = size_t{memory_mib} << 20, .ended_ns = keep_ended * 1'000'000'000ll};
  return absl::OkStatus();
}

// Reads the texts of one endpoint until it is told to stop.
void ReadTexts(TextSubscription* texts, size_t reader, TextHub* hub,
               const std::atomic<bool>* stop) {
  std::vector<ReadEvent> events;
  std::string said;
  while (!*stop) {
    events.clear();
    const absl::Status status = texts->Step(&events);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    hub->Take(reader, events, texts->is_current(), std::chrono::nanoseconds(now).count());
    if (status.ok() || absl::IsCancelled(status)) continue;
    const std::string why(status.message());
    if (why != said) Say(why);
    said = why;
    absl::SleepFor(absl::Seconds(1));
  }
}

// A client with events has a descriptor for a long time.
void RaiseDescriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Serve(Settings settings, const Vocabulary* vocabulary) {
  absl::StatusOr<ZmqContext> context = ZmqContext::Make();
  if (!context.ok()) return Fail(1, std::string(context.status().message()));
  std::vector<TextSubscription> subscriptions;
  for (const TextSubscription::Options& options : settings.texts) {
    absl::StatusOr<TextSubscription> made = TextSubscription::Create(&*context, options);
    if (!made.ok()) return Fail(kExitBadCommandLine, std::string(made.status().message()));
    subscriptions.push_back(*std::move(made));
  }
  std::optional<HttpServer> server;
  TextHub hub(settings.keep, subscriptions.size(), [&server] { server->Wake(); });
  std::optional<Derender> derender;
  if (vocabulary != nullptr) derender.emplace(vocabulary);
  std::optional<AbortQueue> aborts;
  Site site({.counters = settings.counters,
             .token = settings.token,
             .hosts = absl::GetFlag(FLAGS_hosts),
             .model = absl::GetFlag(FLAGS_model),
             .hub = &hub,
             .abort = [&aborts](const std::string& id) { return aborts->Abort(id); },
             .derender = derender.has_value() ? &*derender : nullptr});
  settings.server.answer = [&site](const HttpRequest& request) { return site.Answer(request); };
  settings.server.look = [&site] { site.Look(); };
  absl::StatusOr<HttpServer> made = HttpServer::Create(std::move(settings.server));
  if (!made.ok()) return Fail(1, std::string(made.status().message()));
  server.emplace(*std::move(made));
  aborts.emplace(
      &*context,
      AbortQueue::Options{.ask = settings.daemon.ask_endpoint,
                          .running = [&hub](const std::string& id) { return hub.Running(id); },
                          .on_result = [&server] { server->Wake(); }});
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  for (size_t i = 0; i < subscriptions.size(); ++i) {
    readers.emplace_back([&, i] { ReadTexts(&subscriptions[i], i, &hub, &stop); });
  }
  Say(fmt::format("serves {} for {}", server->address(), absl::GetFlag(FLAGS_specd)));
  server->Run();
  stop = true;
  context->Shutdown();
  for (std::thread& reader : readers) reader.join();
  aborts.reset();
  return 0;
}

int Main(int argc, char** argv) {
  const std::vector<char*> words = ParseFlags(
      argc, argv,
      {.usage = kUsage, .source = "tools/http/", .version = std::string("specd-http ") + kVersion});
  if (words.size() > 1) {
    return Fail(kExitBadCommandLine,
                fmt::format("unexpected argument {}; flags begin with --", words[1]));
  }
  Settings settings;
  if (absl::Status status = ReadFlags(&settings); !status.ok()) {
    return Fail(kExitBadCommandLine, std::string(status.message()));
  }
  std::optional<Vocabulary> vocabulary;
  if (const std::string path = absl::GetFlag(FLAGS_tokenizer); !path.empty()) {
    absl::StatusOr<Vocabulary> opened = OpenTokenizer(path);
    if (!opened.ok()) return Fail(kExitBadCommandLine, std::string(opened.status().message()));
    vocabulary.emplace(*std::move(opened));
  }
  std::signal(SIGPIPE, SIG_IGN);  // of stderr, whose reader may go
  RaiseDescriptors();
  OpenSocketsToGroup();
  return Serve(std::move(settings), vocabulary.has_value() ? &*vocabulary : nullptr);
}

}  // namespace
}  // namespace specd::http

int main(int argc, char** argv) { return specd::http::Main(argc, argv); }
