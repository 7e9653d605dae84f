// List is a std::vector whose bytes count in the budget of the compile that makes it.
//
// Front ends and automata hold what can grow in Lists and in the tables of hash_tables.h, so that
// a hostile constraint meets the bound of memory at the allocation that passes it. The allocation
// throws BudgetSpent (budget.h), which Budget::Run catches. Code between leaves nothing
// behind, as it does where the machine has no memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "speculative/grammar/base/budget.h"

namespace specd::grammar {

template <typename T>
struct CountedAllocator {
  using value_type = T;

  CountedAllocator() = default;
  template <typename U>
  CountedAllocator(const CountedAllocator<U>&) {}  // NOLINT: as the standard asks

  T* allocate(size_t count) {
    Budget::Take(count * sizeof(T));
    try {
      return std::allocator<T>().allocate(count);
    } catch (...) {
      Budget::Give(count * sizeof(T));
      throw;
    }
  }
  void deallocate(T* memory, size_t count) noexcept {
    Budget::Give(count * sizeof(T));
    std::allocator<T>().deallocate(memory, count);
  }

  friend bool operator==(CountedAllocator, CountedAllocator) { return true; }
};

template <typename T>
using List = std::vector<T, CountedAllocator<T>>;

}  // namespace specd::grammar
