#include "daemon/session/opening_rate.h"

#include <fmt/format.h>

#include <algorithm>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

absl::Status OpeningRate::Check(int64_t now_ns, bool may_be_free) const {
  if (per_second_ == 0) return absl::OkStatus();
  MutexLock lock(&mutex_);
  // One more has to fit into the second that may be saved up.
  const int64_t early_ns = paid_ns_ + kSecondNs / per_second_ - now_ns - kSecondNs;
  if ((may_be_free && num_free_ > 0) || early_ns <= 0) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_EXHAUSTED, "session_openings_per_second",
      fmt::format("this engine has opened {} sequences, faster than the {} in a second "
                  "that --session_openings_per_second allows; try again in {} ms, "
                  "open fewer, or start the daemon with a larger one",
                  num_opened_, per_second_, early_ns / 1'000'000 + 1));
}

void OpeningRate::Count(const Opened& opened, int64_t now_ns) {
  MutexLock lock(&mutex_);
  num_opened_ += opened.sequences;
  const uint64_t free = std::min({num_free_, opened.resumed, opened.sequences});
  num_free_ -= free;
  if (per_second_ == 0) return;
  const auto cost_ns = static_cast<int64_t>(opened.sequences - free) * (kSecondNs / per_second_);
  paid_ns_ = std::max(paid_ns_, now_ns) + cost_ns;
}

uint64_t OpeningRate::num_opened() const {
  MutexLock lock(&mutex_);
  return num_opened_;
}

}  // namespace specd
