#include "speculative/grammar/front_ends/free_text.h"

#include <fmt/format.h>

#include <utility>

#include "absl/status/status.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"

namespace specd::grammar {
namespace {

// Where a reader of UTF-8 is within a character (The Unicode Standard, table 3-7).
enum Utf8State : uint8_t {
  kBetween,  // no character has begun
  kOneLeft,
  kTwoLeft,
  kThreeLeft,
  kAfterE0,  // the next byte must not make an overlong spelling
  kAfterED,  // ... nor a surrogate
  kAfterF0,  // ... nor an overlong spelling
  kAfterF4,  // ... nor a value past U+10FFFF
  kInvalid,
};

Utf8State FirstByte(uint8_t byte) {
  if (byte < 0x80) return kBetween;
  if (byte < 0xC2 || byte > 0xF4) return kInvalid;
  if (byte < 0xE0) return kOneLeft;
  if (byte < 0xF0) return byte == 0xE0 ? kAfterE0 : byte == 0xED ? kAfterED : kTwoLeft;
  return byte == 0xF0 ? kAfterF0 : byte == 0xF4 ? kAfterF4 : kThreeLeft;
}

Utf8State NextByte(Utf8State state, uint8_t byte) {
  const auto after = [byte](uint8_t first, uint8_t last, Utf8State next) {
    return byte >= first && byte <= last ? next : kInvalid;
  };
  switch (state) {
    case kBetween:
      return FirstByte(byte);
    case kOneLeft:
      return after(0x80, 0xBF, kBetween);
    case kTwoLeft:
      return after(0x80, 0xBF, kOneLeft);
    case kThreeLeft:
      return after(0x80, 0xBF, kTwoLeft);
    case kAfterE0:
      return after(0xA0, 0xBF, kOneLeft);
    case kAfterED:
      return after(0x80, 0x9F, kOneLeft);
    case kAfterF0:
      return after(0x90, 0xBF, kTwoLeft);
    case kAfterF4:
      return after(0x80, 0x8F, kTwoLeft);
    case kInvalid:
      break;
  }
  return kInvalid;
}

void AddByte(uint8_t byte, uint32_t target, ByteDfa::State* state) {
  if (!state->edges.empty()) {
    ByteDfa::Edge& last = state->edges.back();
    if (last.target == target && last.last + 1 == byte) {
      last.last = byte;
      return;
    }
  }
  state->edges.push_back({.first = byte, .last = byte, .target = target});
}

// Without the states from which no text can be completed. An excluded string or a marker can make
// them: if every character that begins with some byte is excluded, that byte leads nowhere.
ByteDfa Trim(const ByteDfa& dfa) {
  const size_t size = dfa.states.size();
  List<List<uint32_t>> sources(size);
  List<uint32_t> unvisited;
  std::vector<bool> is_kept(size, false);
  for (uint32_t i = 0; i < size; ++i) {
    for (const ByteDfa::Edge& edge : dfa.states[i].edges) sources[edge.target].push_back(i);
    if (dfa.states[i].accepting) {
      is_kept[i] = true;
      unvisited.push_back(i);
    }
  }
  while (!unvisited.empty()) {
    const uint32_t state = unvisited.back();
    unvisited.pop_back();
    for (const uint32_t source : sources[state]) {
      if (is_kept[source]) continue;
      is_kept[source] = true;
      unvisited.push_back(source);
    }
  }
  if (size == 0 || !is_kept[0]) return {};
  List<uint32_t> new_index(size, 0);
  ByteDfa trimmed;
  for (uint32_t i = 0; i < size; ++i) {
    if (!is_kept[i]) continue;
    new_index[i] = static_cast<uint32_t>(trimmed.states.size());
    trimmed.states.push_back(dfa.states[i]);
  }
  for (ByteDfa::State& state : trimmed.states) {
    std::erase_if(state.edges, [&](const ByteDfa::Edge& edge) { return !is_kept[edge.target]; });
    for (ByteDfa::Edge& edge : state.edges) edge.target = new_index[edge.target];
  }
  return trimmed;
}

}  // namespace

absl::StatusOr<FreeText> FreeText::Create(const std::vector<std::vector<std::string>>& groups,
                                          const std::vector<std::string>& excluded) {
  size_t size_bytes = 0;
  for (const auto& group : groups) {
    for (const std::string& marker : group) size_bytes += marker.size();
  }
  for (const std::string& text : excluded) size_bytes += text.size();
  if (size_bytes > kMarkerSizeBytesMax) {
    return absl::ResourceExhaustedError(
        fmt::format("the triggers, ends and excluded strings around a text have {} bytes, allowed "
                    "are {}; give fewer or shorter ones",
                    size_bytes, kMarkerSizeBytesMax));
  }
  FreeText text;
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const std::string& marker : groups[group]) {
      text.Insert(marker, static_cast<uint32_t>(group));
    }
  }
  for (const std::string& marker : excluded) text.Insert(marker, kExcluded);
  text.Link();
  return text;
}

void FreeText::Insert(const std::string& marker, uint32_t group) {
  uint32_t node = 0;
  for (const char c : marker) {
    const uint8_t byte = c;
    if (nodes_[node].next[byte] == 0) {
      nodes_.emplace_back();
      nodes_[node].next[byte] = static_cast<uint32_t>(nodes_.size() - 1);
    }
    node = nodes_[node].next[byte];
  }
  nodes_[node].group = group;
}

// Each node gets the steps of the longest proper suffix of its text that is a node too.
void FreeText::Link() {
  List<uint32_t> suffix(nodes_.size(), 0);
  List<uint32_t> by_length = {0};
  for (size_t i = 0; i < by_length.size(); ++i) {
    const uint32_t node = by_length[i];
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t child = nodes_[node].next[byte];
      const uint32_t other = node == 0 ? 0 : nodes_[suffix[node]].next[byte];
      if (child == 0) {
        nodes_[node].next[byte] = other;
        continue;
      }
      suffix[child] = other;
      if (nodes_[child].group == kNoGroup) nodes_[child].group = nodes_[other].group;
      by_length.push_back(child);
    }
  }
}

ByteDfa FreeText::Build(std::optional<size_t> last_group) const {
  ByteDfa dfa;
  HashMap<std::pair<uint32_t, Utf8State>, uint32_t> index_of;
  List<std::pair<uint32_t, Utf8State>> places;
  const auto index = [&](uint32_t node, Utf8State utf8) {
    const auto [entry, is_new] =
        index_of.try_emplace({node, utf8}, static_cast<uint32_t>(places.size()));
    if (is_new) {
      places.emplace_back(node, utf8);
      dfa.states.push_back({.edges = {}, .accepting = !last_group && utf8 == kBetween});
    }
    return entry->second;
  };
  index(0, kBetween);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [node, utf8] = places[i];
    ByteDfa::State state = {.edges = {}, .accepting = dfa.states[i].accepting};
    const uint32_t group = nodes_[node].group;
    if (last_group && group == *last_group) {
      state.accepting = true;  // the text ends here
    } else {
      for (int byte = 0; byte < 256; ++byte) {
        const Utf8State next_utf8 = NextByte(utf8, static_cast<uint8_t>(byte));
        const uint32_t next = nodes_[node].next[byte];
        const uint32_t next_group = nodes_[next].group;
        if (next_utf8 == kInvalid) continue;
        if (next_group != kNoGroup && (!last_group || next_group != *last_group)) continue;
        AddByte(static_cast<uint8_t>(byte), index(next, next_utf8), &state);
      }
    }
    dfa.states[i] = std::move(state);
  }
  return Trim(dfa);
}

}  // namespace specd::grammar
