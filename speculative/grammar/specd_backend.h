// SpecdBackend is specd's own grammar engine: front ends, lazy automata, and masks by slices.
//
// One backend serves one tokenizer and one logit width. grammar_backend.h has its promises.
// Safe from any number of threads.
//
//   auto backend = SpecdBackend::Create({.vocabulary = &vocabulary, .vocab_size = 128256});
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "speculative/grammar/budget.h"
#include "speculative/grammar/byte_set.h"
#include "speculative/grammar/grammar_backend.h"
#include "speculative/grammar/grammar_memory.h"
#include "speculative/grammar/mask_builder.h"
#include "speculative/grammar/mask_cache.h"

namespace specd::grammar {

struct SpecdBackendOptions {
  const Vocabulary* vocabulary = nullptr;  // outlives the backend and its grammars
  int32_t vocab_size = 0;
  size_t mask_bytes = size_t{256} << 20;                // of mask rows, at most (mask_cache.h)
  GrammarMemory* memory = &GrammarMemory::OfProcess();  // outlives the backend and its grammars
  BudgetLimits compile_limits = CompileLimits();        // of one compile
};

// The parts that the compiled grammars of one tokenizer share.
struct TokenizerParts {
  explicit TokenizerParts(const SpecdBackendOptions& options)
      : vocabulary(*options.vocabulary),
        vocab_size(options.vocab_size),
        builder(TokenTrie::Build(vocabulary, vocab_size)),
        no_ids(std::make_shared<const std::vector<uint32_t>>(
            (static_cast<size_t>(vocab_size) + 31) / 32)),
        masks(options.mask_bytes, options.memory),
        memory(*options.memory) {
    for (TokenId id = 0; id < std::min(vocab_size, vocabulary.size()); ++id) {
      if (vocabulary.IsSpecial(id)) continue;
      const std::string_view bytes = vocabulary.Bytes(id);
      for (const char byte : bytes) spelled_bytes.Add(static_cast<uint8_t>(byte));
      if (bytes.size() == 1) one_byte_tokens.Add(static_cast<uint8_t>(bytes[0]));
      longest_token_bytes = std::max(longest_token_bytes, static_cast<uint32_t>(bytes.size()));
    }
  }

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

class SpecdBackend : public GrammarBackend {
 public:
  static absl::StatusOr<std::unique_ptr<SpecdBackend>> Create(const SpecdBackendOptions& options);

  std::string_view name() const override { return "specd"; }
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const GrammarRequest& request) const override;

  // Bytes of the mask rows that all grammars of the backend keep.
  size_t mask_bytes() const { return parts_->masks.size_bytes(); }

 private:
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> CompileBounded(
      const GrammarRequest& request) const;
  explicit SpecdBackend(const SpecdBackendOptions& options);

  std::shared_ptr<TokenizerParts> parts_;
  const BudgetLimits limits_;
};

}  // namespace specd::grammar
