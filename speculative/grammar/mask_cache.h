// MaskCache keeps mask rows of compiled grammars, and drops those used least recently.
//
// A row belongs to a grammar, a state and a set of stop ids. Sequences under the same constraint
// share it. A row that is dropped lives on while a round uses it. Safe from any number of threads;
// no row is built under the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace specd::grammar {

class MaskCache {
 public:
  using Words = std::shared_ptr<const std::vector<uint32_t>>;

  struct Key {
    uint64_t grammar = 0;
    uint32_t state = 0;
    uint32_t stop_set = 0;

    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Key& key) {
      return H::combine(std::move(hash), key.grammar, key.state, key.stop_set);
    }
  };

  explicit MaskCache(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Null if the row is not there.
  Words Find(const Key& key);
  // Returns the row that the cache then has: another thread's, if that came first.
  Words Insert(const Key& key, Words words);

  size_t size_bytes() const;

 private:
  struct Entry {
    Key key;
    Words words;
  };
  using Entries = std::list<Entry>;

  const size_t bytes_max_;
  mutable std::mutex mutex_;
  Entries entries_;  // the one used last is at the front
  absl::flat_hash_map<Key, Entries::iterator> places_;
  size_t size_bytes_ = 0;
};

}  // namespace specd::grammar
