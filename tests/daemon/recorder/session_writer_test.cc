// The bounds of a session's writer, and its count of what a disk did not take.
#include "daemon/recorder/session_writer.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/trace/trace_codec.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/recorder/traced_session.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"

namespace specd::test {
namespace {

// A clock that does something each time it is asked, in the writer's own thread.
class BusyClock : public Clock {
 public:
  int64_t NowNs() override {
    now_ns_ += step_ns;
    if (when_asked != nullptr) when_asked();
    return now_ns_;
  }
  int64_t step_ns = 0;
  std::function<void()> when_asked;

 private:
  int64_t now_ns_ = 1;
};

// A writer without a thread, and the trace of a session that has no rounds, only ends of sequences.
struct LoneWriter {
  // `first` has the directory and the shelf that this one shares.
  explicit LoneWriter(std::string_view wanted = "", LoneWriter* first = nullptr,
                      uint64_t session_id = 0) {
    options =
        *ParseTraceOptions(first != nullptr ? first->directory.path() : directory.path(), wanted);
    TraceSession facts;
    facts.session_id = session_id;
    facts.limits = {.vocab_size = 64, .max_batch = 4, .max_draft = 3};
    facts.max_sequences = 4;
    trace = std::make_shared<SessionTrace>(options, facts, Clock::Real(), &bell);
    shelf = first != nullptr ? first->shelf : std::make_shared<TraceShelf>(options);
    writer = std::make_unique<SessionWriter>(trace, WriterParts{.options = &options,
                                                                .process = &process,
                                                                .create_file = &create_file,
                                                                .log = &log,
                                                                .shelf = shelf.get(),
                                                                .clock = &clock});
  }
  void Publish() { trace->Ended(kSequence, FinishReason::kLength, 1); }
  // How many records the writer takes from the ring while `act` runs.
  template <class Act>
  int CountTaken(Act act) {
    while (trace->ring().Front().has_value()) trace->ring().Pop();
    const uint64_t begin = trace->ring().published();
    Publish();
    const uint64_t record_bytes = trace->ring().published() - begin;
    trace->ring().Pop();
    const uint64_t before = trace->ring().popped();
    act();
    return static_cast<int>((trace->ring().popped() - before) / record_bytes);
  }

  static constexpr SequenceHandle kSequence = 0x100000000;
  TemporaryFolder directory;
  TraceOptions options;
  TraceProcess process;
  CreateFile create_file = &FileWriter::Create;
  TraceLog log;
  BusyClock clock;
  DoorbellLine bell{};
  std::shared_ptr<SessionTrace> trace;
  std::shared_ptr<TraceShelf> shelf;
  std::unique_ptr<SessionWriter> writer;
};

// No file of this process grows beyond the limit while the object lives: a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t size_bytes) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit = {size_bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

uint64_t NumReadable(const std::vector<std::string>& paths) {
  uint64_t count = 0;
  for (const std::string& path : paths) count += ReadTrace(path).rounds.size();
  return count;
}

uint64_t BytesIn(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    bytes += entry.file_size();
  }
  return bytes;
}

TEST_SUITE("unit") {
  // Bug: total_mib counted finished files only, so every session had file_mib beside it.
  TEST_CASE("the files that many sessions write at a time are below the bound of their sum") {
    constexpr std::string_view kOptions = "file_mib=2,total_mib=2,buffer_mib=1";
    constexpr uint64_t kTotal = 2 << 20;
    std::vector<std::unique_ptr<LoneWriter>> writers;
    uint64_t most = 0;
    uint64_t written = 0;
    for (uint64_t round = 0; round < 60; ++round) {
      if (writers.size() < 12) {  // a session more writes, and the others go on
        LoneWriter* const first = writers.empty() ? nullptr : writers[0].get();
        writers.push_back(std::make_unique<LoneWriter>(kOptions, first, writers.size()));
      }
      for (const auto& one : writers) {
        for (int i = 0; i < 1000; ++i) one->Publish();
        one->writer->DrainAll();
        one->writer->Tick();
        written += 1000;
        most = std::max(most, BytesIn(writers[0]->directory.path()));
      }
    }
    // A record has more than 20 bytes: without a bound there would be far more.
    REQUIRE(written * 20 > 5 * kTotal);
    CHECK(most > kTotal / 2);
    CHECK(most < kTotal + kTotal / 8);
    for (const auto& one : writers) one->writer->Finish();
    CHECK(BytesIn(writers[0]->directory.path()) < kTotal + kTotal / 8);
  }

  TEST_CASE("one drain takes at most 1000 records, so that other sessions have their turn") {
    LoneWriter lone;
    const int taken = lone.CountTaken([&] {
      for (int i = 0; i < 2500; ++i) lone.Publish();
      CHECK(lone.writer->Drain());
    });
    CHECK(taken == 1000);
    CHECK(lone.writer->Drain());
    CHECK(lone.writer->Drain());
    CHECK_FALSE(lone.trace->ring().Front().has_value());
    CHECK_FALSE(lone.writer->Drain());
  }

  TEST_CASE("one drain over a slow disk ends after a fifth of a second") {
    LoneWriter lone;
    lone.Publish();
    CHECK(lone.writer->Drain());  // makes the file
    lone.clock.step_ns = 30'000'000;
    const int taken = lone.CountTaken([&] {
      for (int i = 0; i < 100; ++i) lone.Publish();
      CHECK(lone.writer->Drain());
    });
    // The time is asked once before the first record and once after each: 7 times 30 ms are the
    // first after 200 ms.
    CHECK(taken == 7);
  }

  TEST_CASE("a drain of all records ends although the session adds more all the time") {
    // The bug: a dump waited for an empty ring, which a session that produced never left.
    LoneWriter lone;
    int num_added = 0;
    lone.clock.when_asked = [&] {
      if (++num_added < 100'000) lone.Publish();
    };
    const int taken = lone.CountTaken([&] {
      for (int i = 0; i < 50; ++i) lone.Publish();
      lone.writer->DrainAll();
    });
    CHECK(taken >= 50);
    // The bound of one Drain is the most that it takes beyond.
    CHECK(taken <= 1000);
    CHECK(lone.trace->ring().Front().has_value());
  }

  TEST_CASE("a session that closes while the disk hangs waits for nothing and loses nothing") {
    int pipe_ends[2];
    REQUIRE(pipe2(pipe_ends, O_CLOEXEC) == 0);
    const UniqueFd reader(pipe_ends[0]);
    UniqueFd writer(pipe_ends[1]);
    TracedSession traced({.trace_options = "", .create_file = [&](const std::string& path) {
                            return absl::StatusOr<FileWriter>(FileWriter(std::move(writer), path));
                          }});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    // The chunk that closes at 1 MiB does not fit into the pipe.
    for (int i = 0; i < 3000; ++i) traced.Round({TracedSession::Sampled(s)});
    const auto dump = traced.recorder->Dump(9, absl::Milliseconds(20));
    REQUIRE(!dump.ok());
    CHECK(ErrorCodeOf(dump.status()) == SPECD_ERROR_EXHAUSTED);
    CHECK(std::string(dump.status().message()).find("has not taken the trace") !=
          std::string::npos);
    traced.session->EndAll();
    traced.engine.reset();
    traced.session.reset();  // came back, while the recorder's thread still waits for the pipe
    // The disk is back: its reader takes the rest while the recorder stops.
    const TemporaryFolder directory;
    const std::string path = directory.path() + "/read-1.mcap";
    std::thread disk([&] {
      std::ofstream file(path, std::ios::binary);
      char bytes[65536];
      for (ssize_t num = 1; num > 0;) {
        num = read(reader.get(), bytes, sizeof(bytes));
        if (num > 0) file.write(bytes, num);
      }
    });
    traced.recorder->Stop();
    disk.join();
    const ReadTraceResult trace = ReadTrace(path);
    CHECK_FALSE(trace.is_torn);
    CHECK(trace.rounds.size() == 3000);
    CHECK(trace.drops.empty());
  }

  TEST_CASE("a record that no file takes is left out and counted, and the file goes on") {
    // A round above the bound of MCAP ended its file as a full disk does, with a pause.
    LoneWriter lone;
    TraceLosses losses(lone.trace.get(), &lone.log, &lone.clock);
    SessionFile file(lone.trace.get(),
                     {.options = &lone.options,
                      .process = &lone.process,
                      .create_file = &lone.create_file,
                      .log = &lone.log,
                      .shelf = lone.shelf.get(),
                      .clock = &lone.clock},
                     &losses, [](TraceFile&) { return absl::OkStatus(); });
    TraceOpening large;
    large.request_id.assign(kTraceRecordBytesMax, 'r');
    file.Put(true, [&](TraceFile& to) { return to.Write(large); });
    CHECK(file.is_open());
    CHECK(losses.disk_error().empty());
    CHECK(losses.num_lost() == 1);
    file.Put(false, [&](TraceFile& to) { return to.Write(large); });
    CHECK(losses.num_lost() == 1);  // the count is of rounds
    TraceRound round;
    round.number = 5;
    file.Put(true, [&](TraceFile& to) { return to.Write(&round, {}); });
    const auto dump = file.BringUpToDate();
    REQUIRE(dump.ok());
    CHECK(dump->num_rounds == 1);
    CHECK(dump->num_lost == 1);
    file.Close();
    const ReadTraceResult trace = ReadTrace(dump->path);
    CHECK(trace.openings.empty());
    REQUIRE(trace.rounds.size() == 1);
    REQUIRE(!trace.drops.empty());
    CHECK(trace.drops.back().rounds == 1);
    CHECK(trace.drops.back().why.find("at most 67108864 are allowed") != std::string::npos);
  }

  TEST_CASE("a full disk is left alone for a while, and the flight file that failed is gone") {
    // Each trigger wrote all rounds again, and left the part that had found room.
    LoneWriter lone("flight=8");
    int num_made = 0;
    lone.create_file = [&num_made](const std::string& path) {
      ++num_made;
      return FileWriter::Create(path);
    };
    const auto abort_one = [&lone] {
      SequenceResult result;
      result.sequence = LoneWriter::kSequence;
      lone.trace->Taken({.round_id = 1});
      lone.trace->Answered({&result, 1}, 5);
      lone.trace->Ended(LoneWriter::kSequence, FinishReason::kAbort, 1);
      lone.writer->DrainAll();
    };
    {
      const FileSizeLimit limit(100);
      for (int i = 0; i < 3; ++i) abort_one();
      CHECK(num_made == 1);
      // A person who asks is not made to wait.
      CHECK_FALSE(lone.writer->Dump(kTriggerRequest).ok());
      CHECK(num_made == 2);
      lone.writer->DumpForSignal();
      CHECK(num_made == 3);
      CHECK(std::filesystem::is_empty(lone.directory.path()));
    }
    abort_one();
    CHECK(num_made == 3);
    lone.clock.step_ns = 10'000'000'000;  // the pause is over
    abort_one();
    CHECK(num_made == 4);
    const std::vector<std::string> paths = TracesIn(lone.directory.path());
    REQUIRE(paths.size() == 1);
    CHECK(ReadTrace(paths[0]).rounds.size() == 5);
  }

  TEST_CASE("a round that was called off before it ran says why it has no rows") {
    const LoneWriter lone("level=rows,every=2");
    SessionTrace& trace = *lone.trace;
    SequenceResult result;
    result.sequence = LoneWriter::kSequence;
    result.status = RoundStatus::kAborted;
    for (const NoRows expected :
         {NoRows::kNone, NoRows::kChanged, NoRows::kNone, NoRows::kChanged}) {
      trace.Taken({.round_id = 1});
      trace.Answered({&result, 1}, 5);
      const auto record = trace.ring().Front();
      REQUIRE(record.has_value());
      CHECK(reinterpret_cast<const RoundCopy*>(record->bytes.data())->no_rows == expected);
      trace.ring().Pop();
    }
  }

  TEST_CASE("a round whose rows find no room is recorded without them, and says why") {
    TracedSession traced({.trace_options = "level=rows,buffer_mib=1",
                          .limits = {40000, 4, 4, 3, 2, 4},
                          .num_rows = 4});
    traced.FillRows(5);
    traced.Round({TracedSession::Sampled(traced.Open("s"))});
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.rounds.size() == 1);
    CHECK(trace.rounds[0].no_rows == NoRows::kNoRoom);
    REQUIRE(!trace.drops.empty());
    CHECK(trace.drops.back().rows == 1);
    CHECK(trace.drops.back().rounds == 0);
    CHECK(trace.drops.back().why.find("raise buffer_mib") != std::string::npos);
  }

  TEST_CASE("rounds of a chunk that a full disk did not take are counted as lost") {
    // The bug: the chunk's rounds were neither in the file nor in the count.
    ManualClock clock;
    TracedSession traced({.trace_options = "", .clock = &clock});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    const auto run = [&](int count) {
      for (int i = 0; i < count; ++i) traced.Round({TracedSession::Sampled(s)});
    };
    run(20);
    REQUIRE(traced.session->DumpTrace().ok());
    {
      const FileSizeLimit limit(std::filesystem::file_size(traced.traces().front()) + 100);
      run(300);
      const auto refused = traced.session->DumpTrace();
      REQUIRE(!refused.ok());
      CHECK(ErrorCodeOf(refused.status()) == SPECD_ERROR_EXHAUSTED);
    }
    clock.AdvanceNs(2'000'000'000);  // the disk is tried again
    run(5);
    const auto dump = traced.session->DumpTrace();
    REQUIRE(dump.ok());
    CHECK(dump->num_lost == 300);
    run(5);
    traced.Finish();
    const std::vector<std::string> paths = traced.traces();
    REQUIRE(paths.size() == 2);
    CHECK(ReadTrace(paths[0]).is_torn);
    const ReadTraceResult last = ReadTrace(paths[1]);
    CHECK(last.rounds.front().number == 321);
    REQUIRE(!last.drops.empty());
    CHECK(last.drops.back().rounds == 300);
    CHECK(last.drops.back().why.find("the disk took no more") != std::string::npos);
    // Each round is in a file or in the count.
    CHECK(NumReadable(paths) + last.drops.back().rounds == traced.round_id);
  }

  TEST_CASE("rounds before a full row file are whole, and are not counted as lost") {
    ManualClock clock;
    TracedSession traced({.trace_options = "level=rows", .clock = &clock});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    // A round has a page of target rows and a page of draft rows.
    {
      const FileSizeLimit limit(kRowFileAlignment * (1 + 2 * 10));
      for (int i = 0; i < 30; ++i) traced.Round({TracedSession::Sampled(s)});
      (void)traced.session->DumpTrace();
    }
    clock.AdvanceNs(2'000'000'000);
    traced.Round({TracedSession::Sampled(s)});
    traced.Finish();
    const std::vector<std::string> paths = traced.traces();
    REQUIRE(paths.size() == 2);
    const ReadTraceResult first = ReadTrace(paths[0]);
    CHECK_FALSE(first.is_torn);
    CHECK(first.rounds.size() == 10);
    const ReadTraceResult last = ReadTrace(paths[1]);
    REQUIRE(!last.drops.empty());
    CHECK(last.drops.back().rounds == 20);
    CHECK(last.rounds.size() == 1);
  }
}

}  // namespace
}  // namespace specd::test
