// DraftCheck watches, while a daemon runs, whether drafts were drawn from the q that their engine
// declared.
//
// The recorder's thread gives it copied rounds with rows (`check_drafts`); the rounds themselves
// read and compute nothing more. It looks at chains and at siblings with replacement. Drafts whose
// rows take edits, and siblings without replacement, are left to `specd-replay doctor`. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/recorder/round_copy.h"
#include "daemon/trace/draw_evidence.h"
#include "kernels/backend.h"

namespace specd {

class DraftCheck {
 public:
  // REQUIRES: the limits are those of the session.
  static absl::StatusOr<std::unique_ptr<DraftCheck>> Create(const BackendLimits& limits);

  // Looks at up to kDraftsMax drafts of a round and writes what it computes of p and q into the
  // decisions of its record. Returns a sentence if the evidence of all rounds so far says that q is
  // wrong: the first time, from 200 drafts on, and whenever the drafts have doubled since.
  // Otherwise "".
  std::string Take(const RoundCopy& round, TraceRound* record);

  // The recorder has one thread, and each draft costs some thirty rows. A round of more draft
  // tokens has so many of them in a row looked at. The round's number says which; if the outcome
  // did, those that are looked at would no longer be draws from q.
  static constexpr uint64_t kDraftsMax = 8;

  uint64_t num_draws() const { return evidence_.num_draws(); }

 private:
  DraftCheck(int32_t vocab_size, std::unique_ptr<Backend> backend);

  // Of all draft tokens of the round, those from `first` on are looked at, and at its end the
  // first.
  struct Window {
    uint64_t first = 0;
    uint64_t num_all = 0;
    bool Has(uint64_t index) const {
      return (index >= first ? index - first : index + num_all - first) < kDraftsMax;
    }
  };
  // `before`: the draft tokens of the tasks before it.
  void TakeTask(const RoundCopy& round, const TaskCopy& copy, const Window& window, uint64_t before,
                TraceTask* record);
  void TakeNode(const RoundCopy& round, const TaskCopy& copy, int32_t node, TraceTask* record);
  // p of a place; empty: it has edits, or its row was not recorded.
  bool ReadTarget(const RoundCopy& round, const Task& task, int32_t place);
  absl::Status Transform(const TensorView& shape, const RowCopy& row,
                         std::span<RowTransform> transforms);

  const std::unique_ptr<Backend> backend_;
  DrawEvidence evidence_;
  std::vector<float> p_;
  std::vector<OutcomeStatus> statuses_;
  // Ten drafts may prove that q is wrong, and say little of the cause.
  uint64_t warn_at_draws_ = 200;
};

}  // namespace specd
