#include "tools/replay/doctor/draft_length.h"

#include <algorithm>
#include <cmath>

namespace specd::replay {
namespace {

constexpr int32_t kLengthMax = 8;
// A place with fewer tokens has no rate of its own.
constexpr uint64_t kTokensMin = 20;

}  // namespace

void DraftLength::Add(int32_t place, bool is_accepted) {
  const size_t index = place;
  if (index >= places_.size()) places_.resize(index + 1);
  ++places_[index].count;
  places_[index].accepted += is_accepted ? 1 : 0;
}

std::vector<LengthGain> DraftLength::Gains(double draft_ms, double target_ms) const {
  std::vector<LengthGain> gains;
  double reach = 1;     // the probability that every token so far is accepted
  double relative = 0;  // the variance of its logarithm
  LengthGain gain;
  Rate last;
  for (int32_t length = 0; length <= kLengthMax; ++length) {
    gain.length = length;
    if (length > 0) {
      const size_t place = length - 1;
      const bool is_known = place < places_.size() && places_[place].count >= kTokensMin;
      if (is_known) last = places_[place];
      if (last.count == 0) break;
      gain.is_guess = gain.is_guess || !is_known;
      const double count = last.count;
      const double rate = static_cast<double>(last.accepted) / count;
      reach *= rate;
      relative += rate > 0 ? (1 - rate) / (rate * count) : 0;
      gain.tokens += reach;
      gain.error += reach * std::sqrt(relative);
    }
    const double ms = target_ms + draft_ms * length;
    gain.per_second = target_ms > 0 ? gain.tokens * 1000 / ms : 0;
    gains.push_back(gain);
  }
  return gains;
}

const LengthGain* BestOf(const std::vector<LengthGain>& gains) {
  const auto best = std::max_element(
      gains.begin(), gains.end(),
      [](const LengthGain& a, const LengthGain& b) { return a.per_second < b.per_second; });
  return best == gains.end() || best->per_second <= 0 ? nullptr : &*best;
}

}  // namespace specd::replay
