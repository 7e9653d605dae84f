#include "tests/gpu/ptx/runtime/stream_worker.h"

#include <fmt/format.h>

#include <utility>

namespace specd::ptx {

StreamWorker::StreamWorker(uint64_t seed) : random_(seed), thread_([this] { Run(); }) {}

StreamWorker::~StreamWorker() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Mark StreamWorker::Push(const std::shared_ptr<StreamQueue>& queue, Piece piece) {
  Mark done;
  done.since_ = std::make_shared<Mark::Since>();
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return queue->items_.size() < kMostWaiting; });
  if (queue->items_.empty()) busy_.push_back(queue);
  queue->items_.push_back({std::move(piece.run), std::move(piece.after), done});
  queue->last_ = done;
  ++num_left_;
  changed_.notify_all();
  return done;
}

bool StreamWorker::IsIdle(const StreamQueue& queue) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Mark last = queue.last_;
  return changed_.wait_for(lock, kPollTime, [&] { return IsDone(last); });
}

void StreamWorker::AwaitIdle(const StreamQueue& queue) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Mark last = queue.last_;
  changed_.wait(lock, [&] { return IsDone(last); });
}

void StreamWorker::AwaitAll() {
  WhenIdle([] {});
}

void StreamWorker::WhenIdle(const std::function<void()>& function) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return num_left_ == 0; });
  function();
}

std::optional<Mark::Clock::time_point> StreamWorker::DoneSince(const Mark& mark) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return mark.since_ == nullptr ? std::nullopt : *mark.since_;
}

void StreamWorker::Fail(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.Update(status);
  fmt::print(stderr, "ptx: {}\n", std::string(status.message()));
}

absl::Status StreamWorker::status() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

StreamQueue::Item StreamWorker::TakeNext() {
  std::vector<size_t> ready;
  for (size_t i = 0; i < busy_.size(); ++i) {
    if (IsDone(busy_[i]->items_.front().after)) ready.push_back(i);
  }
  // A mark is older than what comes after it, so the oldest piece of all is always ready.
  const size_t chosen = ready[random_() % ready.size()];
  std::deque<StreamQueue::Item>& items = busy_[chosen]->items_;
  StreamQueue::Item item = std::move(items.front());
  items.pop_front();
  if (items.empty()) busy_.erase(busy_.begin() + static_cast<std::ptrdiff_t>(chosen));
  return item;
}

void StreamWorker::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return num_left_ > 0 || stopping_; });
    if (num_left_ == 0) return;
    StreamQueue::Item item = TakeNext();
    const bool runs = item.run != nullptr && status_.ok();
    lock.unlock();
    if (runs) {
      if (const absl::Status status = item.run(); !status.ok()) Fail(status);
    }
    item.run = nullptr;  // what it holds may be large
    lock.lock();
    *item.done.since_ = Mark::Clock::now();
    --num_left_;
    changed_.notify_all();
  }
}

}  // namespace specd::ptx
