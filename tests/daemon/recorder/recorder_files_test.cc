// The files of a recorder: rotation, the bound of their sum, and disks that are full or stuck.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "ipc/base/error.h"
#include "tests/daemon/recorder/traced_session.h"
#include "tests/support/eventually.h"

namespace specd::test {
namespace {

// Of the files that are still there when they are asked.
uint64_t SizeOf(const std::string& directory) {
  uint64_t size = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::error_code is_gone;
    const uint64_t bytes = entry.file_size(is_gone);
    if (!is_gone) size += bytes;
  }
  return size;
}

// Rounds with rows are 4 KiB in the row file and a bit in the trace.
void RunRounds(TracedSession* traced, SequenceHandle sequence, int count) {
  for (int i = 0; i < count; ++i) traced->Round({TracedSession::Sampled(sequence)});
}

TEST_SUITE("unit") {
  TEST_CASE("a full file is followed by another, which begins with the open sequences") {
    TracedSession traced({.trace_options = "level=rows,file_mib=1"});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    const SequenceHandle closed = traced.Open("closed");
    REQUIRE(traced.session->CloseSequence(closed).ok());
    RunRounds(&traced, s, 600);
    traced.Finish();
    const std::vector<std::string> paths = traced.traces();
    REQUIRE(paths.size() > 2);
    std::set<uint64_t> numbers;
    uint32_t kept = 0;
    for (const std::string& path : paths) {
      const ReadTraceResult trace = ReadTrace(path);
      CHECK_FALSE(trace.is_torn);
      CHECK(trace.infos.size() == 1);
      REQUIRE(trace.Opening(s) != nullptr);
      CHECK((trace.Opening(closed) != nullptr) == (path == paths[0]));
      CHECK(trace.Opening(s)->kept_tokens == kept);
      for (const TraceRound& round : trace.rounds) {
        numbers.insert(round.number);
        kept = round.answers[0].total_kept;
      }
      CHECK(std::filesystem::file_size(path) < 2 << 20);
    }
    CHECK(numbers.size() == 600);  // none is lost between two files
    CHECK(*numbers.rbegin() == 600);
  }

  TEST_CASE("the oldest files are deleted when the trace is larger than its bound") {
    TracedSession traced({.trace_options = "level=rows,file_mib=1,total_mib=3"});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    RunRounds(&traced, s, 3000);
    CHECK(Eventually([&] { return traced.lines.Contain("old files were deleted"); }));
    CHECK(Eventually([&] { return SizeOf(traced.directory) < (5 << 20); }));
    traced.Finish();  // the writer deletes files until here
    const ReadTraceResult oldest = ReadTrace(traced.traces().front());
    CHECK(oldest.rounds.front().number > 1);
    // The newest rounds are there.
    CHECK(ReadTrace(traced.traces().back()).rounds.back().number == 3000);
  }

  TEST_CASE("a disk that takes nothing costs trace and no round, and the trace says so") {
    // The reader of the pipe stands still.
    int pipe_ends[2];
    REQUIRE(pipe2(pipe_ends, O_CLOEXEC) == 0);
    const UniqueFd reader(pipe_ends[0]);
    std::atomic<bool> is_first{true};
    UniqueFd writer(pipe_ends[1]);
    TracedSession traced(
        {.trace_options = "level=rows,buffer_mib=1", .create_file = [&](const std::string& path) {
           if (path.ends_with(".mcap") && is_first.exchange(false)) {
             return absl::StatusOr<FileWriter>(FileWriter(std::move(writer), path));
           }
           return FileWriter::Create(path);
         }});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    // Far more than the ring, the pipe and a chunk hold together.
    RunRounds(&traced, s, 4000);
    CHECK(traced.session->counters().rounds == 4000);
    const UniqueFd gone(fcntl(reader.get(), F_DUPFD_CLOEXEC, 0));
    // The reader goes: the writer's thread gets an error and makes a new file.
    const_cast<UniqueFd&>(reader).Reset();
    const_cast<UniqueFd&>(gone).Reset();
    CHECK(Eventually([&] {
      RunRounds(&traced, s, 1);
      return !traced.traces().empty();
    }));
    CHECK(Eventually([&] { return traced.lines.Contain("rounds were not recorded"); }));
    RunRounds(&traced, s, 10);
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    CHECK_FALSE(trace.is_torn);
    CHECK(trace.rounds.back().number == traced.round_id);
    CHECK(trace.rounds.size() < traced.round_id);
  }

  TEST_CASE("a directory that cannot be used is refused by name") {
    const TemporaryFolder directory;
    const std::string file = directory.path() + "/file";
    REQUIRE(FileWriter::Create(file).ok());
    for (const std::string& path : {file, directory.path() + "/a/b", std::string("/proc/x")}) {
      const auto options = ParseTraceOptions(path, "");
      const auto recorder = TraceRecorder::Start(
          {.trace = *options, .process = {}, .clock = Clock::Real(), .log = nullptr});
      REQUIRE(!recorder.ok());
      CHECK(ErrorFieldOf(recorder.status()) == "trace");
      CHECK(std::string(recorder.status().message()).find(path) != std::string::npos);
    }
    // Only the last part of the path is made.
    const auto options = ParseTraceOptions(directory.path() + "/made", "");
    CHECK(TraceRecorder::Start(
              {.trace = *options, .process = {}, .clock = Clock::Real(), .log = nullptr})
              .ok());
  }
}

}  // namespace
}  // namespace specd::test
