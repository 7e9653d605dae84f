// The counters file: what a reader sees of it, who may write it, and what it does not believe.
#include "ipc/counters/counter_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ipc/base/fault_guard.h"
#include "ipc/counters/counter_snapshot.h"
#include "ipc/counters/open_metrics.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

struct Folder : TemporaryFolder {
  std::string file() const { return Of("c"); }
};

CounterPlan Plan() {
  return {.series =
              {{.name = "a:rounds", .labels = "model=\"x\\\"y\"", .help = "say \"so\" \\ on"},
               {.name = "a:rounds", .labels = "", .help = "say \"so\" \\ on", .first_value = 1},
               {.name = "a:wait_seconds",
                .labels = "",
                .help = "a wait",
                .kind = CounterKind::kTimes,
                .first_value = 8,
                .num_values = kTimesValues},
               {.name = "a:rare", .labels = "", .help = "", .is_optional = true, .first_value = 2}},
          .num_values = 64,
          .epoch = 77};
}

CounterFile Create(const std::string& path) {
  absl::StatusOr<CounterFile> file = CounterFile::Create(path, Plan());
  REQUIRE_MESSAGE(file.ok(), std::string(file.status().message()));
  return *std::move(file);
}

void Store(const CounterFile& file, size_t index, uint64_t value) {
  static_cast<std::atomic<uint64_t>*>(file.values())[index].store(value, std::memory_order_relaxed);
}

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Write(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_SUITE("unit") {
  TEST_CASE("a reader sees each value as it is stored, and the names with it") {
    const Folder folder;
    const CounterFile file = Create(folder.file());
    CHECK(reinterpret_cast<uintptr_t>(file.values()) % kCounterLineBytes == 0);
    Store(file, 1, 5);
    const auto seen = ReadCounters(folder.file());
    REQUIRE_MESSAGE(seen.ok(), std::string(seen.status().message()));
    CHECK(seen->is_alive);
    CHECK(seen->pid == static_cast<uint32_t>(getpid()));
    CHECK(seen->epoch == 77);
    REQUIRE(seen->series.size() == 4);
    REQUIRE(seen->Find("a:rounds") != nullptr);
    CHECK(seen->Find("a:rounds")->value() == 5);
    CHECK(seen->Find("a:rounds", "model=\"x\\\"y\"")->value() == 0);
    CHECK(seen->SumOf("a:rounds") == 5);
    Store(file, 0, 7);
    CHECK(ReadCounters(folder.file())->SumOf("a:rounds") == 12);
    struct stat found = {};
    REQUIRE(stat(folder.file().c_str(), &found) == 0);
    CHECK((found.st_mode & 0007) == 0);
  }

  TEST_CASE("the text is that of OpenMetrics: suffixes, cumulated buckets, escapes, the end") {
    const Folder folder;
    const CounterFile file = Create(folder.file());
    Store(file, 0, 3);
    Store(file, 8, 2);                 // at most 1 us
    Store(file, 8 + 1, 1);             // at most 2 us
    Store(file, 8 + kTimesBounds, 4);  // more than 8.4 s
    Store(file, 8 + kTimesBounds + 1, 41'000'000'500);
    const std::string text = OpenMetrics(*ReadCounters(folder.file()));
    CHECK(
        text.starts_with("# TYPE a:rounds counter\n"
                         "# HELP a:rounds say \\\"so\\\" \\\\ on\n"
                         "a:rounds_total{model=\"x\\\"y\"} 3\n"
                         "a:rounds_total 0\n"
                         "# TYPE a:wait_seconds histogram\n"
                         "# UNIT a:wait_seconds seconds\n"
                         "# HELP a:wait_seconds a wait\n"
                         "a:wait_seconds_bucket{le=\"0.000001\"} 2\n"
                         "a:wait_seconds_bucket{le=\"0.000002\"} 3\n"
                         "a:wait_seconds_bucket{le=\"0.000004\"} 3\n"));
    CHECK(
        text.ends_with("a:wait_seconds_bucket{le=\"8.388608\"} 3\n"
                       "a:wait_seconds_bucket{le=\"+Inf\"} 7\n"
                       "a:wait_seconds_sum 41.0000005\n"
                       "a:wait_seconds_count 7\n"
                       "# TYPE a:rare counter\n# HELP a:rare \n# EOF\n"));
    CHECK(text.find("_created") == std::string::npos);
  }

  TEST_CASE("quantiles are bounds of buckets") {
    CounterValues times = {.kind = CounterKind::kTimes, .values = {}};
    times.values.resize(kTimesValues);
    CHECK(times.QuantileNs(0.5) == 0);
    times.values[0] = 50;
    times.values[3] = 49;
    times.values[kTimesBounds] = 1;
    CHECK(times.QuantileNs(0.5) == 1'000);
    CHECK(times.QuantileNs(0.99) == 8'000);
    CHECK(times.QuantileNs(1.0) == uint64_t{1'000} << kTimesBounds);
  }

  TEST_CASE("two processes with one path: the second is refused by its name") {
    const Folder folder;
    {
      const CounterFile file = Create(folder.file());
      const auto second = CounterFile::Create(folder.file(), Plan());
      REQUIRE(!second.ok());
      CHECK(std::string(second.status().message()).find(folder.file()) != std::string::npos);
      CHECK(ReadCounters(folder.file())->is_alive);
    }
    CHECK(ReadCounters(folder.file()).status().code() == absl::StatusCode::kNotFound);
    const CounterFile third = Create(folder.file());
    CHECK(ReadCounters(folder.file())->is_alive);
  }

  TEST_CASE("a file of others is never replaced") {
    const Folder folder;
    Write(folder.file(), "root:x:0:0:root\n");
    CHECK(!CounterFile::Create(folder.file(), Plan()).ok());
    CHECK(Bytes(folder.file()).starts_with("root:x"));
    Write(folder.file(), "");  // of a daemon that died before its file was whole
    const CounterFile file = Create(folder.file());
    CHECK(ReadCounters(folder.file()).ok());
    CHECK(!CounterFile::Create(folder.path(), Plan()).ok());
    CHECK(!CounterFile::Create(folder.Of("none/c"), Plan()).ok());
    std::filesystem::create_symlink("c", folder.Of("link"));
    CHECK(!CounterFile::Create(folder.Of("link"), Plan()).ok());
  }

  TEST_CASE("the file of a killed process is readable, and its successor replaces it") {
    const Folder folder;
    const pid_t child = fork();
    if (child == 0) {
      absl::StatusOr<CounterFile> file = CounterFile::Create(folder.file(), Plan());
      if (!file.ok()) _exit(1);
      Store(*file, 0, 9);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const auto seen = ReadCounters(folder.file());
    REQUIRE(seen.ok());
    CHECK_FALSE(seen->is_alive);
    CHECK(seen->pid == static_cast<uint32_t>(child));
    CHECK(seen->SumOf("a:rounds") == 9);
    const CounterFile file = Create(folder.file());
    CHECK(ReadCounters(folder.file())->SumOf("a:rounds") == 0);
  }

  TEST_CASE("a file that is cut short under its writer does not end the writer") {
    FaultGuard::Install();
    const Folder folder;
    const CounterFile file = Create(folder.file());
    std::filesystem::resize_file(folder.file(), 0);
    Store(file, 0, 9);
    Store(file, 63, 9);
    CHECK(!ReadCounters(folder.file()).ok());
  }

  TEST_CASE("without a path there are values and no file") {
    const Folder folder;
    const CounterFile file = Create("");
    Store(file, 63, 9);
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE("a file that is cut short, or no file, is refused") {
    const Folder folder;
    std::string whole;
    {
      const CounterFile file = Create(folder.file());
      whole = Bytes(folder.file());
    }
    Write(folder.file(), whole);
    REQUIRE(ReadCounters(folder.file()).ok());
    for (size_t size = 0; size < whole.size(); ++size) {
      CAPTURE(size);
      Write(folder.file(), whole.substr(0, size));
      CHECK(!ReadCounters(folder.file()).ok());
    }
    Write(folder.file(), whole + "x");
    CHECK(!ReadCounters(folder.file()).ok());
    CHECK(!ReadCounters(folder.path()).ok());
    CHECK(!ReadCounters("/dev/zero").ok());
    REQUIRE(mkfifo(folder.Of("fifo").c_str(), 0600) == 0);
    CHECK(!ReadCounters(folder.Of("fifo")).ok());
  }

  // Each word of header, records and strings, with values at every edge. The reader refuses it, or
  // what it returns makes a text that is whole: every family once, no control character.
  TEST_CASE("a hostile file is refused, or harmless") {
    const Folder folder;
    std::string whole;
    {
      const CounterFile file = Create(folder.file());
      whole = Bytes(folder.file());
    }
    CounterHeader header;
    std::memcpy(&header, whole.data(), sizeof(header));
    int num_refused = 0;
    for (size_t at = 0; at + 4 <= header.values_offset; at += 2) {
      for (const uint32_t word : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU, 0x0a22005cU,
                                  static_cast<uint32_t>(whole.size())}) {
        std::string bytes = whole;
        std::memcpy(bytes.data() + at, &word, sizeof(word));
        Write(folder.file(), bytes);
        const auto seen = ReadCounters(folder.file());
        if (!seen.ok()) {
          ++num_refused;
          continue;
        }
        for (const char c : OpenMetrics(*seen)) {
          if (static_cast<unsigned char>(c) < 0x20 && c != '\n') FAIL("a control character");
        }
      }
    }
    CHECK(num_refused > 500);
  }
}

}  // namespace
}  // namespace specd
