// A Backend whose answers a test writes down beforehand: for testing what speculative/ and daemon/
// do with an outcome, whatever the kernels would have said. Also the way to inject a device fault.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "kernels/backend.h"

namespace specd {

struct ScriptedOutcome {
  ChainOutcome outcome;
  std::vector<TokenId> tokens;
};

// Confirms `accepted` drafts and one more token, the ids given in order.
inline ScriptedOutcome Confirm(int32_t num_accepted, std::vector<TokenId> tokens) {
  ScriptedOutcome scripted;
  scripted.outcome.num_accepted = num_accepted;
  scripted.outcome.num_tokens = static_cast<int32_t>(tokens.size());
  scripted.tokens = std::move(tokens);
  return scripted;
}

class ScriptedBackend : public Backend {
 public:
  std::string_view name() const override { return "scripted"; }
  absl::Status Prepare(const BackendLimits&) override { return absl::OkStatus(); }

  absl::Status Run(const RoundBatch& batch) override {
    if (!next_status.ok()) return next_status;
    for (int32_t i = 0; i < batch.num_tasks; ++i) {
      seen.push_back(batch.tasks[i]);
      SPECD_CHECK(!script.empty());
      batch.outcomes[i] = script.front().outcome;
      std::copy(script.front().tokens.begin(), script.front().tokens.end(),
                batch.tokens + static_cast<int64_t>(i) * batch.tokens_stride);
      script.pop_front();
    }
    return absl::OkStatus();
  }

  std::deque<ScriptedOutcome> script;
  std::vector<ChainTask> seen;
  absl::Status next_status;
};

}  // namespace specd
