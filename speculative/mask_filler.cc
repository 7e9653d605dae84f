#include "speculative/mask_filler.h"

#include <system_error>

namespace specd {
namespace {

// Estimate: a warm sequence takes a microsecond or two (specd-bench grammar, case round_k5), and
// waking a thread and hearing from it 5 to 20.
constexpr size_t kJobsAloneMax = 8;

}  // namespace

void MaskFiller::Start() {
  if (threads_ <= 1 || pool_ != nullptr) return;
  try {
    pool_ = std::make_unique<WorkerPool>(threads_);
  } catch (const std::system_error&) {
    // The system has no more threads. The caller fills alone, and nothing else changes.
  }
}

void MaskFiller::Fill(std::span<const Job> jobs) {
  if (pool_ == nullptr || jobs.size() <= kJobsAloneMax) {
    for (const Job& job : jobs) job.grammar->Fill(*job.draft, job.places);
    return;
  }
  const auto fill = [&jobs](int32_t item, int32_t, const TeamSeat& seat) {
    // A sequence is filled by one thread; the rest of a team has nothing to do.
    if (seat.group != 0) return;
    const Job& job = jobs[static_cast<size_t>(item)];
    job.grammar->Fill(*job.draft, job.places);
  };
  pool_->Share(static_cast<int32_t>(jobs.size()), false, fill);
}

}  // namespace specd
