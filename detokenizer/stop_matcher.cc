#include "detokenizer/stop_matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "detokenizer/utf8_stream.h"

namespace specd {
namespace {

// Valid UTF-8 needs no replacement and leaves nothing pending at its end.
bool IsValidUtf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text;
  stream.Push(bytes, &text);
  return !stream.HasPending() && text == bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const StopSet>> StopSet::Create(std::vector<std::string> strings,
                                                               std::vector<StopPattern> patterns) {
  if (strings.size() > kStringsMax) {
    return absl::InvalidArgumentError(
        fmt::format("stop has {} strings, allowed are 0..{}; send fewer stop strings",
                    strings.size(), kStringsMax));
  }
  size_t total_size_bytes = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "stop[{}] is empty, which would end every text at once; a stop string has at least one "
          "character: remove this entry",
          i));
    }
    if (!IsValidUtf8(strings[i])) {
      return absl::InvalidArgumentError(
          fmt::format("stop[{}] is not valid UTF-8, so no text can ever contain it; send the "
                      "stop string encoded as UTF-8",
                      i));
    }
    total_size_bytes += strings[i].size();
  }
  if (total_size_bytes > kTotalSizeBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("stop has {} bytes in all its strings together, allowed are 0..{}; send "
                    "shorter or fewer stop strings",
                    total_size_bytes, kTotalSizeBytesMax));
  }
  size_t num_states = 0;
  for (const StopPattern& pattern : patterns) num_states += pattern.states.size();
  if (num_states > PatternMatcher::kStatesMax) {
    return absl::InvalidArgumentError(
        fmt::format("stop_regex needs {} states in all its patterns together, allowed are 0..{}; "
                    "send fewer patterns, or smaller counts in them",
                    num_states, PatternMatcher::kStatesMax));
  }
  return std::shared_ptr<const StopSet>(new StopSet(std::move(strings), patterns));
}

StopSet::StopSet(std::vector<std::string> strings, std::span<const StopPattern> patterns)
    : strings_(std::move(strings)) {
  for (const StopPattern& pattern : patterns) pattern_texts_.push_back(pattern.text);
  if (!patterns.empty()) patterns_.emplace(patterns);
  BuildTrie();
  LinkFailures();
}

void StopSet::BuildTrie() {
  // In sorted order the strings below a node are a range, and those that end at it come first.
  std::vector<int32_t> order(strings_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [this](int32_t a, int32_t b) { return strings_[a] < strings_[b]; });
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  std::vector<Range> ranges = {{0, order.size()}};
  nodes_.resize(1);
  bytes_.assign(1, '\0');

  for (size_t node = 0; node < nodes_.size(); ++node) {
    const size_t depth = nodes_[node].depth;
    auto string_at = [&](size_t i) -> const std::string& { return strings_[order[i]]; };
    size_t i = ranges[node].begin;
    const size_t end = ranges[node].end;
    // The sort is stable, so the first of equal strings has the lowest index.
    if (i < end && string_at(i).size() == depth) nodes_[node].match = order[i];
    while (i < end && string_at(i).size() == depth) ++i;

    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (i < end) {
      const char byte = string_at(i)[depth];
      const size_t child_begin = i;
      while (i < end && string_at(i)[depth] == byte) ++i;
      Node child;
      child.depth = static_cast<uint32_t>(depth + 1);
      nodes_.push_back(child);
      bytes_.push_back(byte);
      ranges.push_back({child_begin, i});
      ++nodes_[node].num_children;
    }
  }
  for (uint32_t k = 0; k < nodes_[0].num_children; ++k) {
    const uint32_t child = nodes_[0].first_child + k;
    root_children_[static_cast<uint8_t>(bytes_[child])] = child;
  }
}

void StopSet::LinkFailures() {
  // Breadth first: a node's failure is shallower, and thus complete when it is needed.
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    const Node& parent = nodes_[node];
    for (uint32_t k = 0; k < parent.num_children; ++k) {
      const uint32_t id = parent.first_child + k;
      Node& child = nodes_[id];
      child.fail = node == 0 ? 0 : Next(parent.fail, bytes_[id]);
      const int32_t suffix_match = nodes_[child.fail].match;
      if (suffix_match != kNoMatch && (child.match == kNoMatch || suffix_match < child.match)) {
        child.match = suffix_match;
      }
    }
  }
}

uint32_t StopSet::Child(uint32_t node, char byte) const {
  if (node == 0) return root_children_[static_cast<uint8_t>(byte)];
  const Node& parent = nodes_[node];
  const char* children = bytes_.data() + parent.first_child;
  const void* found = std::memchr(children, byte, parent.num_children);
  if (found == nullptr) return 0;
  return parent.first_child + static_cast<uint32_t>(static_cast<const char*>(found) - children);
}

uint32_t StopSet::Next(uint32_t node, char byte) const {
  while (true) {
    const uint32_t child = Child(node, byte);
    if (child != 0 || node == 0) return child;
    node = nodes_[node].fail;
  }
}

std::optional<StopMatch> StopSet::Advance(StopState* state, std::string_view text) const {
  uint32_t node = state->node;
  for (size_t i = 0; i < text.size(); ++i) {
    node = Next(node, text[i]);
    const int32_t match = nodes_[node].match;
    if (match != kNoMatch) {
      const size_t size_bytes = strings_[match].size();
      return StopMatch{.index = match, .end = i + 1, .size_bytes = size_bytes};
    }
    if (!patterns_.has_value()) continue;
    const auto found = patterns_->Step(&state->threads, text[i]);
    if (!found.has_value()) continue;
    return StopMatch{.index = static_cast<int>(strings_.size() + found->pattern),
                     .end = i + 1,
                     .size_bytes = found->size_bytes};
  }
  state->node = node;
  return std::nullopt;
}

void StopSet::Pass(StopState* state, std::string_view text) const {
  uint32_t node = state->node;
  for (const char byte : text) {
    node = Next(node, byte);
    if (patterns_.has_value()) patterns_->Step(&state->threads, byte);
  }
  // A whole stop string that did not count cannot begin another. Only text that may begin one must
  // be held back.
  while (node != 0 && nodes_[node].num_children == 0) node = nodes_[node].fail;
  state->node = node;
}

}  // namespace specd
