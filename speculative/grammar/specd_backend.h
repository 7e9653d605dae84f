// SpecdBackend is specd's own grammar engine: front ends, lazy automata, and masks by slices.
//
// One backend serves one tokenizer and one logit width. grammar_backend.h has its promises.
// Safe from any number of threads.
//
//   auto backend = SpecdBackend::Create({.vocabulary = &vocabulary, .vocab_size = 128256});
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "speculative/grammar/grammar_backend.h"
#include "speculative/grammar/mask_builder.h"
#include "speculative/grammar/mask_cache.h"

namespace specd::grammar {

struct SpecdBackendOptions {
  const Vocabulary* vocabulary = nullptr;  // outlives the backend and its grammars
  int32_t vocab_size = 0;
  size_t mask_bytes = size_t{256} << 20;  // of mask rows
};

// The parts that the compiled grammars of one tokenizer share.
struct TokenizerParts {
  explicit TokenizerParts(const SpecdBackendOptions& options)
      : vocabulary(*options.vocabulary),
        vocab_size(options.vocab_size),
        builder(TokenTrie::Build(vocabulary, vocab_size)),
        masks(options.mask_bytes) {}

  const Vocabulary& vocabulary;
  const int32_t vocab_size;
  const MaskBuilder builder;
  MaskCache masks;
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
};

}  // namespace specd::grammar
