// HashMap and HashSet are the tables of the front ends and automata.
//
// They are those of the standard library: an insertion that finds no memory changes nothing.
// Abseil's tables break if memory runs out while they grow, and the process ends when such a table
// is destroyed. They are hashed by absl::Hash, which knows pairs and vectors. Their bytes count in
// the budget of a compile (counted.h). Where a table is hot, IdTable (id_table.h) is faster.
#pragma once

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/hash/hash.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

template <typename Key, typename Value>
using HashMap = std::unordered_map<Key, Value, absl::Hash<Key>, std::equal_to<Key>,
                                   CountedAllocator<std::pair<const Key, Value>>>;
template <typename Key>
using HashSet = std::unordered_set<Key, absl::Hash<Key>, std::equal_to<Key>, CountedAllocator<Key>>;

}  // namespace specd::grammar
