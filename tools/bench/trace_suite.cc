#include "tools/bench/trace_suite.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include "daemon/session/session.h"
#include "daemon/trace/row_hash.h"
#include "daemon/trace/trace_recorder.h"
#include "ipc/base/mapping.h"
#include "ipc/segment/engine_channel.h"
#include "tests/support/session_steps.h"
#include "tools/bench/rows.h"

namespace specd::bench {
namespace {

constexpr size_t kLeastPairs = 200;
constexpr size_t kLeastPairsWithRows = 30;  // each waits for the disk
constexpr size_t kMostPairs = 20'000;
constexpr uint64_t kWarmUpRounds = 5;

double ToMicroseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

absl::Status Broken(std::string_view what) {
  return absl::InternalError(fmt::format("trace: {}", what));
}

// One memfd with the target rows and the drafter's rows of a round.
struct SharedRows {
  UniqueFd fd;
  uint64_t size_bytes = 0;
  uint64_t draft_offset = 0;
  std::vector<TokenId> drafts;  // the drafter's best id of each place
};

// An engine and its session.
class Scene {
 public:
  // `recorder` may be null.
  static absl::StatusOr<std::unique_ptr<Scene>> Create(const TraceBenchOptions& options,
                                                       int32_t batch, const SharedRows& rows,
                                                       TraceRecorder* recorder);
  ~Scene() {
    if (session_ != nullptr) session_->EndAll();
  }

  // Returns the time of a round in us.
  absl::StatusOr<double> RunRound();

 private:
  absl::Status Start(const TraceBenchOptions& options, int32_t batch, const SharedRows& rows,
                     TraceRecorder* recorder);

  ModelProfile profile_;
  SharedNames names_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<EngineChannel> channel_;
  std::vector<SequenceInput> inputs_;
  std::vector<TokenId> drafts_;
  std::vector<DraftKind> kinds_;
  std::vector<uint32_t> target_rows_;
  std::vector<uint32_t> draft_rows_;
  uint64_t round_id_ = 0;
};

absl::StatusOr<SharedRows> MakeRows(const TraceBenchOptions& options, int32_t batch) {
  const auto num_target = static_cast<int64_t>(batch) * (options.draft + 1);
  const auto num_draft = static_cast<int64_t>(batch) * options.draft;
  SharedRows rows;
  rows.fd = UniqueFd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  uint64_t offset = 0;
  for (const bool drafter : {false, true}) {
    const int64_t count = drafter ? num_draft : num_target;
    if (count == 0) continue;
    const absl::StatusOr<RowPool> pool = RowPool::Make({.dtype = DType::kFloat32,
                                                        .vocab_size = options.vocab_size,
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

absl::StatusOr<std::unique_ptr<Scene>> Scene::Create(const TraceBenchOptions& options,
                                                     int32_t batch, const SharedRows& rows,
                                                     TraceRecorder* recorder) {
  auto scene = std::make_unique<Scene>();
  if (absl::Status status = scene->Start(options, batch, rows, recorder); !status.ok()) {
    return status;
  }
  return scene;
}

absl::Status Scene::Start(const TraceBenchOptions& bench, int32_t batch, const SharedRows& rows,
                          TraceRecorder* recorder) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend("cpu");
  if (!backend.ok()) return backend.status();
  SessionOptions options;
  options.identity = {.session_id = recorder == nullptr ? uint64_t{1} : 2, .daemon_epoch = 1};
  options.limits = {.vocab_size = static_cast<uint32_t>(bench.vocab_size),
                    .max_batch = static_cast<uint32_t>(batch),
                    .max_sequences = static_cast<uint32_t>(batch),
                    .max_draft = static_cast<uint32_t>(bench.draft),
                    .ring_depth = 1,
                    .max_scores = 1};
  options.profile = &profile_;
  options.clock = Clock::Real();
  options.names = &names_;
  options.threads = bench.threads;
  options.recorder = recorder;
  absl::StatusOr<std::shared_ptr<Session>> session = Session::Create(options, *std::move(backend));
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  absl::StatusOr<Segment> segment =
      Segment::Attach(UniqueFd(fcntl(session_->segment().fd(), F_DUPFD_CLOEXEC, 0)));
  if (!segment.ok()) return segment.status();
  segment_ = std::make_unique<Segment>(*std::move(segment));
  channel_ = std::make_unique<EngineChannel>(segment_.get());

  const absl::StatusOr<uint32_t> region =
      session_->RegisterRegion(UniqueFd(fcntl(rows.fd.get(), F_DUPFD_CLOEXEC, 0)), rows.size_bytes);
  if (!region.ok()) return region.status();
  const auto places = static_cast<size_t>(bench.draft) + 1;
  const auto count = static_cast<size_t>(batch);
  TensorSpec spec;
  spec.num_rows = count * places;
  absl::Status status = session_->Bind(TensorRole::kTargetRows, *region, spec);
  spec.num_rows = count * (places - 1);
  spec.offset_bytes = rows.draft_offset;
  if (status.ok() && bench.draft > 0)
    status = session_->Bind(TensorRole::kDraftRows, *region, spec);
  if (!status.ok()) return status;

  drafts_ = rows.drafts;
  kinds_.assign(places, DraftKind::kSampled);
  target_rows_.resize(count * places);
  std::iota(target_rows_.begin(), target_rows_.end(), 0);
  draft_rows_.resize(count * (places - 1));
  std::iota(draft_rows_.begin(), draft_rows_.end(), 0);
  for (size_t i = 0; i < count; ++i) {
    SequenceParams params;
    params.temperature = 0.8;
    params.max_tokens = std::numeric_limits<int32_t>::max();
    params.has_seed = true;
    params.seed = i;
    const auto opened = session_->OpenSequences(fmt::format("sequence {}", i), params);
    if (!opened.ok()) return opened.status();
    SequenceInput input;
    input.sequence = opened->front().handle;
    input.draft = {.num_nodes = bench.draft,
                   .tokens = drafts_.data() + i * (places - 1),
                   .kinds = kinds_.data(),
                   .target_rows = target_rows_.data() + i * places,
                   .draft_rows = draft_rows_.data() + i * (places - 1)};
    inputs_.push_back(input);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Scene::RunRound() {
  const int64_t start_ns = Clock::Real()->NowNs();
  if (channel_->Submit(++round_id_, inputs_, static_cast<uint64_t>(start_ns)) != PushResult::kOk ||
      !StepSession(session_)) {
    return Broken("a round was not taken");
  }
  CompletionView done;
  if (!channel_->Poll(&done)) return Broken("a round was not answered");
  const double time_us = ToMicroseconds(Clock::Real()->NowNs() - start_ns);
  for (const SequenceResult& result : done.results) {
    if (result.status != RoundStatus::kOk) return Broken("a sequence was not verified");
  }
  return time_us;
}

// The median's interval from the binomial law of the order statistics.
void SetDifferences(std::vector<double> differences, TraceMeasurement* measurement) {
  std::sort(differences.begin(), differences.end());
  const auto count = static_cast<double>(differences.size());
  const double half = 1.96 * std::sqrt(count) / 2;
  const auto at = [&](double index) {
    return differences[static_cast<size_t>(std::clamp(index, 0.0, count - 1))];
  };
  measurement->added_us = at(count / 2);
  measurement->added_low_us = at(std::floor(count / 2 - half));
  measurement->added_high_us = at(std::ceil(count / 2 + half));
}

uint64_t BytesOf(const std::string& directory, std::string_view ending) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().string().ends_with(ending)) bytes += entry.file_size();
  }
  return bytes;
}

}  // namespace

absl::Status TraceSuite::Run() {
  for (const int32_t batch : options_.batches) {
    for (const std::string_view level : {"rounds", "hashes", "rows"}) {
      hooks_.on_progress(fmt::format("level {}, {} sequences", level, batch));
      if (absl::Status status = Measure(level, batch); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status TraceSuite::Measure(std::string_view level, int32_t batch) {
  const absl::StatusOr<SharedRows> rows = MakeRows(options_, batch);
  if (!rows.ok()) return rows.status();
  const std::string directory = fmt::format("{}/{}-{}", options_.directory, level, batch);
  // Room for two rounds with rows. Files with rows go while the suite runs.
  const absl::StatusOr<TraceOptions> trace =
      ParseTraceOptions(directory, fmt::format("level={},buffer_mib={},file_mib=512,total_mib=1024",
                                               level, 64 + 5 * (rows->size_bytes >> 20)));
  if (!trace.ok()) return trace.status();
  absl::StatusOr<std::unique_ptr<TraceRecorder>> recorder = TraceRecorder::Start(
      {.trace = *trace, .process = {}, .clock = Clock::Real(), .log = nullptr});
  if (!recorder.ok()) return recorder.status();
  absl::StatusOr<std::unique_ptr<Scene>> plain = Scene::Create(options_, batch, *rows, nullptr);
  if (!plain.ok()) return plain.status();
  absl::StatusOr<std::unique_ptr<Scene>> traced =
      Scene::Create(options_, batch, *rows, recorder->get());
  if (!traced.ok()) return traced.status();

  TraceMeasurement measurement{
      .level = level, .batch = batch, .draft = options_.draft, .vocab_size = options_.vocab_size};
  PairedTimes times;
  std::vector<double> differences;
  for (uint64_t i = 0; i < kWarmUpRounds; ++i) {
    for (Scene* const scene : {plain->get(), traced->get()}) {
      if (auto time = scene->RunRound(); !time.ok()) return time.status();
    }
  }
  const LoadMeter meter;
  const int64_t end_ns = Clock::Real()->NowNs() + static_cast<int64_t>(options_.seconds * 1e9);
  const size_t least = level == "rows" ? kLeastPairsWithRows : kLeastPairs;
  while (times.case_us.size() < least ||
         (times.case_us.size() < kMostPairs && Clock::Real()->NowNs() < end_ns)) {
    // Rows fill the buffer faster than a disk empties it: the cost is that of an empty buffer.
    if (level == "rows") {
      if (auto dump = (*recorder)->Dump(2, absl::Seconds(60)); !dump.ok()) return dump.status();
    }
    double pair_us[2] = {};  // plain, traced
    const size_t first = times.case_us.size() % 2;
    for (const size_t which : {first, 1 - first}) {
      const absl::StatusOr<double> time = (which == 0 ? *plain : *traced)->RunRound();
      if (!time.ok()) return time.status();
      pair_us[which] = *time;
    }
    times.base_us.push_back(pair_us[0]);
    times.case_us.push_back(pair_us[1]);
    differences.push_back(pair_us[1] - pair_us[0]);
  }
  measurement.load = meter.Read();
  const auto num_rounds = static_cast<double>(times.case_us.size() + kWarmUpRounds);
  measurement.traced_us = Summarise(std::move(times.case_us));
  measurement.plain_us = Summarise(std::move(times.base_us));
  SetDifferences(std::move(differences), &measurement);
  const absl::StatusOr<TraceDump> dump = (*recorder)->Dump(2, absl::Seconds(60));
  if (!dump.ok()) return dump.status();
  const uint64_t num_dropped = dump->num_lost;
  traced->reset();
  (*recorder)->Stop();
  measurement.num_dropped = num_dropped;
  const double kept = num_rounds - static_cast<double>(num_dropped);
  if (level != "rows" && kept > 0) {
    measurement.bytes_per_sequence_round =
        static_cast<double>(BytesOf(directory, ".mcap")) / (kept * batch);
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  hooks_.on_result(measurement);
  return absl::OkStatus();
}

double MeasureRowHash() {
  constexpr size_t kBytes = size_t{512} << 20;
  std::vector<std::byte> memory(kBytes, std::byte{1});
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    uint64_t sum = 0;
    for (size_t at = 0; at < kBytes; at += size_t{512} << 10) {
      sum += RowHash(std::span(memory).subspan(at, size_t{512} << 10));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (sum == 0) return 0;
    best = std::max(best, static_cast<double>(kBytes) / 1e9 / seconds.count());
  }
  return best;
}

}  // namespace specd::bench
