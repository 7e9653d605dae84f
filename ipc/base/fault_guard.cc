#include "ipc/base/fault_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

namespace specd {

// A place of a list that only grows, so that the handler can walk it without a lock. `begin` is
// written last when a place is taken and first when it is given up (release, acquire in Covers).
struct FaultGuard::Range {
  std::atomic<uintptr_t> begin{0};  // 0: the place is free
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> is_writable{false};
  std::atomic<std::atomic<bool>*> has_faulted{nullptr};
  Range* next = nullptr;

  bool Covers(uintptr_t address) const {
    const uintptr_t first = begin.load(std::memory_order_acquire);
    if (first == 0 || address < first || address >= end.load(std::memory_order_acquire)) {
      return false;
    }
    // The range of a read is there until the read is done. Another range may have changed between
    // the two loads.
    return begin.load(std::memory_order_acquire) == first;
  }
};

namespace {

using Range = FaultGuard::Range;

std::atomic<Range*> ranges{nullptr};  // the newest place; read by the handler
std::mutex ranges_mutex;              // one guard at a time takes or gives up a place

// Puts zeros in the place of the mapping. True if the read can go on.
bool Replace(Range* range) {
  const uintptr_t begin = range->begin.load(std::memory_order_acquire);
  const uintptr_t end = range->end.load(std::memory_order_acquire);
  const int access = PROT_READ | (range->is_writable.load() ? PROT_WRITE : 0);
  range->has_faulted.load()->store(true);  // before any zero can be read
  // The call itself, not libc's: a signal handler may make it, and ThreadSanitizer does not take it
  // for a write. Threads that read the mapping meanwhile see the old pages or zeros.
  return syscall(SYS_mmap, begin, end - begin, access,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != -1;
}

void OnSigbus(int number, siginfo_t* info, void*) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (info->si_code > 0) {  // from the kernel, not from kill()
    for (Range* range = ranges.load(std::memory_order_acquire); range != nullptr;
         range = range->next) {
      if (!range->Covers(address) || !Replace(range)) continue;
      errno = error;
      return;
    }
  }
  // The read is repeated and ends the process.
  signal(number, SIG_DFL);
  if (info->si_code <= 0) raise(number);
  errno = error;
}

}  // namespace

void FaultGuard::Install() {
  struct sigaction action = {};
  action.sa_sigaction = &OnSigbus;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

FaultGuard::FaultGuard(const Memory& memory, std::atomic<bool>* has_faulted) {
  const std::lock_guard lock(ranges_mutex);
  Range* range = ranges.load(std::memory_order_relaxed);
  while (range != nullptr && range->begin.load(std::memory_order_relaxed) != 0) range = range->next;
  if (range == nullptr) {
    range = new Range;
    range->next = ranges.load(std::memory_order_relaxed);
    ranges.store(range, std::memory_order_release);  // with acquire in the handler
  }
  const auto begin = reinterpret_cast<uintptr_t>(memory.data);
  range->is_writable.store(memory.is_writable);
  range->has_faulted.store(has_faulted);
  range->end.store(begin + memory.size_bytes, std::memory_order_release);
  range->begin.store(begin, std::memory_order_release);
  range_ = range;
}

FaultGuard::FaultGuard(FaultGuard&& other) noexcept
    : range_(std::exchange(other.range_, nullptr)) {}

FaultGuard& FaultGuard::operator=(FaultGuard&& other) noexcept {
  std::swap(range_, other.range_);
  return *this;
}

FaultGuard::~FaultGuard() {
  if (range_ == nullptr) return;
  const std::lock_guard lock(ranges_mutex);
  range_->begin.store(0, std::memory_order_release);
}

}  // namespace specd
