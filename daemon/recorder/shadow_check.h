// ShadowCheck computes a recorded round again on the CPU and compares the answers bit for bit.
//
// The recorder's thread uses it for the option `check`. A difference means that the processor of
// the session and the CPU disagree, or that the engine wrote to its rows while the round ran. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/recorder/round_copy.h"
#include "kernels/backend.h"

namespace specd {

class ShadowCheck {
 public:
  // REQUIRES: the limits are those of the session.
  static absl::StatusOr<std::unique_ptr<ShadowCheck>> Create(const BackendLimits& limits);

  // Returns the first difference in words, or "" if there is none. Tasks whose rows or drafts were
  // not recorded are left out. REQUIRES: the round has rows and an outcome.
  std::string FindDifference(const RoundCopy& round);

  // Tasks that were compared.
  uint64_t num_checked() const { return num_checked_; }

 private:
  ShadowCheck(const BackendLimits& limits, std::unique_ptr<Backend> backend);

  // Adds the task to the batch. False if it cannot be computed again.
  bool AddTask(const RoundCopy& round, const TaskCopy& task);
  void MakeViews(const RoundCopy& round);
  std::string Compare(const TaskCopy& recorded, size_t task) const;

  const BackendLimits limits_;
  const std::unique_ptr<Backend> backend_;
  uint64_t num_checked_ = 0;

  // The batch; lists of one task lie num_places_ apart.
  size_t num_places_;
  RoundBatch batch_;
  std::vector<Task> tasks_;
  std::vector<const TaskCopy*> recorded_;
  std::vector<uint32_t> target_rows_;
  std::vector<uint32_t> draft_rows_;
  std::vector<PlaceEdits> places_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> path_;
  std::vector<TokenScore> scores_;
  std::vector<PlaceDecision> decisions_;
};

}  // namespace specd
