// PendingOpening is an opening whose sequences have their slots and are built later, for
// SessionSequences and PendingOpenings. Plain data.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/memory_budget.h"
#include "daemon/session/open_request.h"

namespace specd {

struct PendingOpening {
  std::string request_id;
  OpenRequest open;
  std::vector<SequenceHandle> sequences;
  MemoryShare memory;  // of `open`, until it is built
};

}  // namespace specd
