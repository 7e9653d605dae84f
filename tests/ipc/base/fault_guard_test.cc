// A read of a page that is not there reads zeros and is told, and another SIGBUS still ends the
// process. The pages of an ordinary file go when the file is cut.
#include "ipc/base/fault_guard.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "ipc/base/unique_fd.h"

namespace specd {
namespace {

constexpr size_t kPage = 4096;

// Pages of a file in memory that are full of 7, and that Cut takes away.
class Pages {
 public:
  explicit Pages(size_t count, int access = PROT_READ)
      : size_(count * kPage), fd_(memfd_create("pages", MFD_CLOEXEC)) {
    const std::vector<char> sevens(size_, 7);
    REQUIRE(write(fd_.get(), sevens.data(), size_) == static_cast<ssize_t>(size_));
    data_ = static_cast<char*>(mmap(nullptr, size_, access, MAP_SHARED, fd_.get(), 0));
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Pages() { munmap(data_, size_); }
  void Cut(size_t pages) const {
    REQUIRE(ftruncate(fd_.get(), static_cast<off_t>(pages * kPage)) == 0);
  }
  FaultGuard::Memory memory(bool is_writable = false) const { return {data_, size_, is_writable}; }
  volatile char* data() const { return data_; }

 private:
  const size_t size_;
  UniqueFd fd_;
  char* data_;
};

// How a child that runs this ends: 0, its exit code, or minus the signal.
template <class Work>
int EndOf(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_SUITE("fault") {
  TEST_CASE("without the handler a missing page ends the process") {
    CHECK(EndOf([] {
            signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler
            const Pages pages(2);
            pages.Cut(1);
            _exit(pages.data()[kPage]);
          }) == -SIGBUS);
  }

  TEST_CASE("a missing page reads as zeros, and its owner alone is told") {
    CHECK(EndOf([] {
            FaultGuard::Install();
            std::atomic<bool> first{false};
            std::atomic<bool> second{false};
            const Pages cut(3);
            const Pages whole(3);
            const FaultGuard one(cut.memory(), &first);
            const FaultGuard other(whole.memory(), &second);
            cut.Cut(1);
            if (cut.data()[0] != 7 || first) _exit(1);
            if (cut.data()[2 * kPage] != 0 || !first) _exit(2);
            if (cut.data()[kPage] != 0 || cut.data()[0] != 0) _exit(3);  // the whole is replaced
            if (whole.data()[2 * kPage] != 7 || second) _exit(4);
          }) == 0);
  }

  TEST_CASE("a write goes nowhere") {
    CHECK(EndOf([] {
            FaultGuard::Install();
            std::atomic<bool> flag{false};
            const Pages pages(2, PROT_READ | PROT_WRITE);
            const FaultGuard guard(pages.memory(true), &flag);
            pages.Cut(1);
            pages.data()[kPage] = 5;
            if (!flag || pages.data()[kPage] != 5) _exit(1);
          }) == 0);
  }

  TEST_CASE("memory without a guard, or whose guard is gone, ends the process") {
    for (const bool had_guard : {false, true}) {
      CHECK(EndOf([had_guard] {
              FaultGuard::Install();
              std::atomic<bool> flag{false};
              const Pages other(1);
              const FaultGuard stays(other.memory(), &flag);
              const Pages pages(2);
              std::optional<FaultGuard> guard;
              if (had_guard) guard.emplace(pages.memory(), &flag);
              guard.reset();
              pages.Cut(1);
              _exit(pages.data()[kPage]);
            }) == -SIGBUS);
    }
    CHECK(EndOf([] {
            FaultGuard::Install();
            kill(getpid(), SIGBUS);
          }) == -SIGBUS);
  }

  TEST_CASE("threads that read one mapping go on, while guards come and go") {
    CHECK(EndOf([] {
            FaultGuard::Install();
            std::atomic<bool> flag{false};
            std::atomic<bool> other_flag{false};
            const Pages pages(64);
            const Pages whole(1);
            FaultGuard moved(whole.memory(), &other_flag);
            const FaultGuard guard(pages.memory(), &flag);
            pages.Cut(0);
            std::vector<std::thread> readers;
            std::atomic<int> sum{0};
            for (int i = 0; i < 4; ++i) {
              readers.emplace_back([&pages, &sum, i] {
                for (size_t page = 0; page < 64; ++page) {
                  sum += pages.data()[page * kPage + static_cast<size_t>(i)];
                }
              });
            }
            for (int i = 0; i < 1000; ++i) moved = FaultGuard(whole.memory(), &other_flag);
            for (std::thread& reader : readers) reader.join();
            if (!flag || other_flag || sum != 0) _exit(1);
          }) == 0);
  }
}

}  // namespace
}  // namespace specd
