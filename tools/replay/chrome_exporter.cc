#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tools/replay/column_file.h"
#include "tools/replay/exporter.h"

namespace specd::replay {
namespace {

// The Trace Event Format of chrome://tracing, which Perfetto reads too: complete events, in us.
class ChromeExporter final : public Exporter {
 public:
  absl::Status Take(const ExportedRound& exported) override {
    const TraceRound& round = exported.round;
    const TraceTimes& times = round.times;
    int32_t accepted = 0;
    uint32_t drafted = 0;
    for (const TraceTask& task : round.tasks) {
      if (!HasOutcome(round, task)) continue;
      accepted += task.outcome.num_accepted;
      drafted += exported.book.NumDrawnOf(task);
    }
    start_ns_ = exported.start_ns;
    const std::string facts =
        fmt::format("\"round\": {}, \"sequences\": {}, \"drafted\": {}, \"accepted\": {}",
                    round.number, round.answers.size(), drafted, accepted);
    Slice(fmt::format("round {}", round.number), times.taken, times.answered, 1, facts);
    Slice("queue", times.submitted, times.taken, 2, facts);
    Slice("pack", times.taken, times.packed, 2, facts);
    Slice("run", times.packed, times.ran, 2, facts);
    Slice("commit", times.ran, times.committed, 2, facts);
    Slice("answer", times.committed, times.answered, 2, facts);
    return absl::OkStatus();
  }

  absl::Status Finish(const SequenceBook&, OutputFile* out) override {
    absl::Status status = out->Write(
        "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n"
        "{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {\"name\": "
        "\"specd\"}},\n"
        "{\"ph\": \"M\", \"pid\": 1, \"tid\": 1, \"name\": \"thread_name\", \"args\": {\"name\": "
        "\"rounds\"}},\n"
        "{\"ph\": \"M\", \"pid\": 1, \"tid\": 2, \"name\": \"thread_name\", \"args\": {\"name\": "
        "\"stages\"}}");
    if (!status.ok()) return status;
    status = slices_.Read([&](std::string_view bytes) { return out->Write(bytes); });
    return status.ok() ? out->Write("\n]}\n") : status;
  }

 private:
  void Slice(std::string_view name, int64_t from_ns, int64_t to_ns, int thread,
             const std::string& facts) {
    if (from_ns == 0 || to_ns < from_ns) return;
    slices_.Append(fmt::format(
        ",\n{{\"ph\": \"X\", \"pid\": 1, \"tid\": {}, \"name\": \"{}\", \"ts\": {:.3f}, \"dur\": "
        "{:.3f}, \"args\": {{{}}}}}",
        thread, name, double(from_ns - start_ns_) / 1e3, double(to_ns - from_ns) / 1e3, facts));
  }

  int64_t start_ns_ = 0;
  ColumnFile slices_;
};

}  // namespace

std::unique_ptr<Exporter> MakeChromeExporter() { return std::make_unique<ChromeExporter>(); }

}  // namespace specd::replay
