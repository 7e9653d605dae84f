// DaemonConfig holds everything that a daemon is told at start.
//
// The main program fills it from flags, and a test fills it by hand. The functions here turn the
// texts of flags into its fields, and refuse texts that they cannot turn. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "daemon/recorder/trace_options.h"
#include "daemon/session/model_profile.h"
#include "daemon/text/kept_table.h"
#include "ipc/base/available_memory.h"
#include "ipc/base/limits.h"
#include "ipc/events/text_shard.h"
#include "ipc/sockets/broadcaster.h"
#include "ipc/sockets/pull_socket.h"
#include "ipc/sockets/reply_socket.h"
#include "speculative/grammar/base/budget.h"

namespace specd {

enum class DetokenizerMode {
  kThread,   // a thread of the daemon (default)
  kProcess,  // specd-detok, attached over ZeroMQ
  kOff,      // ids only
};

struct NamedProfile {
  std::string name = {};
  ModelProfileOptions model = {};
};

// Each may take the memory of a whole compile. While one runs, the other engines' have a turn too.
inline constexpr size_t kLongCompiles = 2;

// The bytes that the daemon takes for its engines; 0: not bounded.
struct MemoryBounds {
  uint64_t sessions_bytes = 0;     // of all sessions together
  uint64_t session_bytes = 0;      // of each
  uint64_t constraints_bytes = 0;  // of all constraints, beside the sessions
  // Of what waits for the subscribers of one endpoint, beside the sessions; there are two
  // endpoints.
  uint64_t endpoint_bytes = BroadcastOptions{}.queued_bytes_max;
  // Of the ids, and again of the text, that subscribers may ask for.
  uint64_t kept_bytes = KeepLimits{}.bytes_max;
};

// What each engine may have beside its memory. An engine asks for sequences and rounds when it
// attaches, and never has more than the protocol allows (SessionLimits).
struct SessionBounds {
  uint32_t sequences = SessionLimits::kSequencesMax;  // open at once
  uint32_t rounds = SessionLimits::kRingDepthMax;     // in flight
  uint32_t openings_per_second = 0;                   // 0: not bounded
};

struct DaemonConfig {
  std::string listen_path = {};  // path of the unix socket
  std::string device = "cpu";
  std::vector<std::string> backend_plugins = {};  // paths of shared objects (docs/BACKENDS.md)
  ModelProfileOptions model = {};                 // of engines that name no profile
  std::vector<NamedProfile> profiles = {};
  DetokenizerMode detokenizer = DetokenizerMode::kThread;
  std::string tokens_endpoint = {};    // token events, for observers and specd-detok
  std::string text_endpoint = {};      // text events, for subscribers
  std::string aborts_endpoint = {};    // specd-detok reports stop strings here
  std::string ask_endpoint = {};       // token events are given again here
  std::string text_ask_endpoint = {};  // text events are given again here
  TextShard text_shard = {};           // of specd-detok
  std::string counters_path = {};      // of the counters file; "": none
  int64_t keep_ended_ns = KeepLimits{}.ended_ns;
  int64_t text_grace_ns = 30'000'000'000;
  // Besides the daemon's own user, on the socket of engines and on all endpoints.
  std::vector<uint32_t> allowed_uids = {};
  int64_t canary_ns = 10'000'000'000;  // between two rounds of the canary; 0: none
  int64_t spin_ns = 0;                 // the verify thread spins this long before it sleeps
  uint32_t max_sessions = 16;
  int32_t threads = 1;  // of one round
  bool allow_lossy = false;
  MemoryBounds memory = {};
  SessionBounds session = {};
  grammar::BudgetLimits compile_limits = grammar::CompileLimits();  // of one constraint
  TraceOptions trace = {};
};

// Turns "unix:/run/specd/specd.sock" into "/run/specd/specd.sock".
absl::Status ParseListen(const std::string& listen, std::string* path);
// Says what is wrong with the path where a daemon is to make its socket, and what to do.
absl::Status CheckListenPath(const std::string& path);

// Accepts "thread", "process" and "off".
absl::Status ParseDetokenizerMode(const std::string& text, DetokenizerMode* mode);

// Turns "2" into 2. LoadModelProfile checks the range.
absl::Status ParseEosIds(const std::vector<std::string>& texts, std::vector<TokenId>* ids);

// Checks both numbers. With spin_us = -1 the number of usable CPUs decides: on a machine without a
// spare CPU, a spinning daemon takes time from the engine that it waits for.
absl::Status SetSpin(int32_t spin_us, int32_t max_sessions, DaemonConfig* config);

// With 0 the number of usable CPUs decides.
absl::Status SetThreads(int32_t threads, DaemonConfig* config);

// The flags of the same names; 0 leaves the number to specd.
struct MemoryFlags {
  int64_t memory_mib = 0;
  int64_t session_memory_mib = 0;
  int64_t compile_mib = 0;
};

// Divides the memory for engines. A quarter is for constraints, up to their own bound, a sixteenth
// for each of the two long compiles that run at a time, up to compile_mib or 256 MiB, and an eighth
// for what waits for subscribers, up to 512 MiB, and a sixteenth for what they may ask for again,
// up to 128 MiB; the rest is for sessions. With memory_mib = 0 all of it is three quarters of what
// is available. With session_memory_mib = 0 a session may have half of the sessions' bytes.
absl::Status SetMemory(const MemoryFlags& flags, const AvailableMemory& available,
                       DaemonConfig* config);

// The flags of the same names, after session_.
struct SessionFlags {
  int32_t sequences = 0;
  int32_t rounds = 0;
  int32_t openings_per_second = 0;
};

// Checks each number.
absl::Status SetSessionBounds(const SessionFlags& flags, DaemonConfig* config);

// Refuses an engine that asks for more than it may have. The error names the flag.
absl::Status CheckSessionBounds(const SessionBounds& bounds, const SessionLimits& asked);

// Turns "1/4" into the second of four shards.
absl::Status ParseShard(const std::string& text, TextShard* shard);

// Checks both numbers: how long ended streams are kept, and how long streams with stop strings wait
// for another text side.
absl::Status SetPatience(int32_t keep_ended, int32_t text_grace, DaemonConfig* config);

// The seconds between two rounds of the canary; 0: none.
absl::Status SetCanary(int32_t seconds, DaemonConfig* config);

// The path of the counters file if none was given.
inline constexpr char kCountersBeside[] = "beside";

// Puts endpoints that were not given beside the socket: NAME.tokens, NAME.text, NAME.aborts,
// NAME.ask, NAME.text_ask. A counters_path that is kCountersBeside becomes NAME.counters.
void FillEndpoints(DaemonConfig* config);

// An endpoint must be one that can be bound, and that peers can use as it is written. REQUIRES:
// FillEndpoints.
absl::Status CheckEndpoints(const DaemonConfig& config);

// Turns "1000" into 1000.
absl::Status ParseUids(const std::vector<std::string>& texts, std::vector<uint32_t>* uids);

// Returns the bounds of the subscribers of token events or text. Those who go beyond them are
// logged. `queued_bytes` is for all of them together.
BroadcastOptions SubscribersFor(const char* endpoint, const std::vector<uint32_t>& allowed_uids,
                                uint64_t queued_bytes);

// Returns the bounds of those who send aborts.
PullOptions TextSidesFor(const char* endpoint, const std::vector<uint32_t>& allowed_uids);

// Returns the bounds of readers that ask for events again, and of what they may ask for.
ReplyOptions AskersFor(const char* endpoint, const std::vector<uint32_t>& allowed_uids);
KeepLimits KeptFor(const DaemonConfig& config);

// Logs a warning if everybody who reaches the endpoint may use it.
void WarnOfOpenEndpoint(std::string_view flag, const std::string& endpoint);

// Opens the sockets of the whole process to its user and its group only, as the control socket is.
// Call it before any socket is made.
void OpenSocketsToGroup();

}  // namespace specd
