#include "tests/daemon/client/engine_host.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include <string_view>
#include <utility>

#include "daemon/base/logging.h"

namespace specd::test {

EngineHost::EngineHost(const EngineHostOptions& host)
    : loop_(&sessions_, {0, [](std::string_view) {}, [](Session&, ChannelFault) {}}) {
  REQUIRE(SetUpLogging({.levels = "off"}).ok());
  folder_ = host.folder;
  if (folder_.empty()) {
    std::string name = (std::filesystem::temp_directory_path() / "specd-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    owns_folder_ = true;
  }
  ControlServer::Options options;
  options.path = (folder_ / "specd.sock").string();
  options.max_sessions = 4;
  options.clock = Clock::Real();
  options.open_session = [this, host](const HelloRequest& request,
                                      uint32_t) -> absl::StatusOr<std::shared_ptr<Session>> {
    auto backend = host.make_backend();
    if (!backend.ok()) return backend.status();
    SessionOptions session;
    session.identity = {++num_sessions_, host.epoch};
    session.limits = request.limits;
    session.origin = {.resumes = request.resumes,
                      .owner = request.owner,
                      .generation = request.generation,
                      .join_token = ParseJoinToken(request.join_token)};
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

EngineHost::~EngineHost() {
  eventfd_write(wake_.get(), 1);
  control_.join();
  SessionList::Snapshot sessions;
  uint64_t version = 0;
  sessions_.Refresh(&version, &sessions);
  for (const auto& session : sessions) session->Drain();
  loop_.Stop();
  verify_.join();
  server_.reset();
  if (owns_folder_) std::filesystem::remove_all(folder_);
}

void ForBothModes(const std::function<void(EmbeddedEngine&)>& test) {
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
