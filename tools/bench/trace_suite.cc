// The suite `trace`: what a trace adds to the rounds of an engine.
//
// Two sessions in one process read the same rows: one is recorded, the other is not. Their rounds
// take turns. The writer's thread runs beside them, on the same processors.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/recorder/trace_recorder.h"
#include "ipc/base/mapping.h"
#include "tests/support/session_steps.h"
#include "tools/bench/child_process.h"
#include "tools/bench/rows.h"
#include "tools/bench/session_engine.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr CaseWords kLevels[] = {{"rounds", "decisions of every round"},
                                 {"hashes", "and hashes of its rows"},
                                 {"rows", "and the rows themselves"}};
constexpr size_t kLeastPairs = 200;
constexpr size_t kLeastPairsWithRows = 30;  // each waits for the disk
constexpr size_t kMostPairs = 20'000;
constexpr size_t kWarmUpRounds = 5;
constexpr absl::Duration kDiskPatience = absl::Seconds(60);

struct Shape {
  int32_t batch = 0;
  int32_t draft = 0;
  int32_t vocab_size = 0;
  int32_t threads = 1;
};

// One memfd with the target rows and the drafter's rows of a round.
struct SharedRows {
  UniqueFd fd;
  uint64_t size_bytes = 0;
  uint64_t draft_offset = 0;
  std::vector<TokenId> drafts;  // the drafter's best id of each place
};

absl::StatusOr<SharedRows> MakeRows(const Shape& shape) {
  SharedRows rows;
  rows.fd = UniqueFd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  for (const bool drafter : {false, true}) {
    const int64_t count = int64_t{shape.batch} * (shape.draft + (drafter ? 0 : 1));
    if (count == 0) continue;
    SPECD_TAKE(
        const RowPool pool,
        RowPool::Make({.vocab_size = shape.vocab_size, .num_rows = count, .drafter = drafter}));
    if (drafter) rows.draft_offset = rows.size_bytes;
    const auto row_bytes = static_cast<size_t>(pool.row_bytes());
    for (int64_t i = 0; i < count; ++i) {
      const auto written = pwrite(rows.fd.get(), RowAt(pool.view(), i).data, row_bytes,
                                  static_cast<off_t>(rows.size_bytes));
      if (written != static_cast<ssize_t>(row_bytes)) return Broken("the rows have no memory");
      rows.size_bytes += row_bytes;
      if (drafter) rows.drafts.push_back(pool.best_id(i));
    }
  }
  if (fcntl(rows.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return Broken("the rows are not sealed");
  }
  return rows;
}

// An engine, whose session this thread serves.
class Scene {
 public:
  // `recorder` may be null.
  absl::Status Start(const Shape& shape, const SharedRows& rows, TraceRecorder* recorder);

  // Adds the time of a round in us.
  absl::Status RunRound(Times* times_us) {
    const SteadyClock::time_point start = SteadyClock::now();
    SPECD_TRY(engine_->Submit());
    if (!StepSession(engine_->session())) return Broken("a round was not taken");
    const absl::StatusOr<bool> polled = engine_->Poll();
    times_us->push_back(MicrosSince(start));
    SPECD_TAKE(const bool is_answered, polled);
    return is_answered ? absl::OkStatus() : Broken("a round was not answered");
  }

 private:
  std::vector<TokenId> drafts_;
  std::vector<DraftKind> kinds_;
  std::vector<uint32_t> rows_;  // 0, 1, 2 ..
  std::unique_ptr<SessionEngine> engine_;
};

absl::Status Scene::Start(const Shape& shape, const SharedRows& rows, TraceRecorder* recorder) {
  SessionOptions options;
  options.identity.session_id = recorder == nullptr ? 1 : 2;
  options.limits = LimitsOf(static_cast<uint32_t>(shape.batch), static_cast<uint32_t>(shape.draft));
  options.limits.vocab_size = static_cast<uint32_t>(shape.vocab_size);
  options.limits.max_batch = static_cast<uint32_t>(shape.batch);
  options.threads = shape.threads;
  options.recorder = recorder;
  SPECD_TAKE(engine_, SessionEngine::Create(options));
  Session& session = *engine_->session();
  UniqueFd fd(fcntl(rows.fd.get(), F_DUPFD_CLOEXEC, 0));
  SPECD_TAKE(const uint32_t region, session.RegisterRegion(std::move(fd), rows.size_bytes));
  const auto drafts = static_cast<size_t>(shape.draft);
  const auto count = static_cast<size_t>(shape.batch);
  TensorSpec spec;
  spec.num_rows = count * (drafts + 1);
  SPECD_TRY(session.Bind(TensorRole::kTargetRows, region, spec));
  spec.num_rows = count * drafts;
  spec.offset_bytes = rows.draft_offset;
  if (drafts > 0) SPECD_TRY(session.Bind(TensorRole::kDraftRows, region, spec));

  drafts_ = rows.drafts;
  kinds_.assign(drafts + 1, DraftKind::kSampled);
  rows_.resize(count * (drafts + 1));
  std::iota(rows_.begin(), rows_.end(), 0);
  for (size_t i = 0; i < count; ++i) {
    SequenceParams params = Greedy();
    params.temperature = 0.8;
    params.has_seed = true;
    params.seed = i;
    const Draft draft = {.num_nodes = shape.draft,
                         .tokens = drafts_.data() + i * drafts,
                         .kinds = kinds_.data(),
                         .target_rows = rows_.data() + i * (drafts + 1),
                         .draft_rows = rows_.data() + i * drafts};
    SPECD_TRY(engine_->Open(fmt::format("sequence {}", i), params, draft));
  }
  return absl::OkStatus();
}

uint64_t BytesOfTrace(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".mcap") bytes += entry.file_size();
  }
  return bytes;
}

// The differences of pairs at their median, and at the ends of the median's interval, from the
// binomial law of the order statistics.
std::array<double, 3> MedianOf(const Times& plain_us, const Times& traced_us) {
  Times differences;
  for (size_t i = 0; i < plain_us.size(); ++i) differences.push_back(traced_us[i] - plain_us[i]);
  std::sort(differences.begin(), differences.end());
  const auto count = static_cast<double>(differences.size());
  const double half = 1.96 * std::sqrt(count) / 2;
  const auto at = [&](double index) {
    return differences[static_cast<size_t>(std::clamp(index, 0.0, count - 1))];
  };
  return {at(count / 2), at(std::floor(count / 2 - half)), at(std::ceil(count / 2 + half))};
}

absl::Status Measure(std::string_view level, const Shape& shape, double seconds,
                     const std::string& directory, Output* out) {
  const bool has_rows = level == "rows";
  SPECD_TAKE(const SharedRows rows, MakeRows(shape));
  // Room for two rounds with rows. Files with rows go while the suite runs.
  SPECD_TAKE(
      const TraceOptions trace,
      ParseTraceOptions(directory, fmt::format("level={},buffer_mib={},file_mib=512,total_mib=1024",
                                               level, 64 + 5 * (rows.size_bytes >> 20))));
  SPECD_TAKE(const auto recorder,
             TraceRecorder::Start(
                 {.trace = trace, .process = {}, .clock = Clock::Real(), .log = nullptr}));
  auto plain = std::make_unique<Scene>();
  auto traced = std::make_unique<Scene>();
  SPECD_TRY(plain->Start(shape, rows, nullptr));
  SPECD_TRY(traced->Start(shape, rows, recorder.get()));
  std::vector<Side> sides(2);
  sides[0].turn = [&](Times* times_us) { return plain->RunRound(times_us); };
  sides[1].turn = [&](Times* times_us) -> absl::Status {
    // Rows fill the buffer faster than a disk empties it: the cost is that of an empty buffer.
    if (has_rows) SPECD_TRY(recorder->Dump(2, kDiskPatience).status());
    return traced->RunRound(times_us);
  };
  SPECD_TAKE(const ForeignLoad load,
             TakeTurns({seconds, has_rows ? kLeastPairsWithRows : kLeastPairs, kMostPairs},
                       kWarmUpRounds, &sides));
  SPECD_TAKE(const TraceDump dump, recorder->Dump(2, kDiskPatience));
  traced.reset();
  recorder->Stop();
  const double kept = static_cast<double>(sides[1].times_us.size() + kWarmUpRounds) -
                      static_cast<double>(dump.num_lost);
  const bool has_bytes = !has_rows && kept > 0;
  const double bytes =
      has_bytes ? static_cast<double>(BytesOfTrace(directory)) / (kept * shape.batch) : 0;
  const auto [added, low, high] = MedianOf(sides[0].times_us, sides[1].times_us);
  const Summary base = Summarise(sides[0].times_us);
  const Summary with_trace = Summarise(sides[1].times_us);
  out->Print(Line()
                 .Name("level", level, 8)
                 .Count("batch", shape.batch, 5)
                 .Count("draft", shape.draft, 5)
                 .Count("vocab", shape.vocab_size, 7)
                 .Value("plain us", "plain_us", 9, "{:.1f}", base.median)
                 .Value("traced us", "traced_us", 9, "{:.1f}", with_trace.median)
                 .Value("added us", "added_us", 9, "{:.1f}", added)
                 .Cell("95 %", 16, "{:.1f}..{:.1f}", low, high)
                 .Cell("added", 8, "{:.2f} %", 100 * added / base.median)
                 .CellIf(bytes > 0, "bytes", 6, fmt::format("{:.0f}", bytes))
                 .Count("pairs", base.num_samples, 6)
                 .Count("lost", static_cast<int64_t>(dump.num_lost), 5)
                 .Json("added_low_us", low)
                 .Json("added_high_us", high)
                 .Json("bytes_per_sequence_round", bytes)
                 .Load(load));
  return absl::OkStatus();
}

absl::Status RunTrace(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  Shape shape = {.draft = flags.Number("draft"),
                 .vocab_size = flags.Number("vocab"),
                 .threads = flags.Number("threads")};
  if (shape.threads == 0) shape.threads = machine.usable_cpus;
  SPECD_TAKE(const auto folder, TemporaryFolder::Make(flags.Text("directory")));
  out->Begin(machine.processor, Describe(machine, shape.threads));
  for (const int32_t batch : flags.Numbers("batch")) {
    for (const CaseWords* const level : Chosen(flags, kLevels)) {
      shape.batch = batch;
      out->Show(fmt::format("level {}, {} sequences", level->name, batch));
      SPECD_TRY(Measure(level->name, shape, flags.Real("seconds"),
                        fmt::format("{}/{}-{}", folder->path(), level->name, batch), out));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Suite TraceCommand() {
  return {.name = "trace",
          .summary = "rounds of an engine with a trace beside rounds without",
          .examples = {"--quick --markdown"},
          .cases = WordsOf(kLevels),
          .seconds = "10",
          .quick_seconds = "2",
          .flags = {Flag::Wholes("batch", "sequences of a round", {1, 4096}, "1,8,32", "1,32"),
                    Flag::Whole("vocab", "the vocabulary's size", {1, kVocabSizeMax}, "128256"),
                    Flag::Whole("draft", "draft tokens of a sequence", {0, 64}, "5"),
                    Flag::Whole("threads", "threads of each session's rounds; 0: all usable CPUs",
                                {0, 1024}, "0"),
                    {.name = "directory",
                     .help = "where files are made and deleted; without it the system's temporary "
                             "directory"}},
          .run = &RunTrace};
}

}  // namespace specd::bench
