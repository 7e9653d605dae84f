#include "daemon/server/opening_pool.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/grammar/slow_compile.h"

namespace specd {

absl::StatusOr<std::unique_ptr<OpeningPool>> OpeningPool::Create(size_t num_threads) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return MakeErrnoError(SPECD_ERROR_EXHAUSTED, "listen", "no eventfd for long openings", errno);
  }
  return std::unique_ptr<OpeningPool>(new OpeningPool(std::move(wake), num_threads));
}

OpeningPool::OpeningPool(UniqueFd wake, size_t num_threads) : wake_(std::move(wake)) {
  for (size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
}

void OpeningPool::Add(Opening opening) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(opening));
  }
  changed_.notify_one();
}

std::vector<OpeningPool::Handled> OpeningPool::TakeHandled() {
  // The eventfd is emptied first: an opening that is handled after this line makes it readable
  // again.
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(handled_, {});
}

void OpeningPool::Stop() {
  std::deque<Opening> discarded;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    discarded.swap(waiting_);
  }
  changed_.notify_all();
  discarded.clear();
  const grammar::CompileStop no_waits;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void OpeningPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    Opening opening = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Handled handled{.service = opening.service,
                    .answer = opening.service->Handle(opening.message, std::move(opening.fds))};
    lock.lock();
    handled_.push_back(std::move(handled));
    eventfd_write(wake_.get(), 1);
  }
}

}  // namespace specd
