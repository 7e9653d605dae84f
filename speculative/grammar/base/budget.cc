#include "speculative/grammar/base/budget.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/grammar/base/compile_cancel.h"
#include "speculative/grammar/base/compile_turns.h"

namespace specd::grammar {
namespace {

thread_local Budget* current = nullptr;

// A unit takes some 8 ns (grammar.a small text cannot compile for long), a look at the clock 0.3
// us.
constexpr uint64_t kUnitsPerLook = 1 << 13;
// An allocation takes the time of some units, and filling its bytes takes more.
constexpr uint64_t kUnitsPerAllocation = 8;
constexpr uint64_t kBytesPerUnit = 64;

uint64_t ThreadCpuNs() {
  timespec now = {};
  SPECD_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

Budget::Budget(const BudgetLimits& limits) : outer_(current), limits_(limits) {
  if (limits_.cpu_ms != BudgetLimits::kNone) started_ns_ = ThreadCpuNs();
  current = this;
}

Budget::~Budget() { current = outer_; }

absl::Status Budget::Run(const BudgetLimits& limits, absl::FunctionRef<void()> function) {
  Budget budget(limits);
  try {
    function();
  } catch (const BudgetSpent&) {
    return budget.refusal_;
  }
  return budget.refusal_;
}

bool Budget::Refuse(std::string_view part, std::string_view remedy, absl::StatusCode code) {
  if (!refusal_.ok()) return false;
  std::string place = part_ != nullptr ? name_of_(part_) : std::string(rule_);
  if (!place.empty()) place += ": ";
  refusal_ = absl::Status(
      code, fmt::format("{}the constraint takes more than {} to compile; {}", place, part, remedy));
  return false;
}

bool Budget::IsTimeLeft() {
  if (limits_.cpu_ms == BudgetLimits::kNone) return true;
  if (!CompileTurn::MayGoOn()) {
    refusal_ = CompileCancel::Refusal();
    return false;
  }
  if ((ThreadCpuNs() - started_ns_) / 1'000'000 < limits_.cpu_ms) return true;
  return Refuse(fmt::format("compile_ms = {} of CPU time", limits_.cpu_ms),
                "use fewer branches, and shorten repetitions of texts that begin or end in many "
                "ways",
                absl::StatusCode::kDeadlineExceeded);
}

bool Budget::Spend(uint64_t units) {
  Budget* budget = current;
  if (budget == nullptr) return true;
  if (!budget->refusal_.ok()) return false;
  budget->units_ += units;
  if (budget->units_ > budget->limits_.units) {
    return budget->Refuse(fmt::format("{} steps", budget->limits_.units),
                          "shorten repetitions of texts that begin or end in many ways");
  }
  if (budget->units_ - budget->units_looked_ < kUnitsPerLook) return true;
  budget->units_looked_ = budget->units_;
  return budget->IsTimeLeft();
}

absl::Status Budget::Refusal() { return current == nullptr ? absl::OkStatus() : current->refusal_; }

void Budget::Take(size_t bytes) {
  if (current == nullptr) return;
  if (!Spend(kUnitsPerAllocation + bytes / kBytesPerUnit)) throw BudgetSpent();
  for (Budget* budget = current; budget != nullptr; budget = budget->outer_) {
    if (budget->bytes_ + bytes <= budget->limits_.bytes) continue;
    budget->Refuse(fmt::format("compile_mib = {} MiB", budget->limits_.bytes >> 20),
                   "use fewer and smaller alternatives, or shorten repetitions");
    throw BudgetSpent();
  }
  for (Budget* budget = current; budget != nullptr; budget = budget->outer_) {
    budget->bytes_ += bytes;
  }
}

void Budget::Give(size_t bytes) noexcept {
  // A list may be older than the budget.
  for (Budget* budget = current; budget != nullptr; budget = budget->outer_) {
    budget->bytes_ -= std::min<uint64_t>(bytes, budget->bytes_);
  }
}

Budget::Level::Level() {
  for (Budget* budget = current; budget != nullptr; budget = budget->outer_) {
    if (++budget->levels_ <= budget->limits_.levels) continue;
    is_ok_ = budget->Refuse(fmt::format("{} levels", budget->limits_.levels),
                            "let its parts refer to each other less deeply");
  }
}

Budget::Level::~Level() {
  for (Budget* budget = current; budget != nullptr; budget = budget->outer_) --budget->levels_;
}

Budget::Place::Place(const void* part, std::string (*name_of)(const void* part)) {
  if (current == nullptr) return;
  outer_part_ = std::exchange(current->part_, part);
  outer_name_of_ = std::exchange(current->name_of_, name_of);
  outer_rule_ = current->rule_;
}

Budget::Place::Place(std::string_view rule) : Place(nullptr, nullptr) {
  if (current != nullptr) current->rule_ = rule;
}

Budget::Place::~Place() {
  if (current == nullptr) return;
  current->part_ = outer_part_;
  current->name_of_ = outer_name_of_;
  current->rule_ = outer_rule_;
}

}  // namespace specd::grammar
