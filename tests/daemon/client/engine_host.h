// EngineHost runs a daemon without its text side in this process, for tests of attached engines.
//
// It has a control server and a verify loop over real sessions, each in a thread. Tests use it to
// check that attached and embedded engines get the same answers.
#pragma once

#include <doctest/doctest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "daemon/base/logging.h"
#include "daemon/server/control_server.h"
#include "daemon/server/verify_loop.h"
#include "tests/daemon/client/embedded_engine.h"

namespace specd::test {

struct EngineHostOptions {
  std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make_backend = [] {
    return MakeBackend("cpu");
  };
  DeviceImporter* importer = nullptr;
};

class EngineHost {
 public:
  explicit EngineHost(const EngineHostOptions& host = {})
      : loop_(&sessions_, {0, [](std::string_view) {}, [](Session&, ChannelFault) {}}) {
    REQUIRE(SetUpLogging({.levels = "off"}).ok());
    std::string name = (std::filesystem::temp_directory_path() / "specd-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    ControlServer::Options options;
    options.path = (folder_ / "specd.sock").string();
    options.max_sessions = 4;
    options.clock = Clock::Real();
    options.open_session =
        [this, host](const HelloRequest& request) -> absl::StatusOr<std::shared_ptr<Session>> {
      auto backend = host.make_backend();
      if (!backend.ok()) return backend.status();
      SessionOptions session;
      session.identity = {++num_sessions_, 77};
      session.limits = request.limits;
      session.profile = &profile_;
      session.clock = Clock::Real();
      session.names = &names_;
      session.importer = host.importer;
      return Session::Create(session, *std::move(backend));
    };
    options.serve = [this](const std::shared_ptr<Session>& session) {
      sessions_.Add(session);
      loop_.Wake();
    };
    auto created = ControlServer::Create(options);
    REQUIRE(created.ok());
    server_ = *std::move(created);
    wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    control_ = std::thread([this] { server_->Run(wake_.get()); });
    verify_ = std::thread([this] { loop_.Run(); });
    uri = "unix:" + options.path;
  }
  ~EngineHost() {
    eventfd_write(wake_.get(), 1);
    control_.join();
    loop_.Stop();
    verify_.join();
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string uri;

 private:
  ModelProfile profile_;
  SharedNames names_;
  SessionList sessions_;
  VerifyLoop loop_;
  uint64_t num_sessions_ = 0;  // owned by the control thread
  std::filesystem::path folder_;
  std::unique_ptr<ControlServer> server_;
  UniqueFd wake_;
  std::thread control_;
  std::thread verify_;
};

// Runs the test embedded and over a socket.
inline void ForBothModes(const std::function<void(EmbeddedEngine&)>& test) {
  {
    INFO("embedded");
    EmbeddedEngine engine;
    test(engine);
  }
  INFO("attached");
  const EngineHost host;
  EmbeddedEngine engine(host.uri);
  test(engine);
}

}  // namespace specd::test
