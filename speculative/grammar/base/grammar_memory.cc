#include "speculative/grammar/base/grammar_memory.h"

namespace specd::grammar {

GrammarMemory& GrammarMemory::OfProcess() {
  // Never destroyed: a process may end while a thread of its engine compiles.
  static GrammarMemory* const memory = new GrammarMemory(kProcessBytesMax);
  return *memory;
}

void GrammarMemory::AddCache(Cache* cache) {
  const std::lock_guard lock(mutex_);
  caches_.push_back(cache);
}

void GrammarMemory::RemoveCache(Cache* cache) {
  const std::lock_guard lock(mutex_);
  std::erase(caches_, cache);
}

void GrammarMemory::MakeRoom(size_t bytes_wanted) {
  if (size_bytes() <= bytes_wanted) return;
  const std::lock_guard lock(mutex_);
  while (size_bytes() > bytes_wanted) {
    Cache* oldest = nullptr;
    uint64_t oldest_use = 0;
    for (Cache* cache : caches_) {
      const std::optional<uint64_t> use = cache->OldestUnused();
      if (!use.has_value() || (oldest != nullptr && *use > oldest_use)) continue;
      oldest = cache;
      oldest_use = *use;
    }
    if (oldest == nullptr) return;
    oldest->DropUnused(oldest_use);
  }
}

}  // namespace specd::grammar
