// GrammarTokenizer is a tokenizer and a logit width, with what its grammars and matchers share.
//
// <specd/grammar.h> hands it out as specd_tokenizer. It has the compiler with its cache, the
// threads that fill masks, and the finder of forced tokens. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "ipc/include/specd/grammar.h"
#include "kernels/core/types.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/grammar/compiler/grammar_holder.h"
#include "speculative/grammar/masks/mask_pool.h"
#include "speculative/grammar/matchers/forced_tokens.h"

namespace specd {

class GrammarTokenizer {
 public:
  static constexpr uint64_t kStopIdsMax = 64;

  static absl::StatusOr<std::shared_ptr<GrammarTokenizer>> Create(
      const specd_tokenizer_options& options);

  GrammarTokenizer(const GrammarTokenizer&) = delete;
  GrammarTokenizer& operator=(const GrammarTokenizer&) = delete;

  int32_t vocab_size() const { return vocab_size_; }
  size_t num_mask_words() const { return (static_cast<size_t>(vocab_size_) + 31) / 32; }
  grammar::GrammarCompiler& compiler() { return *compiler_; }
  // Bounds the memory of the tokenizer's grammars.
  grammar::GrammarHolder& holder() { return holder_; }
  grammar::MaskPool& pool() { return pool_; }
  const grammar::ForcedTokenFinder& forced_tokens() const { return *compiler_->forced_tokens(); }

  // The EOS ids and a matcher's own. `field` names the list in errors.
  absl::StatusOr<std::vector<TokenId>> StopIds(const specd_ids& ids, const char* field) const;

 private:
  GrammarTokenizer(Vocabulary vocabulary, int32_t vocab_size);

  const Vocabulary vocabulary_;
  const int32_t vocab_size_;
  std::vector<TokenId> eos_token_ids_;
  std::unique_ptr<grammar::GrammarCompiler> compiler_;  // prepared
  grammar::GrammarHolder holder_;
  grammar::MaskPool pool_;
};

// The text of a pointer and a length; a length of 0 means that a NUL ends the text. NULL is empty.
absl::StatusOr<std::string_view> TextOf(const char* field, const char* text, uint64_t size_bytes,
                                        size_t size_bytes_max);

}  // namespace specd
