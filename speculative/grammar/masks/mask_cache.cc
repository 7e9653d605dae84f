#include "speculative/grammar/masks/mask_cache.h"

#include <algorithm>
#include <utility>

namespace specd::grammar {
namespace {

constexpr size_t kMemoryPart = 8;  // of the memory of all grammars

size_t BytesOf(const MaskWords& words) {
  // The list's entry and the map's are an estimate.
  return words.size() * sizeof(uint32_t) + 128;
}

}  // namespace

MaskCache::Words MaskCache::Find(const Key& key) {
  const std::lock_guard lock(mutex_);
  return FindHeld(key);
}

MaskCache::Words MaskCache::Insert(const Key& key, Words words) {
  const std::lock_guard lock(mutex_);
  return InsertHeld(key, std::move(words));
}

MaskCache::Words MaskCache::FindOrBuild(const Key& key, absl::FunctionRef<Words()> build) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (Words words = FindHeld(key); words != nullptr) return words;
    if (std::find(building_.begin(), building_.end(), key) == building_.end()) break;
    built_.wait(lock);
  }
  building_.push_back(key);
  lock.unlock();
  Words words;
  try {
    words = build();
  } catch (...) {
    lock.lock();
    std::erase(building_, key);
    built_.notify_all();
    throw;
  }
  lock.lock();
  std::erase(building_, key);
  built_.notify_all();
  return words == nullptr ? nullptr : InsertHeld(key, std::move(words));
}

MaskCache::Words MaskCache::FindHeld(const Key& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->words;
}

MaskCache::Words MaskCache::InsertHeld(const Key& key, Words words) {
  const auto [place, is_new] = places_.try_emplace(key, entries_.end());
  if (!is_new) return place->second->words;
  try {
    entries_.push_front({key, words});
  } catch (...) {
    places_.erase(place);
    throw;
  }
  place->second = entries_.begin();
  size_bytes_ += BytesOf(*words);
  memory_.Add(BytesOf(*words));
  const size_t bytes_max = std::min(bytes_max_, memory_.bytes_max() / kMemoryPart);
  while (size_bytes_ > bytes_max && entries_.size() > 1) DropOldest();
  return words;
}

void MaskCache::DropOldest() {
  const size_t bytes = BytesOf(*entries_.back().words);
  size_bytes_ -= bytes;
  memory_.Remove(bytes);
  places_.erase(entries_.back().key);
  entries_.pop_back();
}

size_t MaskCache::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return size_bytes_;
}

}  // namespace specd::grammar
