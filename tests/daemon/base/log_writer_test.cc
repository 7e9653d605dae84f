// LogWriter keeps the threads that log from waiting for the reader of a pipe, and counts what it
// drops. LogLimit leaves out lines that come by the thousand.
#include "daemon/base/log_writer.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <sstream>
#include <string>
#include <thread>

#include "daemon/base/log_limit.h"
#include "tests/support/eventually.h"

namespace specd {
namespace {

std::string Told(uint64_t num_lines) { return "dropped " + std::to_string(num_lines) + "\n"; }

struct Pipe {
  Pipe() {
    int fds[2];
    REQUIRE(pipe(fds) == 0);
    reader = fds[0];
    writer = fds[1];
    REQUIRE(fcntl(reader, F_SETFL, O_NONBLOCK) == 0);
  }
  ~Pipe() {
    if (reader >= 0) close(reader);
    close(writer);
  }
  // What is in the pipe now.
  std::string Read() const {
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = read(reader, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }
  int reader = -1;
  int writer = -1;
};

int64_t CountOf(const std::string& text, char c) { return std::count(text.begin(), text.end(), c); }

TEST_SUITE("unit") {
  TEST_CASE("lines come out whole and in order") {
    const Pipe pipe;
    LogWriter writer(pipe.writer, Told);
    std::string expected;
    for (int i = 0; i < 500; ++i) {
      const std::string line = "line " + std::to_string(i) + "\n";
      writer.Write(line);
      expected += line;
    }
    writer.Flush();
    CHECK(pipe.Read() == expected);
    CHECK(writer.num_dropped() == 0);
  }

  TEST_CASE("a line that is too long is cut and still ends its line") {
    const Pipe pipe;
    LogWriter writer(pipe.writer, Told);
    writer.Write(std::string(3 * LogWriter::kLineBytesMax, 'x') + "\n");
    writer.Flush();
    const std::string text = pipe.Read();
    CHECK(text.size() == LogWriter::kLineBytesMax);
    CHECK(text.back() == '\n');
    CHECK(CountOf(text, '\n') == 1);
  }

  TEST_CASE("a full pipe holds up no thread that logs, and the dropped lines are told") {
    const Pipe pipe;
    LogWriter writer(pipe.writer, Told);
    const std::string line = std::string(99, 'x') + "\n";
    constexpr uint64_t kLines = 20'000;  // 2 MB; a pipe has 64 KiB
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t i = 0; i < kLines; ++i) writer.Write(line);
    writer.Flush();
    // Nothing reads. A thread that waited for the pipe would be here for ever.
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
    std::string text = pipe.Read();
    CHECK(writer.num_dropped() > kLines / 2);
    writer.Write("after\n");
    writer.Flush();
    text += pipe.Read();
    // Every line was written or is told of.
    std::istringstream lines(text);
    uint64_t written = 0;
    uint64_t told = 0;
    for (std::string one; std::getline(lines, one);) {
      if (one.starts_with("x")) ++written;
      if (one.starts_with("dropped ")) told += std::stoull(one.substr(8));
    }
    CHECK(text.ends_with("\nafter\n"));
    CHECK(written + told == kLines);
    CHECK(told == writer.num_dropped());
    // They are told once.
    writer.Write("again\n");
    writer.Flush();
    CHECK(pipe.Read() == "again\n");
  }

  TEST_CASE("a writer whose pipe is full ends within a bounded time") {
    const Pipe pipe;
    const auto start = std::chrono::steady_clock::now();
    {
      LogWriter writer(pipe.writer, Told);
      for (int i = 0; i < 2'000; ++i) writer.Write(std::string(100, 'x') + "\n");
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  }

  TEST_CASE("a writer whose pipe is read slowly ends within a bounded time") {
    const Pipe pipe;
    std::atomic<bool> stop = false;
    // Takes a line within every patience: a wait for each of the lines would last a minute.
    std::thread slow([&] {
      char line[LogWriter::kLineBytesMax];
      while (!stop) {
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        if (read(pipe.reader, line, sizeof(line)) < 0) CHECK(errno == EAGAIN);
      }
    });
    std::chrono::steady_clock::time_point start;
    {
      LogWriter writer(pipe.writer, Told);
      for (size_t i = 0; i < LogWriter::kLinesMax; ++i) {
        writer.Write(std::string(LogWriter::kLineBytesMax - 1, 'x') + "\n");
      }
      start = std::chrono::steady_clock::now();
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
    stop = true;
    slow.join();
  }

  TEST_CASE("a pipe without a reader drops lines and raises no signal that is ignored") {
    Pipe pipe;
    struct sigaction before = {};
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    REQUIRE(sigaction(SIGPIPE, &ignore, &before) == 0);
    close(pipe.reader);
    pipe.reader = -1;
    {
      LogWriter writer(pipe.writer, Told);
      for (int i = 0; i < 100; ++i) writer.Write("line\n");
      writer.Flush();
      CHECK(writer.num_dropped() == 100);
    }
    REQUIRE(sigaction(SIGPIPE, &before, nullptr) == 0);
  }

  TEST_CASE("of many lines of one kind and peer a few are written in each window") {
    LogLimit limit;
    constexpr int64_t kStart = 1'000'000'000;
    for (int i = 0; i < LogLimit::kLines; ++i) CHECK(limit.Take("garbage", 7, kStart) == 0u);
    for (int i = 0; i < 50'000; ++i) CHECK_FALSE(limit.Take("garbage", 7, kStart + i).has_value());
    // Other peers and other kinds have windows of their own.
    CHECK(limit.Take("garbage", 8, kStart) == 0u);
    CHECK(limit.Take("refused", 7, kStart) == 0u);
    CHECK(limit.Take("garbage", 7, kStart + LogLimit::kWindowNs) == 50'000u);
    CHECK(limit.Take("garbage", 7, kStart + LogLimit::kWindowNs + 1) == 0u);
  }

  TEST_CASE("peers without end share one entry, and a peer that was counted is not forgotten") {
    LogLimit limit;
    constexpr int64_t kStart = 1'000'000'000;
    for (int i = 0; i < LogLimit::kLines + 3; ++i) limit.Take("garbage", 1, kStart);
    int written = 0;
    for (uint64_t peer = 2; peer < 10 * LogLimit::kEntriesMax; ++peer) {
      written += limit.Take("garbage", peer, kStart).has_value() ? 1 : 0;
    }
    // Each peer with an entry of its own writes one line, and the shared entry a few.
    CHECK(written <= static_cast<int>(LogLimit::kEntriesMax) + LogLimit::kLines);
    CHECK(limit.Take("garbage", 1, kStart + LogLimit::kWindowNs) == 3u);
  }

  TEST_CASE("peers that have gone make room, and what they left out is told") {
    LogLimit limit;
    int64_t now_ns = 1'000'000'000;
    // How many left-out lines these many peers' lines tell of.
    const auto fill = [&](uint64_t first) {
      uint64_t num_told = 0;
      for (uint64_t peer = first; peer < first + LogLimit::kEntriesMax; ++peer) {
        for (int i = 0; i < LogLimit::kLines + 2; ++i) {
          num_told += limit.Take("aborted", peer, now_ns).value_or(0);
        }
      }
      return num_told;
    };
    CHECK(fill(0) == 0);
    now_ns += LogLimit::kWindowNs;
    // A new peer has a window of its own again.
    for (int i = 0; i < LogLimit::kLines; ++i) {
      CHECK(limit.Take("refused", 5000, now_ns) == 0u);
    }
    CHECK_FALSE(limit.Take("refused", 5000, now_ns).has_value());
    CHECK(fill(10'000) == 2 * LogLimit::kEntriesMax);
  }
}

}  // namespace
}  // namespace specd
