// DraftLength says how many tokens a forward pass of the target gives for each length of a draft.
//
// One thread.
#pragma once

#include <cstdint>
#include <vector>

namespace specd::replay {

struct LengthGain {
  int32_t length = 0;
  double tokens = 1;  // for each forward pass: the accepted draft tokens and one more
  double error = 0;
  bool is_guess = false;  // no draft was so long: the rate of the last place is taken
  double per_second = 0;  // with the given costs; 0: none are given
};

class DraftLength {
 public:
  // A draft token whose predecessors were all accepted.
  void Add(int32_t place, bool is_accepted);
  // Lengths 0 to 8. `draft_ms`: for each draft token; `target_ms`: for a forward pass; 0: not
  // given.
  std::vector<LengthGain> Gains(double draft_ms, double target_ms) const;

 private:
  struct Rate {
    uint64_t count = 0;
    uint64_t accepted = 0;
  };
  std::vector<Rate> places_;
};

// The gain with the most tokens for each second; without costs there is no best length.
const LengthGain* BestOf(const std::vector<LengthGain>& gains);

}  // namespace specd::replay
