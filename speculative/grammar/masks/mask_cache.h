// MaskCache keeps mask rows of compiled grammars, and drops those used least recently.
//
// A row belongs to a grammar, a state and a set of stop ids. Sequences under the same constraint
// share it. A row that is dropped lives on while a round uses it. The rows count in the memory of
// all grammars, and take an eighth of its bound at most. Safe from any number of threads; no row is
// built under the lock.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/base/id_table.h"
#include "speculative/grammar/masks/mask_words.h"

namespace specd::grammar {

class MaskCache {
 public:
  using Words = std::shared_ptr<const MaskWords>;

  struct Key {
    uint64_t grammar = 0;
    uint32_t state = 0;
    uint32_t stop_set = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };

  // `memory` outlives the cache.
  MaskCache(size_t bytes_max, GrammarMemory* memory) : bytes_max_(bytes_max), memory_(*memory) {}
  ~MaskCache() { memory_.Remove(size_bytes_); }
  MaskCache(const MaskCache&) = delete;
  MaskCache& operator=(const MaskCache&) = delete;

  // Null if the row is not there.
  Words Find(const Key& key);
  // Returns the row that the cache then has: another thread's, if that came first.
  Words Insert(const Key& key, Words words);
  // Finds the row, or inserts what `build` returns, unless that is null. While one thread builds a
  // row, others that ask for it wait. If the builder has none, one of the others builds.
  Words FindOrBuild(const Key& key, absl::FunctionRef<Words()> build);

  size_t size_bytes() const;

 private:
  // With the lock held.
  Words FindHeld(const Key& key);
  Words InsertHeld(const Key& key, Words words);
  void DropOldest();

  struct HashKey {
    size_t operator()(const Key& key) const {
      return IdTable::Mix(IdTable::Mix(key.grammar) ^ (uint64_t{key.state} << 32 | key.stop_set));
    }
  };
  struct Entry {
    Key key;
    Words words;
  };
  using Entries = std::list<Entry>;

  const size_t bytes_max_;
  GrammarMemory& memory_;
  mutable std::mutex mutex_;
  Entries entries_;  // the one used last is at the front
  // If memory runs out while an entry is added, the map is as it was; Abseil's would be broken.
  std::unordered_map<Key, Entries::iterator, HashKey> places_;
  size_t size_bytes_ = 0;
  std::condition_variable built_;
  std::vector<Key> building_;  // by some thread
};

}  // namespace specd::grammar
