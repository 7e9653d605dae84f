#include "speculative/drafts/draft_length.h"

namespace specd {

void DraftLength::Observe(int32_t num_drafts, int32_t num_accepted) {
  if (num_drafts == 0) return;
  const double kept = 1 - 1.0 / options_.memory;
  record_.judged = record_.judged * kept + num_accepted + (num_accepted < num_drafts ? 1 : 0);
  record_.accepted = record_.accepted * kept + num_accepted;
}

// A round with n draft tokens keeps 1 + a + ... + a^n tokens, and takes 1 + n * step_cost.
int32_t DraftLength::Next() const {
  const double a = record_.accepted / record_.judged;
  double tokens = 0;
  double power = 1;
  double best = -1;
  int32_t length = options_.min_length;
  for (int32_t n = 0; n <= options_.max_length; ++n, power *= a) {
    tokens += power;
    const double rate = tokens / (1 + n * options_.step_cost);
    if (n < options_.min_length || rate <= best) continue;
    best = rate;
    length = n;
  }
  return length;
}

}  // namespace specd
