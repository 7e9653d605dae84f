// GpuRounds holds the rounds of a RoundSet in a device's memory for MeasureGpu, which launches them
// one after another.
//
// It also has a read of the rows that each round needs. Nothing is copied after Load, so times are
// those of the work on the device. The set, the driver and the probes must outlive it. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/round_upload.h"
#include "kernels/cuda/upload_arena.h"
#include "tools/bench/probes/gpu_probes.h"
#include "tools/bench/round_set.h"

namespace specd::bench {

class GpuRounds {
 public:
  GpuRounds(GpuDriver* driver, GpuProbes* probes, const RoundSet& set)
      : driver_(driver), probes_(probes), set_(set) {}

  // `expected` has the answers to all rounds. The rows that a round needs follow from its answer.
  GpuResult Load(const std::vector<RoundAnswer>& expected);

  // The round over the rows on the device, for a backend that stages its own tasks.
  RoundBatch Batch(int32_t round, RoundAnswer* answer) const;

  // These enqueue. REQUIRES: Load succeeded.
  GpuResult LaunchRound(int32_t round);
  GpuResult LaunchRead(int32_t round);
  int32_t rows_read(int32_t round) const {
    return rounds_[static_cast<size_t>(round)].read.num_rows;
  }

  // Overwrites the answers, so that a missing answer is noticed. REQUIRES: nothing is running.
  void SpoilAnswers();
  // Empty if the device's answer to the round is the expected one, to the bit; otherwise the place
  // of the difference. REQUIRES: nothing is running.
  std::string Difference(int32_t round, const RoundAnswer& expected) const;

 private:
  struct Staged {
    RoundUpload round;
    int32_t num_launches = 1;
    ArenaArray<Task> tasks;
    ArenaArray<TaskOutcome> outcomes;
    ArenaArray<TokenId> tokens;
    ArenaArray<TokenScore> scores;
    ReadPlan read;
  };

  size_t ArenaBytes() const;
  GpuResult CopyRows(const TensorView& tensor, DeviceMemory* memory);
  void StageRound(int32_t round, const RoundAnswer& expected);

  GpuDriver* driver_;
  GpuProbes* probes_;
  const RoundSet& set_;
  DeviceMemory target_;
  DeviceMemory draft_;
  DeviceMemory mask_;
  DeviceMemory round_memory_;
  UploadArena arena_;
  AnswerArena answers_;
  std::vector<Staged> rounds_;
};

}  // namespace specd::bench
