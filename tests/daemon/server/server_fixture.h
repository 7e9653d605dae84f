// ServerFixture runs a control server over one scripted session, in a thread. Engines attach to it,
// and tests check the C interface over a socket, round by round.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/server/control_server.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/session_fixture.h"
#include "tests/support/temporary_folder.h"

namespace specd::test {

struct EngineCloser {
  void operator()(specd_engine* engine) const { specd_close(engine); }
};
using EnginePtr = std::unique_ptr<specd_engine, EngineCloser>;

EnginePtr OpenEngine(const std::string& uri, const specd_options& options);
// An engine that has bound four target rows, as it must before it submits any.
EnginePtr OpenBoundEngine(const std::string& uri, const specd_options& options);

// The options with which an engine gets SessionFixture's limits.
specd_options ServerOptions();

// A control server over one scripted session, in a thread.
struct ServerFixture {
  // The arguments are the daemon's descriptions of its device and of MPS there.
  explicit ServerFixture(const std::string& device_uuid = "", const std::string& mps = "");
  ~ServerFixture();

  SessionFixture session;
  HelloRequest Hello() {
    std::lock_guard<std::mutex> lock(mutex);
    return hello;
  }

  std::mutex mutex;
  HelloRequest hello;  // from the last engine, guarded by mutex
  const TemporaryFolder folder;
  std::unique_ptr<ControlServer> server;
  UniqueFd wake;
  std::thread thread;
  std::string uri;
};

}  // namespace specd::test
