#include "speculative/mask_filler.h"

#include <atomic>

namespace specd {
namespace {

// The exception must not leave the thread, or the process would end. The matcher may stand anywhere
// after it, so the sequence cannot go on.
void FillOne(const MaskFiller::Job& job) {
  try {
    job.sequence->grammar.Fill(*job.draft, job.places);
  } catch (...) {
    job.sequence->grammar_failed = true;
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

void MaskFiller::Fill(std::span<const Job> jobs) {
  Share(jobs.size(), [jobs](size_t i) { FillOne(jobs[i]); });
}

size_t MaskFiller::FillSome(std::span<const Job> jobs) {
  const int64_t end_ns = now_ns_ == nullptr ? 0 : now_ns_() + kSliceNs;
  std::atomic<size_t> num_filled{jobs.size()};
  Share(jobs.size(), [&](size_t i) {
    if (i == 0 || now_ns_ == nullptr || now_ns_() < end_ns) return FillOne(jobs[i]);
    // Relaxed: Share orders this thread's stores before its caller's load.
    size_t known = num_filled.load(std::memory_order_relaxed);
    while (i < known && !num_filled.compare_exchange_weak(known, i, std::memory_order_relaxed)) {
    }
  });
  return num_filled.load(std::memory_order_relaxed);
}

}  // namespace specd
