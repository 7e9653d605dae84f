#include "detokenizer/pattern_matcher.h"

#include <algorithm>
#include <bitset>

#include "kernels/core/check.h"

namespace specd {
namespace {

// Up to this many threads are compared one by one, which is faster than a map of all states.
constexpr size_t kComparedThreads = 16;

bool HasState(std::span<const PatternThread> threads, uint32_t state) {
  return std::any_of(threads.begin(), threads.end(),
                     [state](const PatternThread& thread) { return thread.state == state; });
}

}  // namespace

PatternMatcher::PatternMatcher(std::span<const StopPattern> patterns) {
  std::vector<uint32_t> starts;
  for (const StopPattern& pattern : patterns) {
    const uint32_t base = states_.size();
    const uint32_t index = starts.size();
    starts.push_back(base);
    for (const std::vector<StopPattern::Edge>& edges : pattern.states) {
      states_.push_back({.first_edge = static_cast<uint32_t>(edges_.size()),
                         .num_edges = static_cast<uint32_t>(edges.size()),
                         .pattern = index});
      for (StopPattern::Edge edge : edges) {
        edge.target += base;
        edges_.push_back(edge);
      }
    }
  }
  SPECD_CHECK(states_.size() <= kStatesMax);
  for (size_t byte = 0; byte < 256; ++byte) {
    start_begin_[byte] = static_cast<uint32_t>(start_targets_.size());
    for (const uint32_t start : starts) {
      const uint32_t target = Next(states_[start], static_cast<uint8_t>(byte));
      if (target != kNoState) start_targets_.push_back(target);
    }
  }
  start_begin_[256] = static_cast<uint32_t>(start_targets_.size());
}

uint32_t PatternMatcher::Next(const State& state, uint8_t byte) const {
  const auto edges = std::span(edges_).subspan(state.first_edge, state.num_edges);
  const auto edge = std::find_if(edges.begin(), edges.end(), [byte](const auto& candidate) {
    return byte >= candidate.first && byte <= candidate.last;
  });
  return edge == edges.end() ? kNoState : edge->target;
}

void PatternMatcher::Report(const PatternThread& thread, std::optional<Match>* match) const {
  const uint32_t pattern = states_[thread.state].pattern;
  // The oldest thread comes first, so a match of the same pattern that was found before is longer.
  if (match->has_value() && (*match)->pattern <= pattern) return;
  *match = Match{pattern, thread.size_bytes};
}

std::optional<PatternMatcher::Match> PatternMatcher::Step(PatternThreads* threads,
                                                          char byte) const {
  const uint8_t value = byte;
  const size_t num_started = start_begin_[value + size_t{1}] - start_begin_[value];
  if (threads->empty() && num_started == 0) return std::nullopt;

  std::optional<std::bitset<kStatesMax>> taken;
  if (threads->size() + num_started > kComparedThreads) taken.emplace();
  std::optional<Match> match;
  const size_t num_old = threads->size();
  size_t num_kept = 0;
  const auto add = [&](const PatternThread& thread) {
    if (states_[thread.state].num_edges == 0) return Report(thread, &match);
    const auto kept = std::span(*threads).first(num_kept);
    if (taken.has_value() ? taken->test(thread.state) : HasState(kept, thread.state)) return;
    if (taken.has_value()) taken->set(thread.state);
    (*threads)[num_kept++] = thread;
  };
  threads->resize(num_old + num_started);
  for (size_t i = 0; i < num_old; ++i) {
    const PatternThread thread = (*threads)[i];
    const uint32_t next = Next(states_[thread.state], value);
    if (next != kNoState) add({next, thread.size_bytes + 1});
  }
  for (size_t i = 0; i < num_started; ++i) add({start_targets_[start_begin_[value] + i], 1});
  threads->resize(num_kept);
  return match;
}

}  // namespace specd
