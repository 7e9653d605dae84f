// StopSet finds stop strings for text streams, in text that arrives piece by piece. It is an
// Aho-Corasick automaton over bytes.
//
// A StopSet is built once from a request's list and never changes, so threads and sequences share
// it. The state of one sequence is a StopState of four bytes. The match that completes first wins.
// If several complete at the same byte, the first in the list wins. A match is decided at the byte
// that completes it, so the result cannot depend on how the text was cut.
//
//   auto stops = StopSet::Create({"\n\n", "</answer>"});
//   StopState state;
//   (*stops)->Advance(&state, "42</ans");       // no match, and 5 bytes may begin one:
//   (*stops)->HeldSizeBytes(state);             // 5
//   (*stops)->Advance(&state, "wer> and so");   // match {index 1, end 4}
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd {

// The position of a sequence in the automaton; only its StopSet can read it.
struct StopState {
  uint32_t node = 0;
};

struct StopMatch {
  int index = 0;          // of the stop string in the list
  size_t end = 0;         // just past the match, counted in the piece that was fed
  size_t size_bytes = 0;  // of the stop string; it may have begun in an earlier piece
};

class StopSet {
 public:
  static constexpr size_t kStringsMax = 1024;
  // The bytes of all strings together; bounds the automaton to 64 Ki nodes of 21 bytes.
  static constexpr size_t kTotalSizeBytesMax = 65536;

  // Refuses an empty string, a string that is not valid UTF-8, and a list past the limits. The same
  // string may occur twice: the first index is reported.
  static absl::StatusOr<std::shared_ptr<const StopSet>> Create(std::vector<std::string> strings);

  // Feeds a piece of text and stops at the first match. After a match the state cannot be used any
  // more.
  std::optional<StopMatch> Advance(StopState* state, std::string_view text) const;

  // Feeds a piece of text in which no match counts. A match that begins here and completes in a
  // later piece counts.
  void Pass(StopState* state, std::string_view text) const;

  // The number of last bytes that may begin a stop string. Exactly these bytes must be held back.
  size_t HeldSizeBytes(StopState state) const { return nodes_[state.node].depth; }

  const std::vector<std::string>& strings() const { return strings_; }

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

  explicit StopSet(std::vector<std::string> strings);

  void BuildTrie();
  void LinkFailures();

  // The child of `node` over `byte`, or 0 (the root is never a child).
  uint32_t Child(uint32_t node, char byte) const;
  // The longest suffix of (node, byte) that is a node.
  uint32_t Next(uint32_t node, char byte) const;

  std::vector<std::string> strings_;
  std::vector<Node> nodes_;
  std::string bytes_;  // [node]: the byte that leads to it
  // The state is at the root most of the time, so the root has its children in a table.
  std::array<uint32_t, 256> root_children_ = {};
};

}  // namespace specd
