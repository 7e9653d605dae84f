// GatedServer is a control server over real sessions whose openings a test can hold. Its Gate holds
// every thread that enters. One thread, which is not one of those that are held.
#pragma once

#include <doctest/doctest.h>
#include <sys/eventfd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/base/logging.h"
#include "daemon/server/control_server.h"
#include "speculative/grammar/base/compile_turns.h"
#include "tests/daemon/server/raw_peer.h"
#include "tests/support/session_fixture.h"
#include "tests/support/temporary_folder.h"

namespace specd::test {

// Holds every thread that enters until the test opens it.
class Gate {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++num_entered_;
    opened_.wait(lock, [this] { return is_open_; });
    ++num_left_;
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  // The same as a compile would: it gives up if it may not go on.
  void PassAsCompile() {
    ++num_entered_;
    while (!is_open() && grammar::CompileTurn::MayGoOn()) std::this_thread::yield();
    ++num_left_;
  }
  bool is_open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_open_;
  }
  int num_entered() const { return num_entered_; }
  int num_left() const { return num_left_; }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
  std::atomic<int> num_entered_{0};
  std::atomic<int> num_left_{0};
};

// A control server over real sessions, in a thread. An opening with stop strings asks whether a
// text side is there, and the gate holds the answer.
class GatedServer {
 public:
  static constexpr uint32_t kSessionsMax = 4;

  // The users whom it serves besides this process's own.
  explicit GatedServer(std::vector<uint32_t> allowed_uids = {}) {
    REQUIRE(SetUpLogging({.levels = "off"}).ok());
    ControlServer::Options options;
    options.path = folder_.Of("specd.sock");
    options.max_sessions = kSessionsMax;
    options.allowed_uids = std::move(allowed_uids);
    options.clock = &clock_;
    options.open_session = [this](const HelloRequest& request, uint32_t) {
      return OpenSession(request);
    };
    options.identify = [this](const PeerCredentials& peer) { return Identify(peer); };
    options.serve = [](const std::shared_ptr<Session>&) {};
    options.sessions = &no_sessions_;
    auto created = ControlServer::Create(options);
    REQUIRE(created.ok());
    server_ = *std::move(created);
    wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { server_->Run(wake_.get()); });
    uri = "unix:" + options.path;
  }
  ~GatedServer() {
    gate.Open();
    if (thread_.joinable()) EndRun();
    server_.reset();
  }

  // Connects as a user. Connections are accepted in the order in which they were made, so all that
  // come before have to be made so too.
  std::unique_ptr<RawPeer> ConnectAs(uint32_t uid) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      uids_.push_back(uid);
    }
    return std::make_unique<RawPeer>(uri);
  }

  // Ends Run, as SIGTERM does.
  void EndRun() {
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  void Close() { server_->Close(); }
  ManualClock& clock() { return clock_; }

  // Attaches the peer, and returns its session.
  std::shared_ptr<Session> Attach(RawPeer& peer) {
    HelloRequest hello;
    hello.limits = SessionFixture::kLimits;
    REQUIRE(std::holds_alternative<HelloReply>(peer.Call(hello)));
    REQUIRE(std::holds_alternative<OkReply>(peer.Call(MappedRequest{})));
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(last_session_, nullptr);
  }

  std::string uri;
  Gate gate;
  std::atomic<bool> is_compile{false};     // openings at the gate are like compiles
  std::atomic<bool> holds_accepts{false};  // the gate holds the server at its next connection
  SharedNames names;

 private:
  PeerCredentials Identify(PeerCredentials peer) {
    if (holds_accepts) gate.Pass();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (uids_.empty()) return peer;
    peer.uid = uids_.front();
    uids_.pop_front();
    return peer;
  }

  absl::StatusOr<std::shared_ptr<Session>> OpenSession(const HelloRequest& request) {
    SessionOptions options;
    options.identity = {++num_sessions_, 77};
    options.limits = request.limits;
    options.profile = &profile_;
    options.clock = &clock_;
    options.names = &names;
    options.publish_events = true;
    options.text_side = [this] {
      is_compile ? gate.PassAsCompile() : gate.Pass();
      return true;
    };
    auto session = Session::Create(options, std::make_unique<ScriptedBackend>());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (session.ok()) last_session_ = *session;
    return session;
  }

  const TemporaryFolder folder_;
  ManualClock clock_;
  ModelProfile profile_;
  const SessionList no_sessions_;  // for operators, whose answers need none here
  uint64_t num_sessions_ = 0;      // owned by the control thread
  std::mutex mutex_;
  std::shared_ptr<Session> last_session_;  // guarded by mutex_
  std::deque<uint32_t> uids_;              // of connections to come; guarded by mutex_
  std::unique_ptr<ControlServer> server_;
  UniqueFd wake_;
  std::thread thread_;
};

}  // namespace specd::test
