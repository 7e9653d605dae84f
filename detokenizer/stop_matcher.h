// StopSet finds stop strings and stop patterns for text streams, in text that arrives piece by
// piece. For the strings it is an Aho-Corasick automaton over bytes; pattern_matcher.h follows the
// patterns.
//
// A StopSet is built once from a request's lists and never changes, so threads and sequences share
// it. The state of one sequence is a StopState. The match that completes first wins. If several
// complete at the same byte, the first in the list wins, and strings come before patterns. A match
// is decided at the byte that completes it, so the result cannot depend on how the text was cut.
//
//   auto stops = StopSet::Create({"\n\n", "</answer>"});
//   StopState state;
//   (*stops)->Advance(&state, "42</ans");       // no match, and 5 bytes may begin one:
//   (*stops)->HeldSizeBytes(state);             // 5
//   (*stops)->Advance(&state, "wer> and so");   // match {index 1, end 4}
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "detokenizer/pattern_matcher.h"

namespace specd {

// The position of a sequence in the automaton; only its StopSet can read it.
struct StopState {
  uint32_t node = 0;
  PatternThreads threads;  // takes no memory while no pattern may have begun
};

struct StopMatch {
  int index = 0;          // in the list of strings, followed by the patterns
  size_t end = 0;         // just past the match, counted in the piece that was fed
  size_t size_bytes = 0;  // of the match; it may have begun in an earlier piece
};

class StopSet {
 public:
  static constexpr size_t kStringsMax = 1024;
  // The bytes of all strings together; bounds the automaton to 64 Ki nodes of 21 bytes.
  static constexpr size_t kTotalSizeBytesMax = 65536;

  // Refuses an empty string, a string that is not valid UTF-8, and a list past the limits. The same
  // string may occur twice: the first index is reported.
  static absl::StatusOr<std::shared_ptr<const StopSet>> Create(
      std::vector<std::string> strings, std::vector<StopPattern> patterns = {});

  // Feeds a piece of text and stops at the first match. After a match the state cannot be used any
  // more.
  std::optional<StopMatch> Advance(StopState* state, std::string_view text) const;

  // Feeds a piece of text in which no match counts. A match that begins here and completes in a
  // later piece counts.
  void Pass(StopState* state, std::string_view text) const;

  // The number of last bytes that may begin a match. Exactly these bytes must be held back.
  size_t HeldSizeBytes(const StopState& state) const {
    const size_t of_strings = nodes_[state.node].depth;
    return std::max(of_strings, PatternMatcher::HeldSizeBytes(state.threads));
  }

  // The string or pattern of a match, as the request has it.
  const std::string& TextOf(int index) const {
    const size_t i = index;
    return i < strings_.size() ? strings_[i] : pattern_texts_[i - strings_.size()];
  }

 private:
  static constexpr int32_t kNoMatch = -1;

  // Nodes are numbered breadth first. The children of a node are therefore neighbours, and their
  // bytes are neighbours in bytes_.
  struct Node {
    uint32_t first_child = 0;
    uint32_t num_children = 0;
    uint32_t depth = 0;
    uint32_t fail = 0;         // the longest proper suffix that is also a node
    int32_t match = kNoMatch;  // lowest list index among the strings that end here
  };

  StopSet(std::vector<std::string> strings, std::span<const StopPattern> patterns);

  void BuildTrie();
  void LinkFailures();

  // The child of `node` over `byte`, or 0 (the root is never a child).
  uint32_t Child(uint32_t node, char byte) const;
  // The longest suffix of (node, byte) that is a node.
  uint32_t Next(uint32_t node, char byte) const;

  std::vector<std::string> strings_;
  std::vector<std::string> pattern_texts_;
  std::optional<PatternMatcher> patterns_;  // nothing if the request has none
  std::vector<Node> nodes_;
  std::string bytes_;  // [node]: the byte that leads to it
  // The state is at the root most of the time, so the root has its children in a table.
  std::array<uint32_t, 256> root_children_ = {};
};

}  // namespace specd
