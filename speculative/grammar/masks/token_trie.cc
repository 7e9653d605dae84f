#include "speculative/grammar/masks/token_trie.h"

#include <algorithm>
#include <string>
#include <utility>

namespace specd::grammar {
namespace {

// A node of fewer children is looked through as fast.
constexpr uint32_t kWideChildren = 8;

struct SortedToken {
  uint64_t head = 0;  // the first 8 bytes, the first byte highest: one comparison sorts most tokens
  std::string_view bytes;
  TokenId id = 0;
};

uint64_t HeadOf(std::string_view bytes) {
  uint64_t head = 0;
  for (size_t i = 0; i < 8; ++i) {
    head = head << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0);
  }
  return head;
}

bool IsBefore(const SortedToken& a, const SortedToken& b) {
  if (a.head != b.head) return a.head < b.head;
  const int order = a.bytes.compare(b.bytes);
  return order != 0 ? order < 0 : a.id < b.id;
}

}  // namespace

// Builder appends tokens in the order of their bytes.
class TokenTrie::Builder {
 public:
  explicit Builder(int32_t vocab_size) { trie_.vocab_size_ = vocab_size; }

  // REQUIRES: (bytes, id) is after that of the last call; bytes are not empty.
  void Add(std::string_view bytes, TokenId id) {
    const std::string_view last = last_;
    const size_t shared = static_cast<size_t>(
        std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    if (shared < bytes.size()) {
      CloseTo(shared);
      for (size_t depth = shared; depth < bytes.size(); ++depth) {
        open_.push_back(static_cast<uint32_t>(trie_.nodes_.size()));
        trie_.nodes_.push_back(
            {.depth = static_cast<uint16_t>(depth), .byte = static_cast<uint8_t>(bytes[depth])});
      }
      trie_.nodes_.back().has_tokens = true;
      trie_.text_begins_.push_back(0);
      last_.replace(shared, std::string::npos, bytes.substr(shared));
      trie_.depth_max_ = std::max(trie_.depth_max_, bytes.size());
    }
    trie_.tokens_.push_back(id);
    trie_.text_begins_.back() = static_cast<uint32_t>(trie_.tokens_.size());
  }

  TokenTrie Build() && {
    CloseTo(0);
    std::vector<Node>& nodes = trie_.nodes_;
    nodes.shrink_to_fit();
    trie_.branches_.clear();
    AddBranch(0, static_cast<uint32_t>(nodes.size()));
    for (uint32_t node = 0; node < nodes.size(); ++node) {
      const uint32_t end = nodes[node].subtree_end;
      uint32_t num_children = 0;
      for (uint32_t at = node + 1; at < end; at = nodes[at].subtree_end) ++num_children;
      nodes[node].is_wide = num_children >= kWideChildren;
      if (nodes[node].is_wide) AddBranch(node + 1, end);
    }
    trie_.texts_ = Ranks(nodes.size(), [&](uint32_t node) { return nodes[node].has_tokens; });
    trie_.wide_ = Ranks(nodes.size(), [&](uint32_t node) { return nodes[node].is_wide; });
    return std::move(trie_);
  }

 private:
  // Ends the nodes of depth `depth` and more.
  void CloseTo(size_t depth) {
    for (; open_.size() > depth; open_.pop_back()) {
      trie_.nodes_[open_.back()].subtree_end = static_cast<uint32_t>(trie_.nodes_.size());
    }
  }

  // The nodes from `first` to `end` that are children of one node.
  void AddBranch(uint32_t first, uint32_t end) {
    Branch& branch = trie_.branches_.emplace_back();
    branch.first_child = static_cast<uint32_t>(trie_.children_.size());
    branch.end = end;
    for (uint32_t at = first; at < end; at = trie_.nodes_[at].subtree_end) {
      branch.bytes.Add(trie_.nodes_[at].byte);
      trie_.children_.push_back(at);
    }
  }

  TokenTrie trie_;
  std::string last_;
  std::vector<uint32_t> open_;  // the nodes of last_
};

TokenTrie TokenTrie::Build(const Vocabulary& vocabulary, int32_t vocab_size) {
  std::vector<SortedToken> sorted;
  const TokenId id_end = std::min(vocabulary.size(), vocab_size);
  for (TokenId id = 0; id < id_end; ++id) {
    const std::string_view bytes = vocabulary.Bytes(id);
    if (bytes.empty() || vocabulary.IsSpecial(id)) continue;
    sorted.push_back({.head = HeadOf(bytes), .bytes = bytes, .id = id});
  }
  std::sort(sorted.begin(), sorted.end(), IsBefore);
  Builder builder(vocab_size);
  for (const SortedToken& token : sorted) builder.Add(token.bytes, token.id);
  return std::move(builder).Build();
}

std::vector<TokenTrie> TokenTrie::Split(size_t num_parts,
                                        absl::FunctionRef<size_t(TokenId)> part_of) const {
  std::vector<Builder> builders(num_parts, Builder(vocab_size_));
  std::string bytes;
  size_t text = 0;
  for (const Node& node : nodes_) {
    bytes.resize(node.depth);
    bytes.push_back(static_cast<char>(node.byte));
    if (!node.has_tokens) continue;
    for (uint32_t i = text_begins_[text]; i < text_begins_[text + 1]; ++i) {
      const size_t part = part_of(tokens_[i]);
      if (part < num_parts) builders[part].Add(bytes, tokens_[i]);
    }
    ++text;
  }
  std::vector<TokenTrie> parts;
  for (Builder& builder : builders) parts.push_back(std::move(builder).Build());
  return parts;
}

size_t TokenTrie::size_bytes() const {
  return nodes_.size() * sizeof(Node) + texts_.size_bytes() + wide_.size_bytes() +
         branches_.size() * sizeof(Branch) + children_.size() * sizeof(uint32_t) +
         text_begins_.size() * sizeof(uint32_t) + tokens_.size() * sizeof(TokenId);
}

TokenTrie::Ranks::Ranks(size_t num_nodes, absl::FunctionRef<bool(uint32_t)> has)
    : words_(num_nodes / 64 + 1) {
  uint32_t num_before = 0;
  for (uint32_t node = 0; node <= num_nodes; ++node) {
    Word& word = words_[node / 64];
    if (node % 64 == 0) word.num_before = num_before;
    if (node == num_nodes || !has(node)) continue;
    word.bits |= uint64_t{1} << node % 64;
    ++num_before;
  }
}

}  // namespace specd::grammar
