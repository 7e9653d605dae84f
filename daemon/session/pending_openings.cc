#include "daemon/session/pending_openings.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::Status NoThread() {
  return MakeError(SPECD_ERROR_EXHAUSTED, "",
                   "there is no thread for this opening; try again, or raise the limit of threads "
                   "(ulimit -u, TasksMax=)");
}

// Signals are for the threads of the program that has this library.
void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

absl::Status PendingOpenings::Start() {
  const std::lock_guard lock(mutex_);
  if (dispatcher_.joinable() || stops_) return absl::OkStatus();
  try {
    dispatcher_ = std::thread([this] { Dispatch(); });
  } catch (const std::system_error&) {
    return NoThread();
  }
  return absl::OkStatus();
}

void PendingOpenings::Add(const std::shared_ptr<Session>& session,
                          std::vector<PendingOpening> openings) {
  const std::lock_guard lock(mutex_);
  if (stops_) return;
  Queue& queue = queues_[session.get()];
  queue.session = session;
  std::move(openings.begin(), openings.end(), std::back_inserter(queue.waiting));
  changed_.notify_all();
}

void PendingOpenings::Dispatch() {
  BlockSignals();
  std::unique_lock lock(mutex_);
  while (!stops_) {
    for (auto next = queues_.begin(); next != queues_.end();) {
      Queue& queue = next->second;
      while (queue.num_running < kThreadsMax && !queue.waiting.empty()) Begin(&queue);
      // The last owner of a session may be here, and its end takes the session's lock only.
      next = queue.num_running == 0 ? queues_.erase(next) : std::next(next);
    }
    changed_.wait(lock);
  }
}

void PendingOpenings::Begin(Queue* queue) {
  const auto opening = std::make_shared<PendingOpening>(std::move(queue->waiting.front()));
  queue->waiting.pop_front();
  ++queue->num_running;
  ++num_running_;
  try {
    std::thread([this, session = queue->session, opening]() mutable {
      Build(std::move(session), std::move(*opening));
    }).detach();
  } catch (const std::system_error&) {
    --queue->num_running;
    --num_running_;
    queue->session->FailPending(*opening, NoThread());
  }
}

void PendingOpenings::Build(std::shared_ptr<Session> session, PendingOpening opening) {
  const Session* const key = session.get();
  session->BuildPending(opening);
  opening = {};
  session.reset();  // the queue has it still
  const std::lock_guard lock(mutex_);
  --queues_.at(key).num_running;
  --num_running_;
  changed_.notify_all();  // with the lock, because Stop may free this object afterwards
}

void PendingOpenings::Stop() {
  std::unique_lock lock(mutex_);
  stops_ = true;
  for (auto& [key, queue] : queues_) queue.waiting.clear();
  changed_.notify_all();
  changed_.wait(lock, [this] { return num_running_ == 0; });
  std::thread dispatcher = std::move(dispatcher_);
  lock.unlock();
  if (dispatcher.joinable()) dispatcher.join();
  queues_.clear();
}

}  // namespace specd
