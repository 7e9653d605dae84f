#include "daemon/client/library_thread.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

absl::Status LibraryThread::Start(const char* field, const char* what, std::function<void()> run) {
  stop_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_fd_.valid()) {
    return MakeErrnoError(SPECD_ERROR_EXHAUSTED, field, fmt::format("no eventfd for {}", what),
                          errno);
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::Status status;
  try {
    thread_ = std::thread(std::move(run));
  } catch (const std::system_error& error) {
    status = MakeError(SPECD_ERROR_EXHAUSTED, field,
                       fmt::format("no thread for {}: {}", what, error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

bool LibraryThread::is_stopping() const {
  pollfd stop{stop_fd_.get(), POLLIN, 0};  // without a thread: -1, which is never ready
  return poll(&stop, 1, 0) > 0;
}

void LibraryThread::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_fd_.get(), 1);
  thread_.join();
}

}  // namespace specd
