// The suite `trace`: what a trace adds to the rounds of an engine.
//
// Two sessions in one process read the same rows: one is recorded, the other is not. Their rounds
// are timed in turn, in pairs whose order alternates, so that a disturbance of the machine disturbs
// both. The writer's thread runs beside them, on the same processors.
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/trace/row_hash.h"
#include "daemon/trace/trace_recorder.h"
#include "ipc/base/mapping.h"
#include "tests/support/session_steps.h"
#include "tools/bench/rows.h"
#include "tools/bench/session_engine.h"
#include "tools/bench/suite.h"

namespace specd::bench {
namespace {

constexpr CaseWords kLevels[] = {{"rounds", "decisions of every round"},
                                 {"hashes", "and hashes of its rows"},
                                 {"rows", "and the rows themselves"}};
constexpr size_t kLeastPairs = 200;
constexpr size_t kLeastPairsWithRows = 30;  // each waits for the disk
constexpr size_t kMostPairs = 20'000;
constexpr uint64_t kWarmUpRounds = 5;

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
  const auto num_target = int64_t{shape.batch} * (shape.draft + 1);
  const auto num_draft = int64_t{shape.batch} * shape.draft;
  SharedRows rows;
  rows.fd = UniqueFd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  uint64_t offset = 0;
  for (const bool drafter : {false, true}) {
    const int64_t count = drafter ? num_draft : num_target;
    if (count == 0) continue;
    const absl::StatusOr<RowPool> pool = RowPool::Make({.dtype = DType::kFloat32,
                                                        .vocab_size = shape.vocab_size,
                                                        .num_rows = count,
                                                        .drafter = drafter});
    if (!pool.ok()) return pool.status();
    if (drafter) rows.draft_offset = offset;
    const auto row_bytes = static_cast<size_t>(pool->row_bytes());
    for (int64_t i = 0; i < count; ++i) {
      const auto written =
          pwrite(rows.fd.get(), RowAt(pool->view(), i).data, row_bytes, static_cast<off_t>(offset));
      if (written != static_cast<ssize_t>(row_bytes)) return Broken("the rows have no memory");
      offset += row_bytes;
      if (drafter) rows.drafts.push_back(pool->best_id(i));
    }
  }
  rows.size_bytes = offset;
  if (fcntl(rows.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return Broken("the rows are not sealed");
  return rows;
}

// An engine, whose session this thread serves.
class Scene {
 public:
  // `recorder` may be null.
  absl::Status Start(const Shape& shape, const SharedRows& rows, TraceRecorder* recorder);

  // Adds the time of a round in us.
  absl::Status RunRound(std::vector<double>* times_us) {
    const SteadyClock::time_point start = SteadyClock::now();
    if (absl::Status status = engine_->Submit(); !status.ok()) return status;
    if (!StepSession(engine_->session())) return Broken("a round was not taken");
    const absl::StatusOr<bool> is_answered = engine_->Poll();
    times_us->push_back(MicrosSince(start));
    if (!is_answered.ok()) return is_answered.status();
    return *is_answered ? absl::OkStatus() : Broken("a round was not answered");
  }

 private:
  std::vector<TokenId> drafts_;
  std::vector<DraftKind> kinds_;
  std::vector<uint32_t> target_rows_;
  std::vector<uint32_t> draft_rows_;
  std::unique_ptr<SessionEngine> engine_;
};

absl::Status Scene::Start(const Shape& shape, const SharedRows& rows, TraceRecorder* recorder) {
  SessionOptions options;
  options.identity.session_id = recorder == nullptr ? 1 : 2;
  options.limits = {.vocab_size = static_cast<uint32_t>(shape.vocab_size),
                    .max_batch = static_cast<uint32_t>(shape.batch),
                    .max_sequences = static_cast<uint32_t>(shape.batch),
                    .max_draft = static_cast<uint32_t>(shape.draft),
                    .ring_depth = 1,
                    .max_scores = 1};
  options.threads = shape.threads;
  options.recorder = recorder;
  auto engine = SessionEngine::Create(options);
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  Session& session = *engine_->session();
  const absl::StatusOr<uint32_t> region =
      session.RegisterRegion(UniqueFd(fcntl(rows.fd.get(), F_DUPFD_CLOEXEC, 0)), rows.size_bytes);
  if (!region.ok()) return region.status();
  const auto drafts = static_cast<size_t>(shape.draft);
  const auto count = static_cast<size_t>(shape.batch);
  TensorSpec spec;
  spec.num_rows = count * (drafts + 1);
  absl::Status status = session.Bind(TensorRole::kTargetRows, *region, spec);
  spec.num_rows = count * drafts;
  spec.offset_bytes = rows.draft_offset;
  if (status.ok() && drafts > 0) status = session.Bind(TensorRole::kDraftRows, *region, spec);

  drafts_ = rows.drafts;
  kinds_.assign(drafts + 1, DraftKind::kSampled);
  target_rows_.resize(count * (drafts + 1));
  std::iota(target_rows_.begin(), target_rows_.end(), 0);
  draft_rows_.resize(count * drafts);
  std::iota(draft_rows_.begin(), draft_rows_.end(), 0);
  for (size_t i = 0; i < count && status.ok(); ++i) {
    SequenceParams params;
    params.temperature = 0.8;
    params.max_tokens = std::numeric_limits<int32_t>::max();
    params.has_seed = true;
    params.seed = i;
    const Draft draft = {.num_nodes = shape.draft,
                         .tokens = drafts_.data() + i * drafts,
                         .kinds = kinds_.data(),
                         .target_rows = target_rows_.data() + i * (drafts + 1),
                         .draft_rows = draft_rows_.data() + i * drafts};
    status = engine_->Open(fmt::format("sequence {}", i), params, draft);
  }
  return status;
}

uint64_t BytesOf(const std::string& directory, std::string_view ending) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().string().ends_with(ending)) bytes += entry.file_size();
  }
  return bytes;
}

// RowHash over a row that is not in a cache, in GB/s.
double MeasureRowHash() {
  constexpr size_t kBytes = size_t{512} << 20;
  std::vector<std::byte> memory(kBytes, std::byte{1});
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const SteadyClock::time_point start = SteadyClock::now();
    uint64_t sum = 0;
    for (size_t at = 0; at < kBytes; at += size_t{512} << 10) {
      sum += RowHash(std::span(memory).subspan(at, size_t{512} << 10));
    }
    const double time_us = MicrosSince(start);
    if (sum == 0) return 0;
    best = std::max(best, static_cast<double>(kBytes) / 1e3 / time_us);
  }
  return best;
}

struct Differences {
  double median_us = 0;
  double low_us = 0;
  double high_us = 0;
};

// The median's interval from the binomial law of the order statistics.
Differences DifferencesOf(const std::vector<double>& plain_us,
                          const std::vector<double>& traced_us) {
  std::vector<double> differences;
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
  const absl::StatusOr<SharedRows> rows = MakeRows(shape);
  if (!rows.ok()) return rows.status();
  // Room for two rounds with rows. Files with rows go while the suite runs.
  const absl::StatusOr<TraceOptions> trace =
      ParseTraceOptions(directory, fmt::format("level={},buffer_mib={},file_mib=512,total_mib=1024",
                                               level, 64 + 5 * (rows->size_bytes >> 20)));
  if (!trace.ok()) return trace.status();
  absl::StatusOr<std::unique_ptr<TraceRecorder>> recorder = TraceRecorder::Start(
      {.trace = *trace, .process = {}, .clock = Clock::Real(), .log = nullptr});
  if (!recorder.ok()) return recorder.status();
  auto plain = std::make_unique<Scene>();
  auto traced = std::make_unique<Scene>();
  absl::Status status = plain->Start(shape, *rows, nullptr);
  if (status.ok()) status = traced->Start(shape, *rows, recorder->get());

  std::vector<double> plain_us;
  std::vector<double> traced_us;
  const auto run_pair = [&](size_t index) {
    const bool is_plain_first = index % 2 == 0;
    absl::Status s = is_plain_first ? plain->RunRound(&plain_us) : traced->RunRound(&traced_us);
    if (!s.ok()) return s;
    return is_plain_first ? traced->RunRound(&traced_us) : plain->RunRound(&plain_us);
  };
  for (uint64_t i = 0; i < kWarmUpRounds && status.ok(); ++i) status = run_pair(0);
  plain_us.clear();
  traced_us.clear();
  const LoadMeter meter;
  const TimingBounds bounds = {seconds, has_rows ? kLeastPairsWithRows : kLeastPairs, kMostPairs};
  if (status.ok()) {
    status = Repeat(bounds, [&](size_t index) {
      // Rows fill the buffer faster than a disk empties it: the cost is that of an empty buffer.
      if (has_rows) {
        if (auto dump = (*recorder)->Dump(2, absl::Seconds(60)); !dump.ok()) return dump.status();
      }
      return run_pair(index);
    });
  }
  if (!status.ok()) return status;
  const ForeignLoad load = meter.Read();
  const absl::StatusOr<TraceDump> dump = (*recorder)->Dump(2, absl::Seconds(60));
  if (!dump.ok()) return dump.status();
  traced.reset();
  (*recorder)->Stop();
  const double kept =
      static_cast<double>(traced_us.size() + kWarmUpRounds) - static_cast<double>(dump->num_lost);
  const double bytes = has_rows || kept <= 0 ? 0
                                             : static_cast<double>(BytesOf(directory, ".mcap")) /
                                                   (kept * shape.batch);
  const Differences added = DifferencesOf(plain_us, traced_us);
  const Summary base = Summarise(std::move(plain_us));
  const Summary with_trace = Summarise(std::move(traced_us));
  Line line;
  line.Name("level", level, 8)
      .Count("batch", shape.batch, 5)
      .Count("draft", shape.draft, 5)
      .Count("vocab", shape.vocab_size, 7)
      .Cell("plain us", 9, "{:.1f}", base.median)
      .Cell("traced us", 9, "{:.1f}", with_trace.median)
      .Cell("added us", 9, "{:.1f}", added.median_us)
      .Cell("95 %", 16, "{:.1f}..{:.1f}", added.low_us, added.high_us)
      .Cell("added", 8, "{:.2f} %", 100 * added.median_us / base.median)
      .CellIf(bytes > 0, "bytes", 6, fmt::format("{:.0f}", bytes))
      .Count("pairs", base.num_samples, 6)
      .Count("lost", static_cast<int64_t>(dump->num_lost), 5)
      .Json("plain_us", base.median)
      .Json("traced_us", with_trace.median)
      .Json("added_us", added.median_us)
      .Json("added_low_us", added.low_us)
      .Json("added_high_us", added.high_us)
      .Json("bytes_per_sequence_round", bytes)
      .Load(load);
  out->Print(line);
  return absl::OkStatus();
}

absl::Status RunTrace(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  Shape shape = {.draft = flags.Number("draft"),
                 .vocab_size = flags.Number("vocab"),
                 .threads = flags.Number("threads")};
  if (shape.threads == 0) shape.threads = machine.usable_cpus;
  // A directory of its own, which goes at the end.
  std::string directory = flags.Text("directory");
  if (directory.empty()) directory = std::filesystem::temp_directory_path();
  directory += "/specd-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::InvalidArgumentError(fmt::format("directory: {} cannot be made", directory));
  }
  out->Begin(machine.processor, Describe(machine, shape.threads));
  if (!out->is_json()) {
    out->Caption(fmt::format("row hash: {:.1f} GB/s on one CPU", MeasureRowHash()));
  }
  absl::Status status;
  for (const int32_t batch : flags.Numbers("batch")) {
    for (const CaseWords* const level : Chosen(flags, kLevels)) {
      if (!status.ok()) break;
      shape.batch = batch;
      out->Show(fmt::format("level {}, {} sequences", level->name, batch));
      status = Measure(level->name, shape, flags.Real("seconds"),
                       fmt::format("{}/{}-{}", directory, level->name, batch), out);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return status;
}

}  // namespace

Suite TraceCommand() {
  using Kind = Flag::Kind;
  return {.name = "trace",
          .summary = "rounds of an engine with a trace beside rounds without",
          .examples = {"--quick --markdown"},
          .cases = WordsOf(kLevels),
          .seconds = "10",
          .quick_seconds = "2",
          .flags = {{.name = "batch",
                     .kind = Kind::kWhole,
                     .help = "sequences of a round",
                     .usual = "1,8,32",
                     .quick = "1,32",
                     .minimum = 1,
                     .maximum = 4096,
                     .is_list = true},
                    {.name = "vocab",
                     .kind = Kind::kWhole,
                     .help = "the vocabulary's size",
                     .usual = "128256",
                     .minimum = 1,
                     .maximum = kVocabSizeMax},
                    {.name = "draft",
                     .kind = Kind::kWhole,
                     .help = "draft tokens of a sequence",
                     .usual = "5",
                     .maximum = 64},
                    {.name = "threads",
                     .kind = Kind::kWhole,
                     .help = "threads of each session's rounds; 0: all usable CPUs",
                     .usual = "0",
                     .maximum = 1024},
                    {.name = "directory",
                     .help = "where files are made and deleted; without it the system's temporary "
                             "directory"}},
          .run = &RunTrace};
}

}  // namespace specd::bench
