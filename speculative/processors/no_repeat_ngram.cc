#include "speculative/processors/no_repeat_ngram.h"

#include <algorithm>
#include <bit>

namespace specd {
namespace {

// A sequence's table of chain heads has at most 256 KiB; longer histories have longer chains.
constexpr size_t kBucketsMax = size_t{1} << 16;

size_t NumBuckets(size_t max_history) {
  return std::min(std::bit_ceil(max_history + 1), kBucketsMax);
}

uint64_t HashOf(const TokenId* begin, size_t size) {
  uint64_t hash = 0;
  for (size_t i = 0; i < size; ++i) {
    // The multiplier is 2^64 / golden ratio (Knuth, TAOCP 6.4); the high bits are the mixed ones.
    hash = (hash ^ static_cast<uint32_t>(begin[i])) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

NoRepeatNgram::NoRepeatNgram(const NgramOptions& options)
    : prefix_size_(options.ngram_size - 1),
      window_(options.window),
      whitelist_(options.whitelist),
      last_(options.ngram_size == 1 ? 1 : NumBuckets(options.max_history), -1),
      previous_(options.max_history),
      next_(options.max_history),
      latest_(options.ngram_size == 1 ? static_cast<size_t>(options.vocab_size)
                                      : NumBuckets(options.max_history),
              -1) {
  std::sort(whitelist_.begin(), whitelist_.end());
  size_t followers = options.max_history + options.max_draft;
  if (window_ > 0) followers = std::min(followers, window_);
  // Twice the number of ids that can differ, because the same id may follow often. A merge is worth
  // its sort only once repetitions take half the room.
  max_edits_ = 2 * std::min(followers, static_cast<size_t>(options.vocab_size));
}

size_t NoRepeatNgram::BucketOf(const TokenId* begin) const {
  return static_cast<size_t>(HashOf(begin, prefix_size_)) & (last_.size() - 1);
}

size_t NoRepeatNgram::GramBucketOf(const TokenId* begin) const {
  if (prefix_size_ == 0) return static_cast<size_t>(*begin);
  return static_cast<size_t>(HashOf(begin, prefix_size_ + 1)) & (latest_.size() - 1);
}

void NoRepeatNgram::Unlink(size_t at, const TokenId* tokens) {
  const int32_t before = previous_[at];
  const int32_t behind = next_[at];
  if (before >= 0) next_[before] = behind;
  (behind >= 0 ? previous_[behind] : last_[BucketOf(tokens + at)]) = before;
}

bool NoRepeatNgram::SamePrefix(const TokenId* a, const TokenId* b) const {
  return std::equal(a, a + prefix_size_, b);
}

void NoRepeatNgram::BanUnlessListed(TokenId id, PlaceEditor* place) const {
  if (!std::binary_search(whitelist_.begin(), whitelist_.end(), id)) place->Ban(id);
}

void NoRepeatNgram::Advance(const TokenHistory& history, size_t num_new) {
  const std::span<const TokenId> tokens = history.tokens;
  for (size_t follower = tokens.size() - num_new; follower < tokens.size(); ++follower) {
    if (follower < prefix_size_) continue;
    const size_t begin = follower - prefix_size_;
    const TokenId* const gram = &tokens[begin];
    int32_t& latest = latest_[GramBucketOf(gram)];
    if (latest >= 0 && std::equal(gram, gram + prefix_size_ + 1, &tokens[latest])) {
      Unlink(static_cast<size_t>(latest), tokens.data());
    }
    latest = static_cast<int32_t>(begin);
    int32_t& last = last_[BucketOf(gram)];
    SPECD_CHECK(previous_.size() == begin);
    if (last >= 0) next_[last] = latest;
    previous_.push_back(last);
    next_.push_back(-1);
    last = latest;
  }
}

void NoRepeatNgram::Apply(const TokenHistory& history, PlaceEditor* place) const {
  const std::span<const TokenId> tokens = history.tokens;
  if (tokens.size() < prefix_size_ + 1) return;
  const TokenId* const prefix = tokens.data() + (tokens.size() - prefix_size_);
  const size_t first = window_ > 0 && tokens.size() > window_ ? tokens.size() - window_ : 0;

  for (int32_t at = last_[BucketOf(prefix)]; at >= 0 && static_cast<size_t>(at) >= first;
       at = previous_[at]) {
    const TokenId* const begin = &tokens[at];
    if (SamePrefix(begin, prefix)) BanUnlessListed(begin[prefix_size_], place);
  }
  // Places whose next id is a draft token are in no chain; there are as many as draft tokens.
  for (size_t at = std::max(first, previous_.size()); at + prefix_size_ < tokens.size(); ++at) {
    if (SamePrefix(&tokens[at], prefix)) BanUnlessListed(tokens[at + prefix_size_], place);
  }
}

}  // namespace specd
