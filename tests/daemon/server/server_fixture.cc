#include "tests/daemon/server/server_fixture.h"

#include <doctest/doctest.h>
#include <sys/eventfd.h>

#include <utility>

#include "daemon/base/logging.h"

namespace specd::test {

EnginePtr OpenEngine(const std::string& uri, const specd_options& options) {
  specd_engine* engine = nullptr;
  const int code = specd_open(uri.c_str(), &options, &engine);
  INFO(specd_last_error());
  REQUIRE(code == SPECD_OK);
  return EnginePtr(engine);
}

EnginePtr OpenBoundEngine(const std::string& uri, const specd_options& options) {
  EnginePtr engine = OpenEngine(uri, options);
  specd_region region;
  REQUIRE(specd_alloc(engine.get(), 4096, &region) == SPECD_OK);
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = 4;
  const int code = specd_bind(engine.get(), SPECD_TARGET_ROWS, &tensor);
  INFO(specd_last_error());
  REQUIRE(code == SPECD_OK);
  return engine;
}

specd_options ServerOptions() {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = 8;
  options.max_batch = 4;
  options.max_draft = 3;
  options.ring_depth = 2;
  options.max_scores_per_token = 4;
  return options;
}

ServerFixture::ServerFixture(const std::string& device_uuid, const std::string& mps) {
  REQUIRE(SetUpLogging({.levels = "off"}).ok());
  ControlServer::Options options;
  options.path = folder.Of("specd.sock");
  options.max_sessions = 1;
  options.clock = &session.clock;
  options.hello.device = device_uuid.empty() ? "cpu" : "cuda";
  options.hello.device_uuid = device_uuid;
  options.hello.mps = mps;
  options.open_session = [this](const HelloRequest& request, uint32_t) {
    std::lock_guard<std::mutex> lock(mutex);
    hello = request;
    return absl::StatusOr<std::shared_ptr<Session>>(session.session);
  };
  options.serve = [](const std::shared_ptr<Session>&) {};
  auto created = ControlServer::Create(options);
  REQUIRE(created.ok());
  server = *std::move(created);
  wake = UniqueFd(eventfd(0, EFD_CLOEXEC));
  thread = std::thread([this] { server->Run(wake.get()); });
  uri = "unix:" + options.path;
}

ServerFixture::~ServerFixture() {
  eventfd_write(wake.get(), 1);
  thread.join();
  server.reset();
}

}  // namespace specd::test
