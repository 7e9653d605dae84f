// McapWriter on disks and pipes that fail.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <thread>

#include "tests/daemon/trace/mcap_bytes.h"

namespace specd {
namespace {

// FileSizeLimit lowers the limit of file sizes of this process for its lifetime.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t size_bytes) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit lower = {size_bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &lower) == 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

struct Pipe {
  Pipe() {
    int fds[2];
    REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
    reader.Reset(fds[0]);
    writer.Reset(fds[1]);
  }
  UniqueFd reader;
  UniqueFd writer;
};

void WriteMessages(McapWriter* writer) {
  REQUIRE(writer->AddChannel({.topic = "t", .encoding = "json", .metadata = {}}).ok());
  for (uint32_t i = 0; i < 4; ++i) {
    REQUIRE(
        writer->Write({1, i, i, AsBytes(std::string(500000, static_cast<char>('a' + i)))}).ok());
  }
}

TEST_SUITE("unit") {
  TEST_CASE("a write that stops half-way is continued, and its error is kept") {
    const MemoryFile file;
    absl::StatusOr<McapWriter> writer = McapWriter::Start(file.writer(), {});
    REQUIRE(writer.ok());
    REQUIRE(writer->AddChannel({.topic = "t", .encoding = "json", .metadata = {}}).ok());
    REQUIRE(writer->Write({1, 1, 1, AsBytes("whole")}).ok());
    REQUIRE(writer->Flush().ok());
    REQUIRE(writer->Write({1, 2, 2, AsBytes(std::string(1000, 'x'))}).ok());
    // The kernel takes 100 bytes of the chunk; the next write would raise SIGXFSZ.
    const uint64_t limit = writer->bytes_written() + 100;
    absl::Status error;
    {
      const FileSizeLimit lower(limit);
      error = writer->Flush();
    }
    CHECK(error.code() == absl::StatusCode::kResourceExhausted);
    CHECK(MessageOf(error) ==
          "a.mcap: cannot write at byte " + std::to_string(limit) + ": File too large");
    CHECK(writer->bytes_written() == limit);
    CHECK(file.bytes().size() == limit);
    // The disk has room again, but a hole in the file would follow.
    CHECK(writer->Write({1, 3, 3, {}}) == error);
    CHECK(writer->AddChannel({}).status() == error);
    CHECK(writer->WriteMetadata("m", {}) == error);
    CHECK(writer->Flush() == error);
    CHECK(writer->Finish() == error);
    CHECK(writer->bytes_written() == limit);
    CHECK(writer->bytes_pending() == 0);
    const ReadResult read = ReadAll(file);
    CHECK(read.messages == std::vector<std::string>{"t 1 1 whole"});
    CHECK(IsTornFile(read.status));
  }

  TEST_CASE("FileWriter writes nothing after an error") {
    const int fd = open("/dev/full", O_WRONLY);
    FileWriter writer(UniqueFd(fd), "full");
    const absl::Status error = writer.Write(AsBytes("lost"));
    CHECK(error.code() == absl::StatusCode::kResourceExhausted);
    const MemoryFile file;
    REQUIRE(dup2(file.fd(), fd) == fd);
    CHECK(writer.Write(AsBytes("late")) == error);
    CHECK(writer.SkipTo(4096) == error);
    CHECK(writer.Close() == error);
    CHECK(writer.status() == error);
    CHECK(writer.bytes_written() == 0);
    CHECK(file.bytes().empty());
  }

  TEST_CASE("a pipe without a reader is an error and no signal") {
    Pipe pipe;
    absl::StatusOr<McapWriter> writer =
        McapWriter::Start(FileWriter(std::move(pipe.writer), "pipe"), {});
    REQUIRE(writer.ok());
    pipe.reader.Reset();
    CHECK(Contains(writer->WriteMetadata("m", {}), "Broken pipe"));
    sigset_t pending;
    REQUIRE(sigpending(&pending) == 0);
    CHECK(sigismember(&pending, SIGPIPE) == 0);
  }

  TEST_CASE("a signal that the caller holds back stays pending over a failed write") {
    sigset_t pipe_signal;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigset_t before;
    REQUIRE(pthread_sigmask(SIG_BLOCK, &pipe_signal, &before) == 0);
    raise(SIGPIPE);
    Pipe pipe;
    pipe.reader.Reset();
    CHECK_FALSE(McapWriter::Start(FileWriter(std::move(pipe.writer), "pipe"), {}).ok());
    sigset_t pending;
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGPIPE) == 1);
    const timespec no_wait = {};
    CHECK(sigtimedwait(&pipe_signal, nullptr, &no_wait) == SIGPIPE);
    REQUIRE(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  }

  TEST_CASE("interrupted writes to a slow pipe lose and repeat nothing") {
    // A handler without SA_RESTART lets write(2) return early, with a part or with EINTR.
    struct sigaction action = {};
    struct sigaction before = {};
    action.sa_handler = [](int) {};
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    Pipe pipe;
    std::string received;
    const pthread_t writing = pthread_self();
    std::thread reading([&] {
      char piece[30000];
      for (ssize_t num = 1; num > 0;) {
        pthread_kill(writing, SIGUSR1);
        num = read(pipe.reader.get(), piece, sizeof(piece));
        if (num > 0) received.append(piece, static_cast<size_t>(num));
      }
    });
    absl::Status finished;
    {
      absl::StatusOr<McapWriter> writer =
          McapWriter::Start(FileWriter(std::move(pipe.writer), "pipe"), {});
      REQUIRE(writer.ok());
      WriteMessages(&*writer);
      finished = writer->Finish();
    }
    reading.join();
    sigaction(SIGUSR1, &before, nullptr);
    CHECK(finished.ok());

    const MemoryFile file;
    absl::StatusOr<McapWriter> writer = McapWriter::Start(file.writer(), {});
    REQUIRE(writer.ok());
    WriteMessages(&*writer);
    REQUIRE(writer->Finish().ok());
    CHECK((received == file.bytes()));
  }
}  // TEST_SUITE

}  // namespace
}  // namespace specd
