// BatchDrafts shows the arrays of a specd_batch as one specd_draft for each sequence, for
// EngineRounds.
//
// A batch therefore takes the way of specd_submit from there on: CheckDraft and InputOf
// (daemon/client/draft_arguments.h). Rows that the batch leaves out are rows in order. A view: the
// arrays and the numbers outlive it.
//
//   const RowNumbers numbers(limits);          // once
//   BatchDrafts drafts;
//   absl::Status status = BatchDrafts::Check(batch, limits, numbers, &drafts);
//   drafts[i]                                  // a specd_draft
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ipc/base/limits.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/engine_channel.h"

namespace specd {

// The numbers 0, 1, 2, ... for every place of the largest round.
class RowNumbers {
 public:
  explicit RowNumbers(const SessionLimits& limits);
  const uint32_t* from(uint32_t first) const { return numbers_.data() + first; }

 private:
  std::vector<uint32_t> numbers_;
};

class BatchDrafts {
 public:
  // Checks the counts, so that every draft lies inside the arrays.
  static absl::Status Check(const specd_batch& batch, const SessionLimits& limits,
                            const RowNumbers& numbers, BatchDrafts* out);

  specd_draft operator[](uint32_t i) const;
  RoundSize size() const { return size_; }

 private:
  uint32_t FirstNode(uint32_t i) const {
    return batch_->draft_offsets == nullptr ? 0 : batch_->draft_offsets[i];
  }

  const specd_batch* batch_ = nullptr;
  const RowNumbers* numbers_ = nullptr;
  RoundSize size_;
};

}  // namespace specd
