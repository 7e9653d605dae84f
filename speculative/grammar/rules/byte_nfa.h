// ByteNfa is the automaton of one expression: byte edges, edges that call a rule, and empty edges.
//
// BuildNfa makes it from an expression. A character class becomes byte edges over its UTF-8
// spellings. A long repetition, and the members of an object, call a frame rule. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/rules/frame_rule.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

struct ByteNfa {
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t target = 0;
  };
  // The text of `rule` leads to target.
  struct CallEdge {
    RuleId rule = kNoRule;
    uint32_t target = 0;
  };
  struct Node {
    List<Edge> edges;
    List<CallEdge> calls;
    List<uint32_t> empties;
  };

  List<Node> nodes;
  uint32_t start = 0;
  uint32_t final = 0;  // it has no edge out
  // Of a frame rule, which is this instead of edges.
  FrameRule frame = {};

  bool IsFrame() const { return frame.kind != FrameRule::Kind::kNone; }
};

// The most nodes of the automata of one grammar together.
inline constexpr size_t kNfaNodesMax = 1 << 20;

struct NfaOptions {
  size_t nodes_max = kNfaNodesMax;
  // Null: every copy of a repetition is written out, so that only the rules' own calls are calls.
  ExtraRules* extra = nullptr;
  // [rule]: its body takes the place of a call. Such rules never lead back to themselves.
  const std::vector<bool>* inlined = nullptr;
};

// Fails with RESOURCE_EXHAUSTED if the automaton would have more than nodes_max nodes.
absl::StatusOr<ByteNfa> BuildNfa(const GrammarRules& rules, ExprId expr, const NfaOptions& options);

// The nodes that empty edges lead to from `node`, which is the first of them.
List<uint32_t> EmptyClosure(const ByteNfa& nfa, uint32_t node);

// Removes all other bytes from the edges.
void KeepBytes(const ByteSet& bytes, ByteNfa* nfa);

}  // namespace specd::grammar
