// SimDaemon is a daemon of a simulated run: the parts of daemon/daemon.cc without their threads.
//
// The simulator steps verify loop, publisher, text side and control service one after another, in
// any order. Kill leaves the shared memory of every session as it is, as SIGKILL does. Stop drains
// as Daemon::Run does. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/memory_budget.h"
#include "daemon/metrics/meters.h"
#include "daemon/server/verify_loop.h"
#include "daemon/session/control_service.h"
#include "daemon/session/session_list.h"
#include "daemon/session/shared_names.h"
#include "daemon/text/publisher.h"
#include "daemon/text/text_worker.h"

namespace specd::sim {

// A text side of its own process (specd-detok), or the one of a daemon.
std::unique_ptr<TextWorker> MakeTextWorker(const ModelProfile& profile, ZmqContext* context);

class SimDaemon {
 public:
  static constexpr uint64_t kSessionsBytes = uint64_t{64} << 20;

  struct Options {
    uint64_t epoch = 0;
    const ModelProfile* profile = nullptr;
    ZmqContext* context = nullptr;
    bool has_text_side = false;  // false: it is another process
    std::string host = {};       // of its endpoints; two daemons have two
    int64_t piece_work = 0;      // VerifierOptions::piece_work
  };
  explicit SimDaemon(const Options& options);
  ~SimDaemon();

  // The daemon's end of an engine's connection.
  struct Connection {
    std::optional<ControlService> service;
    bool is_open = true;     // of the daemon's end
    bool has_engine = true;  // false: the engine has hung up
  };
  std::shared_ptr<Connection> Accept();

  // Each does a little of one thread's work; true if there was any.
  bool StepVerify() { return verify_.Step(); }
  bool StepPublisher() { return publisher_->Step(); }
  bool StepText() { return text_ != nullptr && text_->Step(absl::ZeroDuration()); }
  // Ends the sessions of engines that have hung up, and connections whose session has ended.
  void StepControl();

  void Kill();
  void Stop();

  uint64_t epoch() const { return options_.epoch; }
  // Bytes that each session has taken.
  std::vector<uint64_t> SessionBytes() const;
  // Empty if nothing is left of any engine; otherwise what is left.
  std::string Leftovers() const;

 private:
  absl::StatusOr<std::shared_ptr<Session>> OpenSession(const HelloRequest& request);
  void HangUp();

  const Options options_;
  SharedNames names_;
  MemoryBudget memory_{kSessionsBytes, "memory_mib"};
  SessionList sessions_;
  PublisherMeters meters_;
  VerifyLoop verify_;
  uint64_t next_session_id_ = 1;
  bool is_running_ = true;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<TextWorker> text_;
  std::vector<std::shared_ptr<Connection>> connections_;
  // Of a daemon that was killed: their end would write into shared memory.
  std::vector<std::shared_ptr<Session>> dead_;
};

}  // namespace specd::sim
