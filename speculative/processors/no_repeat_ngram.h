// NoRepeatNgram: step 6 of CONTRACT §3. No n ids in a row are emitted twice.
//
// At a place, the ids that once followed the same n - 1 ids as stand before it are banned, but for
// a whitelist. Prompt, output and draft prefix count; with a window only n-grams that lie wholly in
// the last `window` tokens. As SGLang and Hugging Face define it.
//
// Kept n-grams are indexed by a hash of their first n - 1 ids, each in a chain that leads back to
// the one before it. Of n-grams that are the same only the latest is in a chain, so a place costs
// the different n-grams that share its hash and not the length of the history. With n = 1 every
// id shares it: a place costs exactly the different ids of the window, vocab_size at most, and they
// are what it bans.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "speculative/fixed_list.h"
#include "speculative/processor.h"

namespace specd {

struct NgramOptions {
  size_t ngram_size = 0;
  size_t window = 0;  // 0: all
  std::vector<TokenId> whitelist;
  size_t max_history = 0;  // the most tokens that will be kept
  size_t max_draft = 0;
  int32_t vocab_size = 0;
};

class NoRepeatNgram : public Processor {
 public:
  // REQUIRES: options.ngram_size >= 1, max_history < 2^31, ids of the history below vocab_size.
  explicit NoRepeatNgram(const NgramOptions& options);

  size_t max_edits() const override { return max_edits_; }
  void Advance(const TokenHistory& history, size_t num_new) override;
  void Apply(const TokenHistory& history, PlaceEditor* place) const override;
  std::unique_ptr<Processor> Clone() const override {
    return std::make_unique<NoRepeatNgram>(*this);
  }

 private:
  // Of the n - 1 ids from `begin` on.
  size_t BucketOf(const TokenId* begin) const;
  // Of all n of them; with n = 1 each id has its own.
  size_t GramBucketOf(const TokenId* begin) const;
  void Unlink(size_t at, const TokenId* tokens);
  bool SamePrefix(const TokenId* a, const TokenId* b) const;
  void BanUnlessListed(TokenId id, PlaceEditor* place) const;

  const size_t prefix_size_;  // n - 1
  const size_t window_;
  std::vector<TokenId> whitelist_;  // sorted
  size_t max_edits_;
  // Heads of the chains: the last place with that hash whose follower is kept; -1: none.
  std::vector<int32_t> last_;
  FixedList<int32_t> previous_;  // previous_[place]: the one before it in its chain
  FixedList<int32_t> next_;      // next_[place]: the one behind it; -1: it is the head
  // The last place whose whole n-gram has that hash. Where two n-grams take it from each other, a
  // chain keeps more of them than it must.
  std::vector<int32_t> latest_;
};

}  // namespace specd
