// WhatIf changes the settings of rebuilt tasks, for rerun.
//
// Only settings that act after the recorded edits can be changed: temperature, the filters, their
// order, and the method. The drafts were drawn with the drafter's settings and stay. Constant after
// Parse.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/round.h"

namespace specd::replay {

class WhatIf {
 public:
  // INVALID_ARGUMENT names a setting that is unknown, out of its range, or that recorded rows
  // cannot honour.
  static absl::StatusOr<WhatIf> Parse(const std::vector<std::pair<std::string, std::string>>& set,
                                      const std::string& method);

  // Changes a task. Returns an empty text, or why the task cannot run with these settings.
  // `has_draft_rows`: the row of every sampled token is there.
  std::string Apply(int32_t vocab_size, bool has_draft_rows, Task* task) const;

  // "temperature 0.7, method token".
  std::string Describe() const;

 private:
  std::optional<double> temperature_;
  std::optional<double> top_p_;
  std::optional<int64_t> top_k_;
  std::optional<double> min_p_;
  std::optional<bool> joint_;
  std::optional<VerifyMethod> method_;
  std::string text_;
};

}  // namespace specd::replay
