#include "speculative/round/mask_filler.h"

#include <atomic>

namespace specd {
namespace {

// False: the sequence needs another slice. The exception must not leave the thread, or the process
// would end. The matcher may stand anywhere after it, so the sequence cannot go on.
bool FillOne(MaskFiller::Job* job, grammar::WorkSlice slice) {
  try {
    return job->sequence->grammar.Fill(*job->draft, job->places, &job->next_place, &slice);
  } catch (...) {
    job->sequence->grammar_failed = true;
    return true;
  }
}

}  // namespace

MaskFiller::MaskFiller(int32_t threads, const grammar::MaskPool::NowNs& now_ns)
    : threads_(now_ns == nullptr ? 1 : threads), now_ns_(now_ns), pool_(now_ns) {}

void MaskFiller::Start() {
  if (is_started_) return;
  is_started_ = true;
  pool_.Start(threads_);
}

void MaskFiller::Share(size_t num_items, grammar::MaskPool::Work work) {
  if (threads_ > 1) return pool_.Share(num_items, threads_, work);
  for (size_t i = 0; i < num_items; ++i) work(i);
}

size_t MaskFiller::Fill(std::span<Job> jobs) {
  const bool has_clock = now_ns_ != nullptr;
  const int64_t begin_ns = has_clock ? now_ns_() : 0;
  const int64_t end_ns = begin_ns + kSliceNs;
  std::atomic<size_t> num_filled{jobs.size()};
  Share(jobs.size(), [&](size_t i) {
    const bool is_late = has_clock && i > 0 && now_ns_() >= end_ns;
    if (!is_late && FillOne(&jobs[i], has_clock ? kSlice : grammar::WorkSlice())) return;
    // Relaxed: Share orders this thread's stores before its caller's load.
    size_t known = num_filled.load(std::memory_order_relaxed);
    while (i < known && !num_filled.compare_exchange_weak(known, i, std::memory_order_relaxed)) {
    }
  });
  if (has_clock) spent_ns_ += now_ns_() - begin_ns;
  return num_filled.load(std::memory_order_relaxed);
}

}  // namespace specd
