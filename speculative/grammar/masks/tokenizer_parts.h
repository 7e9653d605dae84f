// TokenizerParts are what the compiled grammars of one tokenizer and one logit width share: the
// builder of masks, the cache of masks, and the bound of memory. Safe from any number of threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/masks/mask_builder.h"
#include "speculative/grammar/masks/mask_cache.h"
#include "speculative/grammar/masks/token_trie.h"

namespace specd::grammar {

struct TokenizerParts {
  // `trie` is that of the vocabulary, and is read during the call only. Vocabulary and memory
  // outlive the parts.
  TokenizerParts(const Vocabulary* tokens, const TokenTrie& trie, size_t mask_bytes,
                 GrammarMemory* bound);

  const Vocabulary& vocabulary;
  const int32_t vocab_size;
  const MaskBuilder builder;
  const MaskCache::Words no_ids;  // the row of a matcher with a fault
  MaskCache masks;
  GrammarMemory& memory;
  ByteSet spelled_bytes;    // those of all tokens
  ByteSet one_byte_tokens;  // those that are a token alone
  uint32_t longest_token_bytes = 0;
  std::atomic<uint64_t> next_grammar{0};
};

}  // namespace specd::grammar
