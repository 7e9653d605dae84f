#include "daemon/base/memory_budget.h"

#include <fmt/format.h>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

MemoryShare::~MemoryShare() {
  if (budget_ != nullptr) budget_->GiveBack(size_bytes_);
}

absl::StatusOr<MemoryShare> MemoryBudget::Take(std::string_view what, uint64_t size_bytes) {
  if (absl::Status status = Reserve(what, size_bytes); !status.ok()) return status;
  return MemoryShare(this, size_bytes);
}

absl::Status MemoryBudget::Reserve(std::string_view what, uint64_t size_bytes) {
  uint64_t taken = taken_bytes_.load(std::memory_order_relaxed);
  do {
    if (size_bytes > bytes_max_ - taken) {
      return MakeError(
          SPECD_ERROR_EXHAUSTED, flag_,
          fmt::format("{} would take {} bytes of the daemon's memory, and {} of the {} that --{} "
                      "allows are left; ask for less, close what is not needed, or start the "
                      "daemon with a larger --{}",
                      what, size_bytes, bytes_max_ - taken, bytes_max_, flag_, flag_));
    }
  } while (
      !taken_bytes_.compare_exchange_weak(taken, taken + size_bytes, std::memory_order_relaxed));
  if (whole_ == nullptr) return absl::OkStatus();
  absl::Status status = whole_->Reserve(what, size_bytes);
  if (!status.ok()) taken_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
  return status;
}

void MemoryBudget::GiveBack(uint64_t size_bytes) {
  taken_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
  if (whole_ != nullptr) whole_->GiveBack(size_bytes);
}

absl::Status OutOfMemory() {
  return MakeError(SPECD_ERROR_EXHAUSTED, "",
                   "the daemon has not enough memory for this request; "
                   "ask for less (shorter lists, a lower max_tokens, fewer samples), or close "
                   "sequences");
}

}  // namespace specd
