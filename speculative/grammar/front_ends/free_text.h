// FreeText builds automata of any text around markers, for structural tags.
//
// A reader scans the text and stops where the first marker is complete. Markers are in groups: a
// different text follows each group. The scan is an Aho-Corasick automaton
// (Aho and Corasick, "Efficient string matching", 1975), and reads valid UTF-8 only. Immutable, for
// any thread.
//
//   absl::StatusOr<FreeText> text = FreeText::Create({{"<a>"}, {"<b>", "<c>"}}, {});
//   rules.Automaton(text->Through(1));    // any text, and <b> or <c> as its first marker
//   rules.Automaton(text->Without());     // any text without a marker
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

class FreeText {
 public:
  // All markers of a text together.
  static constexpr size_t kMarkerSizeBytesMax = 16384;

  // The text holds no excluded string, the marker that ends it included. Where two strings are
  // complete at once, the longer one counts. RESOURCE_EXHAUSTED: past the limit. REQUIRES: no
  // string is empty or in two groups, and all are valid UTF-8.
  static absl::StatusOr<FreeText> Create(const std::vector<std::vector<std::string>>& groups,
                                         const std::vector<std::string>& excluded);

  ByteDfa Without() const { return Build(std::nullopt); }
  ByteDfa Through(size_t group) const { return Build(group); }

 private:
  // Nothing ends at the node.
  static constexpr uint32_t kNoGroup = ~uint32_t{0};
  static constexpr uint32_t kExcluded = kNoGroup - 1;

  struct Node {
    std::array<uint32_t, 256> next = {};  // after Link: of every byte
    uint32_t group = kNoGroup;            // of the strings that end here
  };

  FreeText() : nodes_(1) {}

  void Insert(const std::string& marker, uint32_t group);
  void Link();
  ByteDfa Build(std::optional<size_t> last_group) const;

  List<Node> nodes_;
};

}  // namespace specd::grammar
