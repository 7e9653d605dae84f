// PendingOpenings builds the sequences of pending openings on threads of their own.
//
// A session has up to kThreadsMax of them at a time, and the rest of its openings wait in order, so
// that a session with many leaves the others theirs. Long compiles bound themselves
// (speculative/grammar/base/compile_turns.h). Add may be called from any thread, and one thread
// calls Stop.
//
//   if (absl::Status status = pending->Start(); !status.ok()) return status;
//   pending->Add(session, std::move(openings));  // their sequences are in the session's table
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "daemon/session/pending_opening.h"
#include "daemon/session/session.h"

namespace specd {

class PendingOpenings {
 public:
  static constexpr size_t kThreadsMax = 4;

  PendingOpenings() = default;
  ~PendingOpenings() { Stop(); }
  PendingOpenings(const PendingOpenings&) = delete;
  PendingOpenings& operator=(const PendingOpenings&) = delete;

  // Makes the thread that begins the others. EXHAUSTED if the system gives none.
  absl::Status Start();
  // REQUIRES: Start was OK. After Stop the openings are dropped.
  void Add(const std::shared_ptr<Session>& session, std::vector<PendingOpening> openings);

  // Drops the openings that wait, and waits for those that are built.
  void Stop();

 private:
  struct Queue {
    std::shared_ptr<Session> session;
    std::deque<PendingOpening> waiting;
    size_t num_running = 0;
  };
  // Begins what waits, until Stop.
  void Dispatch();
  void Begin(Queue* queue);
  void Build(std::shared_ptr<Session> session, PendingOpening opening);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const Session*, Queue> queues_;  // guarded by mutex_, as the next two
  size_t num_running_ = 0;
  bool stops_ = false;
  // A compile may lower the priority of its thread, and the threads that this thread begins have
  // its own priority. So it compiles nothing.
  std::thread dispatcher_;
};

}  // namespace specd
