// specd-detok runs the detokenizer as a process of its own. It attaches the daemon's TextWorker
// over ZeroMQ to a daemon that runs with --detokenizer=process.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "daemon/base/command_line.h"
#include "daemon/base/heap.h"
#include "daemon/base/logging.h"
#include "daemon/base/stop_signals.h"
#include "daemon/base/version.h"
#include "daemon/config.h"
#include "daemon/models.h"
#include "daemon/profile_flag.h"
#include "daemon/text/text_worker.h"

ABSL_FLAG(std::string, specd, "unix:/run/specd/specd.sock",
          "the daemon's socket; the endpoints below default to those beside it");
ABSL_FLAG(std::string, tokenizer, "", "tokenizer file of the model, the same as the daemon's");
ABSL_FLAG(specd::ProfileFlag, profile, {},
          "NAME=FILE: a further model, as the daemon has it; repeatable, or comma separated");
ABSL_FLAG(std::string, tokens, "", "ZeroMQ endpoint of the daemon's token events");
ABSL_FLAG(std::string, aborts, "", "ZeroMQ endpoint on which the daemon takes stop strings found");
ABSL_FLAG(std::string, text, "", "ZeroMQ endpoint to publish text on");
ABSL_FLAG(std::string, ask, "", "ZeroMQ endpoint on which the daemon gives token events again");
ABSL_FLAG(std::string, text_ask, "", "ZeroMQ endpoint to give text again on");
ABSL_FLAG(
    std::string, shard, "0/1",
    "I/N: this is detokenizer I of N, 0 .. N - 1, which share the streams by the hash of their "
    "request ids; --text and --text_ask default to SOCKET.I.text and SOCKET.I.text_ask");
ABSL_FLAG(int32_t, keep_ended, 60, "seconds that the text of an ended stream can be asked for");
ABSL_FLAG(std::vector<std::string>, allow_uid, {},
          "numeric user ids that may subscribe to the text besides this process's own, comma "
          "separated; a tcp:// endpoint cannot tell users apart");
ABSL_FLAG(std::string, log_level, "info",
          "trace, debug, info, warn, error or off; for single loggers as in info,attach=debug");
ABSL_FLAG(std::string, log_format, "text", "text, or json: one object a line");

namespace {

constexpr char kUsage[] =
    "turns specd's token events into text, finds stop strings, and reports them.\n\n"
    "Example:\n"
    "  specd --listen=unix:/run/specd/specd.sock --tokenizer=tokenizer.json --detokenizer=process\n"
    "  specd-detok --specd=unix:/run/specd/specd.sock --tokenizer=tokenizer.json";

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "specd-detok: %s\n", std::string(status.message()).c_str());
  return 2;
}

absl::Status ReadFlags(specd::DaemonConfig* config) {
  config->tokens_endpoint = absl::GetFlag(FLAGS_tokens);
  config->aborts_endpoint = absl::GetFlag(FLAGS_aborts);
  config->text_endpoint = absl::GetFlag(FLAGS_text);
  config->ask_endpoint = absl::GetFlag(FLAGS_ask);
  config->text_ask_endpoint = absl::GetFlag(FLAGS_text_ask);
  config->model.tokenizer_path = absl::GetFlag(FLAGS_tokenizer);
  absl::Status status = specd::ReadProfiles(absl::GetFlag(FLAGS_profile), &config->profiles);
  if (status.ok() && config->model.tokenizer_path.empty() && config->profiles.empty()) {
    status = absl::InvalidArgumentError(
        "--tokenizer is missing, and --profile too: which text do the ids mean?");
  }
  if (status.ok()) {
    status = specd::ParseUids(absl::GetFlag(FLAGS_allow_uid), &config->allowed_uids);
  }
  if (status.ok()) status = specd::ParseShard(absl::GetFlag(FLAGS_shard), &config->text_shard);
  constexpr int32_t kGrace = 30;  // the daemon waits for a text side, and has the flag
  if (status.ok()) status = specd::SetPatience(absl::GetFlag(FLAGS_keep_ended), kGrace, config);
  if (status.ok()) status = specd::ParseListen(absl::GetFlag(FLAGS_specd), &config->listen_path);
  if (status.ok()) {
    status = specd::SetUpLogging(
        {.levels = absl::GetFlag(FLAGS_log_level), .format = absl::GetFlag(FLAGS_log_format)});
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  specd::ProtectProcess();
  specd::KeepFreedMemory();
  const std::vector<char*> positional =
      specd::ParseFlags(argc, argv,
                        {.usage = kUsage,
                         .source = "daemon/detok_main.cc",
                         .version = std::string("specd-detok ") + specd::kVersion});
  if (positional.size() > 1) {
    std::fprintf(stderr, "specd-detok: unexpected argument %s; see --help\n", positional[1]);
    return 2;
  }
  const sigset_t signals = specd::StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  specd::DaemonConfig config;
  if (absl::Status status = ReadFlags(&config); !status.ok()) return Fail(status);
  specd::FillEndpoints(&config);
  specd::ModelProfiles models;
  if (absl::Status status = specd::LoadModels(config, &models); !status.ok()) return Fail(status);
  absl::StatusOr<specd::ZmqContext> context = specd::ZmqContext::Make();
  if (!context.ok()) return Fail(context.status());

  specd::OpenSocketsToGroup();
  absl::StatusOr<std::unique_ptr<specd::TextWorker>> worker =
      specd::TextWorker::Create(specd::TextWorkerFor(config, models, &*context));
  if (!worker.ok()) return Fail(worker.status());
  specd::Log("detok").info("token events from {}, text on {}", config.tokens_endpoint,
                           config.text_endpoint);
  specd::WarnOfOpenEndpoint("text", config.text_endpoint);
  specd::WarnOfOpenEndpoint("text_ask", config.text_ask_endpoint);
  std::atomic<bool> asked_to_stop{false};
  std::thread thread([&] {
    (*worker)->Run();
    // If the worker ends by itself, the process must end too.
    if (!asked_to_stop) kill(getpid(), SIGTERM);
  });
  int signal = 0;
  sigwait(&signals, &signal);
  const bool ended_by_itself = (*worker)->closed();
  asked_to_stop = true;
  (*worker)->Stop();
  thread.join();
  specd::StopLogging();
  return ended_by_itself ? 1 : 0;
}
