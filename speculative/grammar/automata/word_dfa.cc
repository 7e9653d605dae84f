#include "speculative/grammar/automata/word_dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {
namespace {

using State = ByteDfa::State;

class WordDfaBuilder {
 public:
  WordDfaBuilder() : known_(0, StateHash{&states_}, StateEq{&states_}), path_(1) {
    states_.emplace_back();  // the start; it takes its value last
  }
  WordDfaBuilder(const WordDfaBuilder&) = delete;
  WordDfaBuilder& operator=(const WordDfaBuilder&) = delete;

  // REQUIRES: each word is greater than the one before.
  void Add(std::string_view word) {
    const auto [end, word_end] =
        std::mismatch(last_.begin(), last_.end(), word.begin(), word.end());
    Close(static_cast<size_t>(end - last_.begin()));
    path_.resize(word.size() + 1);
    path_.back().accepting = true;
    last_ = word;
  }

  size_t num_states() const { return states_.size() + path_.size(); }

  ByteDfa Build() && {
    Close(0);
    states_[0] = std::move(path_[0]);
    return {.states = std::move(states_)};
  }

 private:
  // States are looked up by value, and stored by index.
  struct StateHash {
    const List<State>* states;
    size_t operator()(uint32_t id) const {
      List<uint64_t> values = {(*states)[id].accepting ? 1u : 0u};
      for (const ByteDfa::Edge& edge : (*states)[id].edges) {
        values.push_back(uint64_t{edge.target} << 16 | uint64_t{edge.first} << 8 | edge.last);
      }
      return absl::Hash<List<uint64_t>>()(values);
    }
  };
  struct StateEq {
    const List<State>* states;
    bool operator()(uint32_t a, uint32_t b) const {
      return (*states)[a].accepting == (*states)[b].accepting &&
             (*states)[a].edges == (*states)[b].edges;
    }
  };

  // No later word passes through the states of the path past `depth`: they get their indices.
  void Close(size_t depth) {
    while (path_.size() > depth + 1) {
      const uint32_t target = IndexOf(std::move(path_.back()));
      path_.pop_back();
      const uint8_t byte = last_[path_.size() - 1];
      List<ByteDfa::Edge>& edges = path_.back().edges;
      if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == byte) {
        edges.back().last = byte;
      } else {
        edges.push_back({.first = byte, .last = byte, .target = target});
      }
    }
  }

  uint32_t IndexOf(State state) {
    states_.push_back(std::move(state));
    const auto [known, is_new] = known_.insert(static_cast<uint32_t>(states_.size() - 1));
    if (!is_new) states_.pop_back();
    return *known;
  }

  List<State> states_;
  std::unordered_set<uint32_t, StateHash, StateEq> known_;
  List<State> path_;  // after 0, 1, ... bytes of last_, without the edges along it
  std::string_view last_;
};

}  // namespace

absl::StatusOr<ByteDfa> BuildWordDfa(List<std::string_view> words) {
  if (words.empty()) return ByteDfa{};
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  WordDfaBuilder builder;
  for (const std::string_view word : words) {
    // The word itself is measured first, because the path takes memory for each of its bytes.
    if (word.size() < kWordDfaStatesMax) builder.Add(word);
    if (word.size() >= kWordDfaStatesMax || builder.num_states() > kWordDfaStatesMax) {
      return absl::ResourceExhaustedError(
          fmt::format("the texts need more than {} states, the most that specd builds; give fewer "
                      "or shorter ones",
                      kWordDfaStatesMax));
    }
  }
  return std::move(builder).Build();
}

}  // namespace specd::grammar
