// The suite `trace`: what a trace adds to the rounds of an engine.
//
// Two sessions in one process read the same rows: one is recorded, the other is not. Their rounds
// take turns. The writer's thread runs beside them, on the same processors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/recorder/trace_recorder.h"
#include "tests/support/session_steps.h"
#include "tools/bench/child_process.h"
#include "tools/bench/rows.h"
#include "tools/bench/session_engine.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr CaseWords kLevels[] = {{"rounds", "decisions of every round"},
                                 {"hashes", "and hashes of its rows"}};
constexpr size_t kLeastPairs = 200;
constexpr size_t kMostPairs = 20'000;
constexpr size_t kWarmUpRounds = 5;
// The design's: what level `rounds` may add to a round of so many sequences, in percent.
constexpr double kAddedMax = 3;
constexpr int32_t kGoalBatch = 32;
constexpr absl::Duration kDiskPatience = absl::Seconds(60);

struct Shape {
  int32_t batch = 0;
  int32_t draft = 0;
  int32_t vocab_size = 0;
  int32_t threads = 1;
};

// The rows of a round. A place's draft token is the drafter's best id.
struct Rows {
  RowPool target;
  std::optional<RowPool> draft;  // without drafts: none
};

absl::StatusOr<Rows> MakeRows(const Shape& shape) {
  RowSpec spec = {.vocab_size = shape.vocab_size,
                  .num_rows = int64_t{shape.batch} * (shape.draft + 1)};
  SPECD_TAKE(RowPool target, RowPool::Make(spec));
  Rows rows = {.target = std::move(target), .draft = {}};
  if (shape.draft == 0) return rows;
  spec.num_rows = int64_t{shape.batch} * shape.draft;
  spec.drafter = true;
  SPECD_TAKE(rows.draft, RowPool::Make(spec));
  return rows;
}

// An engine, whose session this thread serves.
class Scene {
 public:
  // `recorder` may be null.
  absl::Status Start(const Shape& shape, const Rows& rows, TraceRecorder* recorder);

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

absl::Status Scene::Start(const Shape& shape, const Rows& rows, TraceRecorder* recorder) {
  SessionOptions options;
  options.identity.session_id = recorder == nullptr ? 1 : 2;
  options.limits = LimitsOf(static_cast<uint32_t>(shape.batch), static_cast<uint32_t>(shape.draft),
                            static_cast<uint32_t>(shape.vocab_size));
  options.threads = shape.threads;
  options.recorder = recorder;
  SPECD_TAKE(engine_, SessionEngine::Create(options));
  SPECD_TRY(engine_->Bind(TensorRole::kTargetRows, rows.target.view()));
  const auto drafts = static_cast<size_t>(shape.draft);
  const auto count = static_cast<size_t>(shape.batch);
  if (rows.draft.has_value()) {
    SPECD_TRY(engine_->Bind(TensorRole::kDraftRows, rows.draft->view()));
    for (size_t i = 0; i < count * drafts; ++i) {
      drafts_.push_back(rows.draft->best_id(static_cast<int64_t>(i)));
    }
  }
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
  SPECD_TAKE(const Rows rows, MakeRows(shape));
  SPECD_TAKE(const TraceOptions trace,
             ParseTraceOptions(directory, fmt::format("level={}", level)));
  SPECD_TAKE(const auto recorder,
             TraceRecorder::Start(
                 {.trace = trace, .process = {}, .clock = Clock::Real(), .log = nullptr}));
  auto plain = std::make_unique<Scene>();
  auto traced = std::make_unique<Scene>();
  SPECD_TRY(plain->Start(shape, rows, nullptr));
  SPECD_TRY(traced->Start(shape, rows, recorder.get()));
  std::vector<Side> sides(2);
  sides[0].turn = [&](Times* times_us) { return plain->RunRound(times_us); };
  sides[1].turn = [&](Times* times_us) { return traced->RunRound(times_us); };
  SPECD_TAKE(const ForeignLoad load,
             TakeTurns({seconds, kLeastPairs, kMostPairs}, kWarmUpRounds, &sides));
  SPECD_TAKE(const TraceDump dump, recorder->Dump(2, kDiskPatience));
  traced.reset();
  recorder->Stop();
  const double kept = static_cast<double>(sides[1].times_us.size() + kWarmUpRounds) -
                      static_cast<double>(dump.num_lost);
  const double bytes = static_cast<double>(BytesOfTrace(directory)) / (kept * shape.batch);
  const auto [added, low, high] = MedianOf(sides[0].times_us, sides[1].times_us);
  const Summary base = Summarise(sides[0].times_us);
  const double percent = 100 * added / base.median;
  const bool has_goal = level == "rounds" && shape.batch == kGoalBatch;
  out->Print(
      Line()
          .Name("level", level, 8)
          .Count("batch", shape.batch, 5)
          .Count("draft", shape.draft, 5)
          .Count("vocab", shape.vocab_size, 7)
          .Number("plain us", 9, 1, base.median)
          .Number("traced us", 9, 1, Summarise(sides[1].times_us).median)
          .Number("added us", 9, 1, added)
          .Number("low us", 8, 1, low)
          .Number("high us", 8, 1, high)
          .Number("added %", 7, 2, percent)
          .Target({.measured = percent, .bound = has_goal ? kAddedMax : 0, .unit = "percent"})
          .Number("bytes", 6, 0, bytes)
          .Count("pairs", base.num_samples, 6)
          .Count("lost", static_cast<int64_t>(dump.num_lost), 5)
          .Load(load));
  return absl::OkStatus();
}

absl::Status RunTrace(const Flags& flags, Output* out) {
  Shape shape = {.draft = flags.Number("draft"),
                 .vocab_size = flags.Number("vocab"),
                 .threads = flags.Number("threads")};
  if (shape.threads == 0) shape.threads = ReadMachine().usable_cpus;
  SPECD_TAKE(const auto folder, TemporaryFolder::Make(flags.Text("directory")));
  out->Caption(fmt::format(
      "{} thread(s); low and high: the median's interval of 95 %; bytes of a sequence and round",
      shape.threads));
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
