// EngineHost runs a daemon without its text side in this process, for tests of attached engines.
//
// It has a control server and a verify loop over real sessions, each in a thread. Tests use it to
// check that attached and embedded engines get the same answers.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "daemon/server/control_server.h"
#include "daemon/server/verify_loop.h"
#include "tests/daemon/client/embedded_engine.h"

namespace specd::test {

struct EngineHostOptions {
  std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make_backend = [] {
    return MakeBackend("cpu");
  };
  DeviceImporter* importer = nullptr;
  // Where daemons follow one another; empty: a folder of this daemon alone.
  std::filesystem::path folder = {};
  uint64_t epoch = 77;
};

class EngineHost {
 public:
  explicit EngineHost(const EngineHostOptions& host = {});
  ~EngineHost();

  std::string uri;

 private:
  ModelProfile profile_;
  SharedNames names_;
  SessionList sessions_;
  VerifyLoop loop_;
  uint64_t num_sessions_ = 0;  // owned by the control thread
  std::filesystem::path folder_;
  bool owns_folder_ = false;
  std::unique_ptr<ControlServer> server_;
  UniqueFd wake_;
  std::thread control_;
  std::thread verify_;
};

// Runs the test embedded and over a socket.
void ForBothModes(const std::function<void(EmbeddedEngine&)>& test);

}  // namespace specd::test
