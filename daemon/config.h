// Everything a daemon is told at start: one struct, filled from flags by main.cc or by a test, and
// the functions that turn flag texts into it and refuse what they cannot. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/session/model_profile.h"

namespace specd {

enum class DetokenizerMode {
  kThread,   // a thread of the daemon (default)
  kProcess,  // specd-detok, attached over ZeroMQ
  kOff,      // ids only
};

struct DaemonConfig {
  std::string listen_path;  // of the unix socket
  std::string device = "cpu";
  ModelProfileOptions model;
  DetokenizerMode detokenizer = DetokenizerMode::kThread;
  std::string tokens_endpoint;         // token events, for observers and specd-detok
  std::string text_endpoint;           // text events, for subscribers
  std::string aborts_endpoint;         // stop strings found by specd-detok come back here
  std::vector<uint32_t> allowed_uids;  // besides the daemon's own
  int64_t spin_ns = 0;                 // how long the verify thread spins before it sleeps
  uint32_t max_sessions = 16;
  int32_t threads = 1;  // for one round
};

// "unix:/run/specd/specd.sock" -> "/run/specd/specd.sock".
absl::Status ParseListen(const std::string& listen, std::string* path);

// "thread", "process" or "off".
absl::Status ParseDetokenizerMode(const std::string& text, DetokenizerMode* mode);

// Checks both numbers; spin_us -1 chooses by the number of usable CPUs: a spinning daemon on a
// machine without a spare one takes the time of the very engine it waits for.
absl::Status SetSpin(int32_t spin_us, int32_t max_sessions, DaemonConfig* config);

// 0 chooses by the number of usable CPUs.
absl::Status SetThreads(int32_t threads, DaemonConfig* config);

// Endpoints that were not given lie beside the socket: NAME.tokens, NAME.text, NAME.aborts.
void FillEndpoints(DaemonConfig* config);

// Every endpoint must be one that can be bound and told to others as it is.
absl::Status CheckEndpoints(const DaemonConfig& config);

// Sockets are open to the user and the group of the process, as the control socket is, and to
// nobody else. Call before any is made; for the whole process.
void OpenSocketsToGroup();

}  // namespace specd
