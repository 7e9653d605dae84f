// specd, the daemon: turns flags into a DaemonConfig and runs RunDaemon until a stop signal.

#include <malloc.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "daemon/base/build_identity.h"
#include "daemon/base/command_line.h"
#include "daemon/base/logging.h"
#include "daemon/base/service_manager.h"
#include "daemon/base/version.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/profile_flag.h"
#include "daemon/session/compile_limits.h"
#include "speculative/grammar/base/budget.h"

ABSL_FLAG(std::string, listen, "unix:/run/specd/specd.sock", "unix socket that engines attach to");
ABSL_FLAG(std::string, device, "cpu",
          "where rounds run: cpu, cuda, cuda:1, or a backend of --backend_plugin");
ABSL_FLAG(std::vector<std::string>, backend_plugin, {},
          "paths of shared objects with further backends, see docs/BACKENDS.md");
ABSL_FLAG(
    std::string, tokenizer, "",
    "file with the model's tokenizer, such as its tokenizer.json, tokenizer.model or GGUF file "
    "(docs/DAEMON.md, \"Text\"); without it the daemon serves ids only");
ABSL_FLAG(std::vector<std::string>, eos_tokens, {},
          "contents of the tokens that end a reply, comma separated, such as <|endoftext|>");
ABSL_FLAG(std::vector<std::string>, eos_token_ids, {},
          "the ids of such tokens, comma separated, such as 2,7; these need no tokenizer");
ABSL_FLAG(
    std::string, reasoning_start, "",
    "text that begins the model's reasoning, such as <think>; empty: every output begins with "
    "reasoning, if there is a --reasoning_end");
ABSL_FLAG(std::string, reasoning_end, "",
          "text that ends the model's reasoning, such as </think>: constraints begin after it");
ABSL_FLAG(int32_t, vocab_size, 0,
          "columns of a logits row; 0 accepts what fits the tokenizer, padding included");
ABSL_FLAG(specd::ProfileFlag, profile, {},
          "NAME=FILE: a further model by its name, with a JSON file of its facts; repeatable, or "
          "comma separated");
ABSL_FLAG(std::string, detokenizer, "thread",
          "thread (in the daemon), process (specd-detok attaches) or off (ids only)");
ABSL_FLAG(std::string, tokens, "", "ZeroMQ endpoint of token events; default: beside the socket");
ABSL_FLAG(std::string, text, "", "ZeroMQ endpoint of text events; default: beside the socket");
ABSL_FLAG(std::string, aborts, "",
          "ZeroMQ endpoint on which specd-detok reports stop strings; default: beside the socket");
ABSL_FLAG(std::string, ask, "",
          "ZeroMQ endpoint that gives token events again and aborts streams; default: beside the "
          "socket");
ABSL_FLAG(std::string, text_ask, "",
          "ZeroMQ endpoint that gives text again; default: beside the socket");
ABSL_FLAG(std::string, counters, specd::kCountersBeside,
          "file of the daemon's counters, which specctl reads; beside: beside the socket, as "
          "/run/specd/specd.sock.counters; empty: none");
ABSL_FLAG(int32_t, canary, 10,
          "seconds between two canary rounds, which ask an idle device for a known answer; /ready "
          "of specd-http is 503 while it is wrong; 0: none");
ABSL_FLAG(int32_t, keep_ended, 60,
          "seconds that the ids and the text of an ended stream can be asked for");
ABSL_FLAG(int32_t, text_grace, 30,
          "seconds that streams with stop strings wait for another specd-detok if theirs is gone, "
          "3 .. 86400");
ABSL_FLAG(std::vector<std::string>, allow_uid, {},
          "numeric user ids that may attach, subscribe, ask, abort requests by name and report "
          "stop strings besides the daemon's own, comma separated; a tcp:// endpoint cannot tell "
          "users apart. One user's "
          "engines then leave a quarter of --max_sessions and of --memory_mib to the others");
ABSL_FLAG(
    int32_t, spin_us, -1,
    "how long the verify thread spins for the next round before it sleeps; -1: 1000 with more "
    "than two usable CPUs, else 0");
ABSL_FLAG(int32_t, threads, 0,
          "threads of one round on the CPU; 0: as many as usable CPUs, at most 16");
ABSL_FLAG(bool, allow_lossy, false,
          "sequences may name a method that changes the distribution of the output: typical, "
          "relaxed, threshold, synthetic; without it they are refused");
ABSL_FLAG(int32_t, max_sessions, 16, "engines attached at once");
ABSL_FLAG(
    int64_t, memory_mib, 0,
    "memory that all engines and subscribers together may take of the daemon, in MiB; 0: three "
    "quarters of what the machine and the control group have left at the start");
ABSL_FLAG(int64_t, session_memory_mib, 0,
          "memory that one engine may take (its segment, sequences and registered rows), in MiB; "
          "0: half of what --memory_mib leaves beside constraints, compiles and subscribers");
ABSL_FLAG(int32_t, session_sequences, specd::SessionLimits::kSequencesMax,
          "sequences that one engine may have open, 1 .. 65536; an engine whose max_sequences is "
          "larger is refused");
ABSL_FLAG(int32_t, session_rounds, specd::SessionLimits::kRingDepthMax,
          "rounds that one engine may have in flight, 1 .. 64; an engine whose ring_depth is "
          "larger is refused");
ABSL_FLAG(int32_t, session_openings_per_second, 0,
          "sequences that one engine may open in a second, forks and samples included, 0 .. "
          "1000000; what comes sooner is refused, and may be asked for again; 0: not bounded");
ABSL_FLAG(int32_t, compile_ms, specd::grammar::kCompileMsDefault,
          "CPU time that the compile of one constraint may take, 1 .. 60000 ms; a constraint that "
          "takes more is refused");
ABSL_FLAG(
    int32_t, compile_mib, 0,
    "memory that the compile of one constraint may take, 16 .. 4096 MiB, at most a sixteenth "
    "of --memory_mib; a constraint that takes more is refused; 0: that sixteenth, at most 256");
ABSL_FLAG(std::string, trace, "", "directory for a trace of all rounds; default: no trace");
ABSL_FLAG(std::string, trace_options, "",
          "what the trace holds, such as level=rows,every=100,flight=64: level (rounds, hashes, "
          "rows), every, places (read, all), request, flight, triggers, file_mib, total_mib, "
          "buffer_mib, check; see docs/TRACES.md");
ABSL_FLAG(std::string, log_level, "info",
          "trace, debug, info, warn, error or off; for single loggers as in info,attach=debug");
ABSL_FLAG(std::string, log_format, "text", "text, or json: one object a line");

namespace {

constexpr char kUsage[] =
    "verifies speculative drafts and samples tokens for inference engines.\n\n"
    "Examples:\n"
    "  specd --listen=unix:/run/specd/specd.sock --tokenizer=tokenizer.json \\\n"
    "        --eos_tokens='<|endoftext|>'\n"
    "  specd --listen=unix:/run/specd/specd.sock --detokenizer=off    # ids only\n"
    "  specd --profile=qwen3=/etc/specd/qwen3.json --profile=llama=/etc/specd/llama.json\n"
    "  specd --flagfile=/etc/specd/specd.flags\n\n"
    "Engines attach with specd_open(\"unix:/run/specd/specd.sock\", ...) of <specd/specd.h>;\n"
    "subscribers connect to the text endpoint (see docs/PROTOCOL.md).";

absl::Status ReadFlags(specd::DaemonConfig* config) {
  if (absl::Status status = specd::ParseListen(absl::GetFlag(FLAGS_listen), &config->listen_path);
      !status.ok()) {
    return status;
  }
  if (absl::Status status =
          specd::ParseDetokenizerMode(absl::GetFlag(FLAGS_detokenizer), &config->detokenizer);
      !status.ok()) {
    return status;
  }
  config->device = absl::GetFlag(FLAGS_device);
  config->backend_plugins = absl::GetFlag(FLAGS_backend_plugin);
  config->model = {
      .tokenizer_path = absl::GetFlag(FLAGS_tokenizer),
      .eos_tokens = absl::GetFlag(FLAGS_eos_tokens),
      .eos_token_ids = {},
      .vocab_size = absl::GetFlag(FLAGS_vocab_size),
      .reasoning = {absl::GetFlag(FLAGS_reasoning_start), absl::GetFlag(FLAGS_reasoning_end)}};
  if (absl::Status status =
          specd::ParseEosIds(absl::GetFlag(FLAGS_eos_token_ids), &config->model.eos_token_ids);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = specd::ReadProfiles(absl::GetFlag(FLAGS_profile), &config->profiles);
      !status.ok()) {
    return status;
  }
  config->tokens_endpoint = absl::GetFlag(FLAGS_tokens);
  config->text_endpoint = absl::GetFlag(FLAGS_text);
  config->aborts_endpoint = absl::GetFlag(FLAGS_aborts);
  config->ask_endpoint = absl::GetFlag(FLAGS_ask);
  config->text_ask_endpoint = absl::GetFlag(FLAGS_text_ask);
  config->counters_path = absl::GetFlag(FLAGS_counters);
  if (absl::Status status = specd::SetPatience(absl::GetFlag(FLAGS_keep_ended),
                                               absl::GetFlag(FLAGS_text_grace), config);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = specd::ParseUids(absl::GetFlag(FLAGS_allow_uid), &config->allowed_uids);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = specd::SetCanary(absl::GetFlag(FLAGS_canary), config); !status.ok()) {
    return status;
  }
  config->allow_lossy = absl::GetFlag(FLAGS_allow_lossy);
  absl::StatusOr<specd::TraceOptions> trace =
      specd::ParseTraceOptions(absl::GetFlag(FLAGS_trace), absl::GetFlag(FLAGS_trace_options));
  if (!trace.ok()) return trace.status();
  config->trace = *std::move(trace);
  if (absl::Status status = specd::SetThreads(absl::GetFlag(FLAGS_threads), config); !status.ok()) {
    return status;
  }
  const specd::MemoryFlags memory = {
      .memory_mib = absl::GetFlag(FLAGS_memory_mib),
      .session_memory_mib = absl::GetFlag(FLAGS_session_memory_mib),
      .compile_mib = absl::GetFlag(FLAGS_compile_mib),
  };
  if (absl::Status status = specd::SetMemory(memory, specd::FindAvailableMemory(), config);
      !status.ok()) {
    return status;
  }
  const specd::SessionFlags session = {
      .sequences = absl::GetFlag(FLAGS_session_sequences),
      .rounds = absl::GetFlag(FLAGS_session_rounds),
      .openings_per_second = absl::GetFlag(FLAGS_session_openings_per_second),
  };
  if (absl::Status status = specd::SetSessionBounds(session, config); !status.ok()) return status;
  if (absl::Status status =
          specd::SetCompileMs(absl::GetFlag(FLAGS_compile_ms), &config->compile_limits);
      !status.ok()) {
    return status;
  }
  return specd::SetSpin(absl::GetFlag(FLAGS_spin_us), absl::GetFlag(FLAGS_max_sessions), config);
}

// Engines bring descriptors, up to 250 in one message. A descriptor beyond the process's limit is
// lost with its message. The soft limit is low only for the sake of select(), which nothing here
// uses.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

// A thread has a part of the heap, and threads share parts when there are more threads than parts.
// A short opening would then wait for a long compile that was put aside while it held the part's
// lock. Openings have two threads at most (deep_stack.h), and the other threads are fewer.
void GiveEachThreadItsHeap() {
  constexpr int kHeapParts = 256;
  (void)mallopt(M_ARENA_MAX, kHeapParts);
}

}  // namespace

int main(int argc, char** argv) {
  specd::ProtectProcess();
  const std::vector<char*> positional = specd::ParseFlags(
      argc, argv,
      {.usage = kUsage,
       .source = "daemon/main.cc",
       .version = std::string("specd ") + specd::kVersion + " (" + specd::kBuildIdentity + ")"});
  if (positional.size() > 1) {
    std::fprintf(stderr, "specd: unexpected argument %s; flags begin with --, see --help\n",
                 positional[1]);
    return 2;
  }
  specd::DaemonConfig config;
  absl::Status status = ReadFlags(&config);
  specd::UniqueFd listening;
  if (status.ok()) {
    absl::StatusOr<specd::UniqueFd> taken = specd::TakeListeningSocket(config.listen_path);
    status = taken.status();
    if (taken.ok()) listening = *std::move(taken);
  }
  if (status.ok()) {
    status = specd::SetUpLogging(
        {.levels = absl::GetFlag(FLAGS_log_level), .format = absl::GetFlag(FLAGS_log_format)});
  }
  if (status.ok()) status = specd::CheckListenPath(config.listen_path);
  specd::FillEndpoints(&config);
  if (status.ok()) status = specd::CheckEndpoints(config);
  if (!status.ok()) {
    std::fprintf(stderr, "specd: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  RaiseDescriptorLimit();
  GiveEachThreadItsHeap();
  const int code = specd::RunDaemon(config, std::move(listening));
  specd::StopLogging();
  return code;
}
