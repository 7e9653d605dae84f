// PatternMatcher follows the stop patterns of a request through text that arrives byte by byte, for
// StopSet.
//
// A pattern is an automaton whose texts are all finite in length and which ends at its first text:
// from each place of the text, the shortest match counts. speculative/grammar/front_ends makes such
// automata of regular expressions. A sequence has a thread for each place where a match may have
// begun. Threads that meet in a state have the same future, so the older one stands for both: the
// matcher reports the longest of the matches that end at one byte. Constant after construction;
// safe from any thread.
//
//   PatternMatcher matcher({digits});              // [0-9]{3}
//   PatternThreads threads;
//   matcher.Step(&threads, '1');                   // nothing; HeldSizeBytes(threads) == 1
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace specd {

struct StopPattern {
  // Bytes first..last lead to target.
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t target = 0;
  };
  // The most bytes of a match. A text that may begin one is held back, so this bounds it.
  static constexpr size_t kMatchSizeBytesMax = 1024;

  std::string text;                       // as the request has it
  std::vector<std::vector<Edge>> states;  // begins at 0; a state without edges ends a match
};

// One place where a match may have begun.
struct PatternThread {
  uint32_t state = 0;
  uint32_t size_bytes = 0;  // from that place on
};
using PatternThreads = std::vector<PatternThread>;  // the oldest first

class PatternMatcher {
 public:
  // The states of all patterns together.
  static constexpr size_t kStatesMax = 16384;

  struct Match {
    uint32_t pattern = 0;  // the first in the list of those that match
    size_t size_bytes = 0;
  };

  // REQUIRES: no pattern has a circle, and they have at most kStatesMax states.
  explicit PatternMatcher(std::span<const StopPattern> patterns);

  // Feeds a byte. A thread whose match ends here is gone, whether the caller counts the match or
  // not.
  std::optional<Match> Step(PatternThreads* threads, char byte) const;

  // The number of last bytes that may begin a match.
  static size_t HeldSizeBytes(const PatternThreads& threads) {
    return threads.empty() ? 0 : threads.front().size_bytes;
  }

 private:
  struct State {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    uint32_t pattern = 0;
  };
  static constexpr uint32_t kNoState = ~uint32_t{0};

  uint32_t Next(const State& state, uint8_t byte) const;
  // Notes the match of a thread, unless another one outranks it.
  void Report(const PatternThread& thread, std::optional<Match>* match) const;

  std::vector<State> states_;
  std::vector<StopPattern::Edge> edges_;
  // The states after the first byte of a match: start_targets_ from start_begin_[byte] on.
  std::array<uint32_t, 257> start_begin_ = {};
  std::vector<uint32_t> start_targets_;
};

}  // namespace specd
