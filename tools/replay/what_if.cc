#include "tools/replay/what_if.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "speculative/params/param_table.h"
#include "speculative/params/params.h"
#include "tools/replay/names.h"

namespace specd::replay {
namespace {

absl::Status CannotChange(const std::string& name) {
  if (FindParam(name) == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("set: {} is no parameter; docs/PARAMETERS.md lists them", name));
  }
  std::string_view why = "it acts before the step that recorded edits and rows begin with";
  if (name.starts_with("draft_")) {
    why = "the drafts were drawn with the drafter's own settings, and stay as they are";
  } else if (name == "seed") {
    why = "rerun averages over seeds of its own; --seeds says how many";
  } else if (name == "verify") {
    why = "give --method";
  } else if (name.starts_with("max_") || name.starts_with("stop") || name == "ignore_eos") {
    why = "it ends a sequence and does not change what a draft is judged by";
  }
  return absl::InvalidArgumentError(fmt::format(
      "set: {} cannot be changed on recorded rows: {}. temperature, top_p, top_k, min_p and "
      "filter_order can",
      name, why));
}

absl::Status CheckRange(const std::string& name, double value) {
  const ParamRow* const row = FindParam(name);
  if (row->range.Contains(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("set: {} = {} is outside {}", name, value, RangeText(row->range)));
}

}  // namespace

absl::StatusOr<WhatIf> WhatIf::Parse(const std::vector<std::pair<std::string, std::string>>& set,
                                     const std::string& method) {
  WhatIf what;
  for (const auto& [name, text] : set) {
    what.text_ += fmt::format("{}{} {}", what.text_.empty() ? "" : ", ", name, text);
    if (name == "filter_order") {
      if (text != "joint" && text != "sequential") {
        return absl::InvalidArgumentError(
            fmt::format("set: filter_order = {} is neither joint nor sequential", text));
      }
      what.joint_ = text == "joint";
      continue;
    }
    const bool is_known =
        name == "temperature" || name == "top_p" || name == "top_k" || name == "min_p";
    if (!is_known) return CannotChange(name);
    double value = 0;
    if (!absl::SimpleAtod(text, &value)) {
      return absl::InvalidArgumentError(fmt::format("set: {} = {} is no number", name, text));
    }
    if (absl::Status status = CheckRange(name, value); !status.ok()) return status;
    if (name == "temperature") what.temperature_ = value;
    if (name == "top_p") what.top_p_ = value;
    if (name == "min_p") what.min_p_ = value;
    if (name != "top_k") continue;
    if (value != std::floor(value) || value > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(fmt::format("set: top_k = {} is no whole number", text));
    }
    what.top_k_ = static_cast<int64_t>(value);
  }
  if (method.empty()) return what;
  VerifyMethod parsed = VerifyMethod::kAuto;
  if (!ParseMethod(method, &parsed) || parsed == VerifyMethod::kAuto) {
    return absl::InvalidArgumentError(fmt::format(
        "method = {} is none of block, token, tree, traversal, target_only, exact_match "
        "and greedy",
        method));
  }
  if (IsLossy(parsed)) {
    return absl::InvalidArgumentError(fmt::format(
        "method = {} is lossy, and its numbers are not those of a recorded round; take a lossless "
        "method",
        method));
  }
  what.method_ = parsed;
  what.text_ += fmt::format("{}method {}", what.text_.empty() ? "" : ", ", method);
  return what;
}

std::string WhatIf::Describe() const { return text_.empty() ? "as recorded" : text_; }

std::string WhatIf::Apply(int32_t vocab_size, bool has_draft_rows, Task* task) const {
  const bool was_greedy =
      task->method == VerifyMethod::kGreedy || (IsLossy(task->method) && task->lossy.is_greedy);
  if (method_) {
    task->method = *method_;
    task->lossy = {};
  }
  if (temperature_) {
    if (*temperature_ < kGreedyTemperature) {
      task->method = VerifyMethod::kGreedy;
    } else {
      task->target_scale = ScaleFor(*temperature_);
      if (was_greedy && !method_) return "a greedy task with a temperature needs --method";
    }
  }
  SequenceParams params;
  params.top_p = top_p_.value_or(1);
  params.top_k = top_k_.value_or(0);
  params.min_p = min_p_.value_or(0);
  params.temperature = temperature_.value_or(1);
  const Filters filters = MakeFilters(params, vocab_size);
  if (top_p_) task->target_filters.top_p = filters.top_p;
  if (top_k_) task->target_filters.top_k = filters.top_k;
  if (min_p_) task->target_filters.min_p = filters.min_p;
  if (joint_) task->target_filters.joint = *joint_;
  if (top_k_ && *top_k_ == 1) task->method = VerifyMethod::kGreedy;
  task->scores = {};  // they do not change what is accepted
  // SGLang's generator has no coins for other methods.
  if (method_ && task->method != VerifyMethod::kExactMatch) task->rng = Rng::kPhilox;
  if (task->method == VerifyMethod::kGreedy) {
    task->target_filters = {};
    return "";
  }
  if (task->rng == Rng::kSglang && (top_p_ || top_k_ || min_p_)) {
    return "rng = sglang takes no filters; name another --method";
  }
  if (task->draft.target_argmax != nullptr) return "the task has argmax ids in place of rows";
  if (task->target_scale <= 0) return "the task was greedy; give --set temperature=T";
  const bool verifies_chains =
      task->method == VerifyMethod::kToken || task->method == VerifyMethod::kBlock;
  if (verifies_chains && task->draft.parents != nullptr) {
    return "the draft is a tree, which token and block do not verify";
  }
  // A side channel speaks for the row only until a residual is needed.
  if (ReadsDraftRows(task->method) && !has_draft_rows) {
    return "a draft row of the task was not recorded";
  }
  return "";
}

}  // namespace specd::replay
