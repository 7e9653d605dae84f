// The files that earlier processes have left in the folder of a trace count in its bounds.
#include "daemon/recorder/trace_shelf.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "daemon/trace/file_io.h"
#include "ipc/base/unique_fd.h"
#include "tests/daemon/recorder/traced_session.h"

namespace specd::test {
namespace {

using Names = std::set<std::string>;

Names NamesIn(const std::string& directory) {
  Names names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.insert(entry.path().filename());
  }
  return names;
}

// A file of an earlier process, written at this second.
void Leave(const std::string& path, size_t size_bytes, int64_t second) {
  std::ofstream(path) << std::string(size_bytes, 'x');
  const timespec times[2] = {{second, 0}, {second, 0}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

TraceOptions OptionsFor(const TemporaryFolder& directory) {
  TraceOptions options;
  options.directory = directory.path();
  return options;
}

std::string NameOf(int session, int64_t pid = 999'999'999) {  // above all that Linux gives
  return fmt::format("specd-20260101T000000Z-{}-s{}-1", pid, session);
}

TEST_SUITE("unit") {
  // Bug: each daemon counted its own files, so a daemon that was restarted again and again filled
  // the disk.
  TEST_CASE("shelf: the oldest files of earlier processes go first") {
    const TemporaryFolder directory;
    TraceOptions options = OptionsFor(directory);
    options.total_files = 3;
    for (const int session : {4, 1, 3, 2}) {
      Leave(directory.path() + "/" + NameOf(session) + ".mcap", 10, 1000 + session);
      Leave(directory.path() + "/" + NameOf(session) + ".rows", 10, 1000);
    }
    TraceShelf shelf(options);
    shelf.Adopt();
    Names left;
    for (const int session : {2, 3, 4}) {
      left.insert(NameOf(session) + ".mcap");
      left.insert(NameOf(session) + ".rows");
    }
    CHECK(NamesIn(directory.path()) == left);
    CHECK(shelf.TakeDeleted() == 1);
    // A new file takes the place of an old one.
    shelf.SetOpen(9, 1);
    CHECK(NamesIn(directory.path()).count(NameOf(2) + ".mcap") == 0);
    CHECK(NamesIn(directory.path()).size() == 4);
  }

  TEST_CASE("shelf: rows of earlier processes count in the sum") {
    const TemporaryFolder directory;
    TraceOptions options = OptionsFor(directory);
    options.total_bytes = 250;
    for (const int session : {1, 2, 3}) {
      Leave(directory.path() + "/" + NameOf(session) + ".mcap", 20, 1000 + session);
      Leave(directory.path() + "/" + NameOf(session) + ".rows", 100, 1000);
    }
    TraceShelf(options).Adopt();
    CHECK(NamesIn(directory.path()) == Names{NameOf(2) + ".mcap", NameOf(2) + ".rows",
                                             NameOf(3) + ".mcap", NameOf(3) + ".rows"});
  }

  // Bug: a daemon that began deleted the finished files of another one that ran.
  TEST_CASE("shelf: the files of a process that runs stay, and those of one that is gone go") {
    const TemporaryFolder directory;
    TraceOptions options = OptionsFor(directory);
    options.total_files = 1;
    const pid_t other = fork();
    if (other == 0) {
      pause();
      _exit(0);
    }
    REQUIRE(other > 0);
    const std::string name = NameOf(1, other) + ".mcap";
    // A daemon in a container may have the pid of the one before.
    const Names own = {NameOf(2, getpid()) + ".mcap", NameOf(3, getpid()) + ".mcap"};
    Leave(directory.path() + "/" + name, 10, 1000);
    int64_t second = 1001;
    for (const std::string& each : own) Leave(directory.path() + "/" + each, 10, second++);
    TraceShelf(options).Adopt();
    CHECK(NamesIn(directory.path()) == Names{name, *own.rbegin()});
    kill(other, SIGKILL);
    REQUIRE(waitpid(other, nullptr, 0) == other);
    TraceShelf(options).Adopt();
    CHECK(NamesIn(directory.path()) == Names{*own.rbegin()});
  }

  // Bug: rows without their trace, of a process that ended between two deletions, stayed for good.
  TEST_CASE("shelf: rows alone count and go, and rows that are being written keep their trace") {
    const TemporaryFolder directory;
    TraceOptions options = OptionsFor(directory);
    options.total_bytes = 250;
    Leave(directory.path() + "/" + NameOf(1) + ".rows", 100, 1001);
    Leave(directory.path() + "/" + NameOf(2) + ".rows", 100, 1002);
    Leave(directory.path() + "/" + NameOf(3) + ".mcap", 100, 1003);
    TraceShelf(options).Adopt();
    Names left = {NameOf(2) + ".rows", NameOf(3) + ".mcap"};
    CHECK(NamesIn(directory.path()) == left);
    auto writer = FileWriter::Create(directory.path() + "/" + NameOf(3) + ".rows");
    REQUIRE(writer.ok());
    options.total_bytes = 1;
    TraceShelf(options).Adopt();
    left = {NameOf(3) + ".mcap", NameOf(3) + ".rows"};
    CHECK(NamesIn(directory.path()) == left);
  }

  // Bug: a file that another process looked at as it began had no lock, and was taken over.
  TEST_CASE("shelf: a file gets its lock though another process looks at it") {
    const TemporaryFolder directory;
    const std::string path = directory.path() + "/" + NameOf(1) + ".mcap";
    std::ofstream(path).flush();
    const auto opened = [&path] { return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC)); };
    UniqueFd looker = opened();
    REQUIRE(flock(looker.get(), LOCK_SH) == 0);
    std::thread ends([&looker] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      looker = UniqueFd();
    });
    const UniqueFd writer = opened();
    CHECK(LockForWriting(writer.get()));
    ends.join();
    CHECK(flock(opened().get(), LOCK_SH | LOCK_NB) != 0);
  }

  TEST_CASE("shelf: files with other names, and those that are being written, stay") {
    const TemporaryFolder directory;
    TraceOptions options = OptionsFor(directory);
    options.total_files = 1;
    Names others = {"notes.txt",
                    "specd-best.mcap",
                    NameOf(1) + ".mcap.bak",
                    NameOf(1) + "x.mcap",
                    "old-" + NameOf(1) + ".mcap",
                    "specd-20260101T000000Z-17-s-1.mcap"};
    for (const std::string& name : others) Leave(directory.path() + "/" + name, 10, 1000);
    const std::string written = directory.path() + "/" + NameOf(7) + ".mcap";
    auto made = FileWriter::Create(written);
    REQUIRE(made.ok());
    std::optional<FileWriter> writer(*std::move(made));
    Leave(directory.path() + "/" + NameOf(8) + ".mcap", 10, 2'000'000'000);
    TraceShelf(options).Adopt();
    others.insert({NameOf(7) + ".mcap", NameOf(8) + ".mcap"});
    CHECK(NamesIn(directory.path()) == others);
    // Its writer is gone: it is the older one of two.
    REQUIRE(writer->Close().ok());
    TraceShelf(options).Adopt();
    others.erase(NameOf(7) + ".mcap");
    CHECK(NamesIn(directory.path()) == others);
  }
}

}  // namespace
}  // namespace specd::test
