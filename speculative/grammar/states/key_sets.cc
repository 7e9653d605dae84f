#include "speculative/grammar/states/key_sets.h"

#include <algorithm>

namespace specd::grammar {

uint32_t KeySets::With(uint32_t set, uint32_t key) {
  const Words known = words(set);
  scratch_.assign(known.begin(), known.end());
  if (scratch_.size() <= key / 64) scratch_.resize(key / 64 + 1);
  scratch_[key / 64] |= uint64_t{1} << key % 64;
  return NumberOf(scratch_);
}

uint32_t KeySets::NumberOf(Words wanted) {
  if (wanted.empty()) return kEmpty;
  uint64_t mixed = 0;
  for (const uint64_t word : wanted) mixed = IdTable::Mix(mixed ^ word);
  const uint32_t hash = mixed;
  const auto is_set = [&](uint32_t i) { return std::ranges::equal(words(i), wanted); };
  const uint32_t found = ids_.Find(hash, is_set);
  if (found != IdTable::kNone) return found;
  // Memory is taken first. After that nothing can fail.
  ids_.Reserve();
  const auto reserve = [](auto* list, size_t more) {
    if (list->capacity() < list->size() + more) {
      list->reserve(std::max(2 * list->capacity(), list->size() + more));
    }
  };
  reserve(&words_, wanted.size());
  reserve(&ends_, 1);
  const uint32_t number = ends_.size();
  words_.insert(words_.end(), wanted.begin(), wanted.end());
  ends_.push_back(static_cast<uint32_t>(words_.size()));
  ids_.Insert(hash, number);
  // The lists double, and the table is half empty.
  bytes_.Add(2 * wanted.size() * sizeof(uint64_t) + 2 * sizeof(uint32_t) + 4 * sizeof(uint64_t));
  return number;
}

}  // namespace specd::grammar
