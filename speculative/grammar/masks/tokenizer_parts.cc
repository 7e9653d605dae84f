#include "speculative/grammar/masks/tokenizer_parts.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

namespace specd::grammar {

TokenizerParts::TokenizerParts(const Vocabulary* tokens, const TokenTrie& trie, size_t mask_bytes,
                               GrammarMemory* bound)
    : vocabulary(*tokens),
      vocab_size(trie.vocab_size()),
      builder(trie),
      no_ids(std::make_shared<const MaskWords>((static_cast<size_t>(vocab_size) + 31) / 32)),
      masks(mask_bytes, bound),
      memory(*bound) {
  for (TokenId id = 0; id < std::min(vocab_size, vocabulary.size()); ++id) {
    if (vocabulary.IsSpecial(id)) continue;
    const std::string_view bytes = vocabulary.Bytes(id);
    for (const char byte : bytes) spelled_bytes.Add(static_cast<uint8_t>(byte));
    if (bytes.size() == 1) one_byte_tokens.Add(static_cast<uint8_t>(bytes[0]));
    longest_token_bytes = std::max(longest_token_bytes, static_cast<uint32_t>(bytes.size()));
  }
}

}  // namespace specd::grammar
