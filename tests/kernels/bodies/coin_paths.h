// CoinPaths enumerates all outcomes of a program's coins for exact tests. A coin is an interval
// here.
//
// A program asks for parts of coins instead of numbers: Choose(coin, ends) says into which of the
// intervals [0, ends[0]), [ends[0], ends[1]), ... the coin falls. ForEachPath runs the program once
// for every combination of answers. Each run is a cell of the space of coins, and its probability
// is the cell's volume. If the program asks for a coin again, it gets the same coin: the coin keeps
// its narrowed interval. It does so within a path and, through `coins`, from one round to the next.
//
//   ForEachPath({}, [&](CoinPaths& paths) {
//     const size_t y = paths.Choose(coin, {0.25, 1.0}, 1e-9);
//     law[y] += paths.probability();
//   });
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/core/philox.h"

namespace specd {

// Position, round base, node, purpose. Equal identities mean one coin.
using CoinIdentity = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;

// An interval of coins. The margins bound the distance between an end and the kernel's own
// threshold.
struct CoinPart {
  double low = 0;
  double high = 1;
  double low_margin = 0;
  double high_margin = 0;
  auto operator<=>(const CoinPart&) const = default;
};
using CoinParts = std::map<CoinIdentity, CoinPart>;

class CoinPaths {
 public:
  // Returns the number of the interval. The last of `ends` means 1. An interval is chosen only if
  // it holds a part of the coin.
  size_t Choose(const CoinIdentity& coin, const std::vector<double>& ends, double margin) {
    const CoinPart before = coins_.count(coin) > 0 ? coins_[coin] : CoinPart{};
    if (depth_ == decisions_.size()) decisions_.push_back({OpenParts(before, ends), 0});
    const Decision& decision = decisions_[depth_++];
    const size_t choice = decision.open[decision.next];
    CoinPart part = Narrowed(before, ends, choice);
    if (part.low > before.low) part.low_margin = margin;
    if (part.high < before.high) part.high_margin = margin;
    probability_ *= (part.high - part.low) / (before.high - before.low);
    coins_[coin] = part;
    used_[coin] = part;
    return choice;
  }

  double probability() const { return probability_; }
  // Every coin's interval: those of earlier rounds and of this path.
  const CoinParts& coins() const { return coins_; }
  const CoinParts& used() const { return used_; }

 private:
  template <typename Program>
  friend void ForEachPath(const CoinParts& coins, const Program& program);

  struct Decision {
    std::vector<size_t> open;
    size_t next = 0;
  };

  static CoinPart Narrowed(CoinPart part, const std::vector<double>& ends, size_t choice) {
    const double low = choice == 0 ? 0 : ends[choice - 1];
    const double high = choice + 1 == ends.size() ? 1 : ends[choice];
    part.low = std::max(part.low, low);
    part.high = std::min(part.high, high);
    return part;
  }

  static std::vector<size_t> OpenParts(const CoinPart& before, const std::vector<double>& ends) {
    constexpr double kNothing = 1e-11;  // rounding of the oracle's doubles
    std::vector<size_t> open;
    for (size_t i = 0; i < ends.size(); ++i) {
      const CoinPart part = Narrowed(before, ends, i);
      if (part.high - part.low > kNothing) open.push_back(i);
    }
    return open;
  }

  void Begin(const CoinParts& coins) {
    depth_ = 0;
    probability_ = 1;
    coins_ = coins;
    used_.clear();
  }
  // Moves to the next path in depth-first order; false if there is none.
  bool Advance() {
    while (!decisions_.empty() && ++decisions_.back().next == decisions_.back().open.size()) {
      decisions_.pop_back();
    }
    return !decisions_.empty();
  }

  std::vector<Decision> decisions_;
  size_t depth_ = 0;
  double probability_ = 1;
  CoinParts coins_;
  CoinParts used_;
};

// Runs `program(paths)` for every path from coins that lie in `coins`; all others are whole.
template <typename Program>
void ForEachPath(const CoinParts& coins, const Program& program) {
  CoinPaths paths;
  do {
    paths.Begin(coins);
    program(paths);
  } while (paths.Advance());
}

}  // namespace specd
