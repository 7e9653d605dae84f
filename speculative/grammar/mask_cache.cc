#include "speculative/grammar/mask_cache.h"

#include <utility>

namespace specd::grammar {
namespace {

size_t BytesOf(const std::vector<uint32_t>& words) {
  // The list's entry and the map's are an estimate.
  return words.size() * sizeof(uint32_t) + 128;
}

}  // namespace

MaskCache::Words MaskCache::Find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->words;
}

MaskCache::Words MaskCache::Insert(const Key& key, Words words) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found != places_.end()) return found->second->words;
  size_bytes_ += BytesOf(*words);
  entries_.push_front({key, words});
  places_.emplace(key, entries_.begin());
  while (size_bytes_ > bytes_max_ && entries_.size() > 1) {
    size_bytes_ -= BytesOf(*entries_.back().words);
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return words;
}

size_t MaskCache::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return size_bytes_;
}

}  // namespace specd::grammar
