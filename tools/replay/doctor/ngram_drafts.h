// NgramDrafts says what a drafter without a model would have drafted: the token that followed the
// last two tokens when they came before.
//
// It knows the tokens that a trace confirmed, and no prompt. One thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/core/types.h"

namespace specd::replay {

class NgramDrafts {
 public:
  // kNoToken: the two tokens did not come before. `prefix`: the draft up to the place.
  TokenId Next(size_t sequence, const std::vector<TokenId>& prefix) const {
    const auto found = sequences_.find(sequence);
    if (found == sequences_.end()) return kNoToken;
    const History& history = found->second;
    TokenId last[2] = {kNoToken, kNoToken};
    for (size_t k = 0; k < 2; ++k) {
      const size_t back = k + 1;
      if (back <= prefix.size()) {
        last[1 - k] = prefix[prefix.size() - back];
      } else if (back - prefix.size() <= history.tokens.size()) {
        last[1 - k] = history.tokens[history.tokens.size() - (back - prefix.size())];
      }
    }
    const auto next = history.next.find(Pair(last[0], last[1]));
    return next == history.next.end() ? kNoToken : next->second;
  }
  void Confirm(size_t sequence, TokenId token) {
    History& history = sequences_[sequence];
    const size_t size = history.tokens.size();
    if (size >= 2) history.next[Pair(history.tokens[size - 2], history.tokens[size - 1])] = token;
    history.tokens.push_back(token);
  }

 private:
  static uint64_t Pair(TokenId a, TokenId b) {
    return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  }
  struct History {
    std::vector<TokenId> tokens;
    std::unordered_map<uint64_t, TokenId> next;
  };
  std::unordered_map<size_t, History> sequences_;
};

}  // namespace specd::replay
