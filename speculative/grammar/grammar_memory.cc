#include "speculative/grammar/grammar_memory.h"

#include <optional>

#include "speculative/grammar/compile_cache.h"

namespace specd::grammar {

GrammarMemory& GrammarMemory::OfProcess() {
  // Never destroyed: a process may end while a thread of its engine compiles.
  static GrammarMemory* const memory = new GrammarMemory(kProcessBytesMax);
  return *memory;
}

void GrammarMemory::AddCache(CompileCache* cache) {
  const std::lock_guard lock(mutex_);
  caches_.push_back(cache);
}

void GrammarMemory::RemoveCache(CompileCache* cache) {
  const std::lock_guard lock(mutex_);
  std::erase(caches_, cache);
}

void GrammarMemory::MakeRoom(size_t bytes_wanted) {
  if (size_bytes() <= bytes_wanted) return;
  const std::lock_guard lock(mutex_);
  while (size_bytes() > bytes_wanted) {
    CompileCache* oldest = nullptr;
    uint64_t oldest_use = 0;
    for (CompileCache* cache : caches_) {
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
