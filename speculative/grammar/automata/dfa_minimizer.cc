#include "speculative/grammar/automata/dfa_minimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "speculative/grammar/automata/bottom_up_blocks.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {
namespace {

absl::Status TooManyStatesError() {
  return absl::ResourceExhaustedError(
      fmt::format("the automaton of an expression has more than {} states: shorten its repetitions "
                  "or drop alternatives",
                  kDfaStatesMax));
}

absl::Status TooManyTransitionsError() {
  return absl::ResourceExhaustedError(
      fmt::format("the automaton of an expression has more than {} transitions: shorten its "
                  "repetitions or use fewer different characters",
                  kDfaTransitionsMax));
}

constexpr uint32_t kDead = ByteDfa::kDead;

// RefinablePartition holds disjoint sets of 0..n-1. A pass marks elements, each at most once; Split
// then divides every set that has marked and unmarked ones. The smaller half gets the new number,
// so that an element changes its set at most log n times.
class RefinablePartition {
 public:
  // Sets by the value of `key`, in its order; each value below num_keys is used, or skipped.
  RefinablePartition(std::span<const uint8_t> key, size_t num_keys)
      : elements_(key.size()), place_of_(key.size()), set_of_(key.size()) {
    List<uint32_t> begin(num_keys + 1, 0);
    for (const uint8_t value : key) ++begin[value + size_t{1}];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    List<uint32_t> set_of_key(num_keys, 0);
    for (size_t value = 0; value < num_keys; ++value) {
      if (begin[value] == begin[value + 1]) continue;
      set_of_key[value] = num_sets();
      sets_.push_back({.begin = begin[value], .end = begin[value + 1]});
    }
    for (uint32_t element = 0; element < key.size(); ++element) {
      const uint32_t place = begin[key[element]]++;
      elements_[place] = element;
      place_of_[element] = place;
      set_of_[element] = set_of_key[key[element]];
    }
  }

  uint32_t num_sets() const { return static_cast<uint32_t>(sets_.size()); }
  std::span<const uint32_t> Elements(uint32_t set) const {
    return std::span(elements_).subspan(sets_[set].begin, sets_[set].end - sets_[set].begin);
  }
  const List<uint32_t>& set_of() const { return set_of_; }

  void Mark(uint32_t element) {
    Set& set = sets_[set_of_[element]];
    if (set.num_marked == 0) touched_.push_back(set_of_[element]);
    const uint32_t place = place_of_[element];
    const uint32_t marked_end = set.begin + set.num_marked++;
    const uint32_t other = elements_[marked_end];
    elements_[place] = other;
    place_of_[other] = place;
    elements_[marked_end] = element;
    place_of_[element] = marked_end;
  }

  void Split() {
    for (const uint32_t number : touched_) {
      Set& set = sets_[number];
      const uint32_t middle = set.begin + std::exchange(set.num_marked, 0);
      if (middle == set.end) continue;
      Set smaller{.begin = set.begin, .end = middle};
      Set larger{.begin = middle, .end = set.end};
      if (smaller.end - smaller.begin > larger.end - larger.begin) std::swap(smaller, larger);
      set = larger;
      const uint32_t added = num_sets();
      sets_.push_back(smaller);
      for (uint32_t i = smaller.begin; i < smaller.end; ++i) set_of_[elements_[i]] = added;
    }
    touched_.clear();
  }

 private:
  struct Set {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t num_marked = 0;  // the marked ones are the first of the set
  };

  List<uint32_t> elements_;  // the sets one after another
  List<uint32_t> place_of_;
  List<uint32_t> set_of_;
  List<Set> sets_;
  List<uint32_t> touched_;
};

// Numbers the ranges of bytes that no edge of `states` tells apart.
std::array<uint8_t, 256> ByteClasses(const ByteDfa& dfa, std::span<const uint32_t> states) {
  std::array<uint8_t, 257> begins = {};
  for (const uint32_t state : states) {
    for (const ByteDfa::Edge& edge : dfa.states[state].edges) {
      begins[edge.first] = 1;
      begins[edge.last + size_t{1}] = 1;
    }
  }
  std::array<uint8_t, 256> class_of = {};
  uint8_t last = 0;
  for (size_t byte = 1; byte < 256; ++byte) {
    last = static_cast<uint8_t>(last + begins[byte]);
    class_of[byte] = last;
  }
  return class_of;
}

List<uint32_t> AllStates(const ByteDfa& dfa) {
  List<uint32_t> states(dfa.states.size());
  std::iota(states.begin(), states.end(), 0);
  return states;
}

// The numbers 0..keys.size()-1 grouped by key: those of key k are items[begin[k]..begin[k+1]).
struct Groups {
  List<uint32_t> begin;
  List<uint32_t> items;

  Groups(std::span<const uint32_t> keys, size_t num_keys)
      : begin(num_keys + 1), items(keys.size()) {
    for (const uint32_t key : keys) ++begin[key + size_t{1}];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    List<uint32_t> next(begin.begin(), begin.end() - 1);
    for (uint32_t i = 0; i < keys.size(); ++i) items[next[keys[i]]++] = i;
  }
  std::span<const uint32_t> Of(uint32_t key) const {
    return std::span(items).subspan(begin[key], begin[key + size_t{1}] - begin[key]);
  }
};

// The states from which a text is accepted.
std::vector<bool> Live(const ByteDfa& dfa) {
  List<uint32_t> tails;
  List<uint32_t> heads;
  std::vector<bool> is_live(dfa.states.size(), false);
  List<uint32_t> open;
  for (uint32_t state = 0; state < dfa.states.size(); ++state) {
    for (const ByteDfa::Edge& edge : dfa.states[state].edges) {
      if (!heads.empty() && tails.back() == state && heads.back() == edge.target) continue;
      tails.push_back(state);
      heads.push_back(edge.target);
    }
    if (!dfa.states[state].accepting) continue;
    is_live[state] = true;
    open.push_back(state);
  }
  const Groups by_head(heads, dfa.states.size());
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    for (const uint32_t edge : by_head.Of(state)) {
      if (is_live[tails[edge]]) continue;
      is_live[tails[edge]] = true;
      open.push_back(tails[edge]);
    }
  }
  return is_live;
}

}  // namespace

size_t CountTransitions(const ByteDfa& dfa) {
  const std::array<uint8_t, 256> class_of = ByteClasses(dfa, AllStates(dfa));
  size_t count = 0;
  for (const ByteDfa::State& state : dfa.states) {
    for (const ByteDfa::Edge& edge : state.edges) {
      count += size_t{class_of[edge.last]} - class_of[edge.first] + 1;
    }
  }
  return count;
}

ByteDfa DfaMinimizer::Run() {
  Keep();
  // Without the start no text is accepted.
  if (kept_.empty() || kept_[0] != 0) return {};
  if (const auto blocks = BottomUpBlocks(dfa_, index_of_, kept_.size()).Find()) {
    return Quotient(*blocks);
  }
  MakeTransitions();
  return Quotient(Refine());
}

void DfaMinimizer::Keep() {
  const std::vector<bool> is_live = Live(dfa_);
  index_of_.assign(dfa_.states.size(), kDead);
  for (uint32_t state = 0; state < dfa_.states.size(); ++state) {
    if (!is_live[state]) continue;
    index_of_[state] = static_cast<uint32_t>(kept_.size());
    kept_.push_back(state);
  }
}

void DfaMinimizer::MakeTransitions() {
  const std::array<uint8_t, 256> class_of = ByteClasses(dfa_, kept_);
  for (uint32_t tail = 0; tail < kept_.size(); ++tail) {
    for (const ByteDfa::Edge& edge : dfa_.states[kept_[tail]].edges) {
      const uint32_t head = index_of_[edge.target];
      if (head == kDead) continue;
      for (int label = class_of[edge.first]; label <= class_of[edge.last]; ++label) {
        transitions_.push_back({.tail = tail, .head = head, .label = static_cast<uint8_t>(label)});
      }
    }
  }
}

// A. Valmari, Fast brief practical DFA minimization, Information Processing Letters 112 (2012).
// Blocks of states and bundles of transitions refine each other: a bundle has one label and leads
// to one block, and so it splits the blocks into states with and without such a transition. A
// transition that is missing needs no state of its own.
List<uint32_t> DfaMinimizer::Refine() const {
  List<uint8_t> accepting(kept_.size());
  for (size_t i = 0; i < kept_.size(); ++i) accepting[i] = dfa_.states[kept_[i]].accepting ? 1 : 0;
  List<uint8_t> labels(transitions_.size());
  List<uint32_t> heads(transitions_.size());
  for (size_t i = 0; i < transitions_.size(); ++i) {
    labels[i] = transitions_[i].label;
    heads[i] = transitions_[i].head;
  }
  RefinablePartition blocks(accepting, 2);
  RefinablePartition bundles(labels, 256);
  const Groups by_head(heads, kept_.size());

  // Block 0 needs no turn: the transitions that lead into no other block lead into it.
  uint32_t block = 1;
  for (uint32_t bundle = 0; bundle < bundles.num_sets(); ++bundle) {
    for (const uint32_t transition : bundles.Elements(bundle)) {
      blocks.Mark(transitions_[transition].tail);
    }
    blocks.Split();
    for (; block < blocks.num_sets(); ++block) {
      for (const uint32_t state : blocks.Elements(block)) {
        for (const uint32_t transition : by_head.Of(state)) bundles.Mark(transition);
      }
      bundles.Split();
    }
  }
  return blocks.set_of();
}

ByteDfa DfaMinimizer::Quotient(const List<uint32_t>& block_of) const {
  List<uint32_t> number_of(kept_.size(), kDead);  // of a block
  List<uint32_t> members = {0};                   // one state of each numbered block
  number_of[block_of[0]] = 0;
  ByteDfa result;
  for (uint32_t number = 0; number < members.size(); ++number) {
    const ByteDfa::State& state = dfa_.states[kept_[members[number]]];
    ByteDfa::State& made = result.states.emplace_back();
    made.accepting = state.accepting;
    for (const ByteDfa::Edge& edge : state.edges) {
      const uint32_t head = index_of_[edge.target];
      if (head == kDead) continue;
      uint32_t& target = number_of[block_of[head]];
      if (target == kDead) {
        target = static_cast<uint32_t>(members.size());
        members.push_back(head);
      }
      AppendEdge({.first = edge.first, .last = edge.last, .target = target}, &made.edges);
    }
  }
  return result;
}

absl::Status CheckGrowth(size_t num_states, size_t num_edges) {
  if (num_states > kDfaGrowthMax) return TooManyStatesError();
  if (num_edges > kDfaTransitionsMax) return TooManyTransitionsError();
  return absl::OkStatus();
}

absl::StatusOr<ByteDfa> MinimizeWithinLimits(const ByteDfa& dfa) {
  const size_t num_transitions = CountTransitions(dfa);
  if (num_transitions > kDfaTransitionsMax) return TooManyTransitionsError();
  if (!Budget::Spend(8 * num_transitions)) return Budget::Refusal();
  ByteDfa smallest = DfaMinimizer(dfa).Run();
  if (smallest.states.size() > kDfaStatesMax) return TooManyStatesError();
  return smallest;
}

ByteDfa Minimize(const ByteDfa& dfa) { return DfaMinimizer(dfa).Run(); }

}  // namespace specd::grammar
