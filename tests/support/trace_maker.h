// TraceMaker writes the rounds of a Verifier as a trace, for tests of specd-replay.
//
// It is the shortest code that gives such a file: every round, everything in it. The daemon's
// recorder is another class (daemon/trace). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "speculative/round/round_observer.h"
#include "tools/replay/trace_writer.h"

namespace specd {

class TraceMaker final : public RoundObserver {
 public:
  // With level kRows the rows go into the row file beside `path`.
  TraceMaker(const std::string& path, TraceLevel level, const TraceInfo& info);

  // The verifier's engine opened a sequence.
  void Opened(const TraceOpening& opening);
  void Ended(const TraceEnd& end);
  void Finish();

  void Begin(RoundBatch* batch) override;
  void Ran(const RanRound& round) override;
  void Committed(std::span<const SequenceResult> results,
                 std::span<const uint32_t> task_results) override;

 private:
  void AddTask(const RoundBatch& batch, int32_t index);
  void AddPlaces(const RoundBatch& batch, int32_t index, TraceTask* out);
  void AddRow(TraceTensor tensor, uint32_t index, const void* bytes, size_t size_bytes);
  void WriteRows();

  const TraceLevel level_;
  std::unique_ptr<replay::TraceWriter> writer_;
  TraceRound round_;
  std::vector<std::span<const std::byte>> rows_;  // of round_.rows
  std::vector<PlaceDecision> decisions_;
  uint64_t num_rounds_ = 0;
};

}  // namespace specd
