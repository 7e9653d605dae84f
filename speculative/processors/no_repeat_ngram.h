// NoRepeatNgram bans ids that would repeat n ids in a row: step 6 of CONTRACT §3.
//
// At a place, n - 1 ids precede the next one. If the same n - 1 ids occurred before, the ids that
// followed them are banned, except for a whitelist. Prompt, output and draft prefix count. If there
// is a window, only n-grams that lie wholly in the last `window` tokens count. SGLang and Hugging
// Face define it so.
//
// A hash of their first n - 1 ids indexes the kept n-grams. Each lies in a chain that leads to the
// one before it. If n-grams are the same, only the latest is in a chain. A place therefore costs
// the different n-grams that share its hash, not the length of the history. If n = 1, every id
// shares the hash: a place costs exactly the different ids of the window, at most vocab_size, and
// bans them. One sequence owns it, like every Processor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "speculative/processors/fixed_list.h"
#include "speculative/processors/processor.h"

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
  size_t size_bytes() const override {
    return previous_.capacity_bytes() + next_.capacity_bytes() +
           (last_.size() + latest_.size()) * sizeof(int32_t) + whitelist_.size() * sizeof(TokenId);
  }
  void Advance(const TokenHistory& history, size_t num_new) override;
  void Apply(const TokenHistory& history, PlaceEditor* place) const override;
  std::unique_ptr<Processor> Clone() const override {
    return std::make_unique<NoRepeatNgram>(*this);
  }

 private:
  // The bucket of the n - 1 ids from `begin` on.
  size_t BucketOf(const TokenId* begin) const;
  // The bucket of all n ids; with n = 1 each id has its own.
  size_t GramBucketOf(const TokenId* begin) const;
  void Unlink(size_t at, const TokenId* tokens);
  bool SamePrefix(const TokenId* a, const TokenId* b) const;
  void BanUnlessListed(TokenId id, PlaceEditor* place) const;

  const size_t prefix_size_;  // n - 1
  const size_t window_;
  std::vector<TokenId> whitelist_;  // sorted
  size_t max_edits_;
  // Heads of the chains: the last place with that hash whose next id is kept; -1: none.
  std::vector<int32_t> last_;
  FixedList<int32_t> previous_;  // previous_[place]: the place before it in its chain
  FixedList<int32_t> next_;      // next_[place]: the place after it; -1: it is the head
  // The last place whose whole n-gram has that hash. If two n-grams share a hash, they replace each
  // other here, and a chain keeps more of them than it must.
  std::vector<int32_t> latest_;
};

}  // namespace specd
