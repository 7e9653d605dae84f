// PendingOpening is an opening whose sequences have their slots and are built later, for
// SessionSequences and PendingOpenings. Plain data.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/base/memory_budget.h"
#include "daemon/session/open_request.h"

namespace specd {

struct PendingOpening {
  std::string request_id;
  OpenRequest open;
  std::vector<SequenceHandle> sequences;
  MemoryShare memory;  // of `open`, until it is built
  // Why a daemon before has refused the sequence. OK: none has, and it is built.
  absl::Status refusal;
};

}  // namespace specd
