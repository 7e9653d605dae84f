// GrammarMemory counts the bytes of all compiled grammars and their states in a process, and says
// when they are too many.
//
// A grammar may take 128 MiB of states, and every sequence may have a grammar of its own. From half
// of the bound on, automata are left when they are small (LazyAutomaton::IsHalfFull). Three
// quarters are the room for grammars. Each engine has a share of it (GrammarHolder). Where room
// is short, grammars that no sequence follows are dropped, the one used least recently first,
// whichever model they belong to (CompileCache). Past the bound nothing grows: a sequence whose
// next mask needs new states ends with a fault. Safe from any thread.
//
//   GrammarMemory& memory = GrammarMemory::OfProcess();
//   memory.Add(network.size_bytes());
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace specd::grammar {

class GrammarMemory {
 public:
  static constexpr size_t kProcessBytesMax = size_t{2} << 30;

  explicit GrammarMemory(size_t bytes_max) : bytes_max_(bytes_max) {}
  // Its bound is kProcessBytesMax until Bound sets a lower one.
  static GrammarMemory& OfProcess();
  void Bound(size_t bytes_max) { bytes_max_.store(bytes_max, std::memory_order_relaxed); }

  void Add(size_t count) { size_bytes_.fetch_add(count, std::memory_order_relaxed); }
  void Remove(size_t count) { size_bytes_.fetch_sub(count, std::memory_order_relaxed); }

  size_t size_bytes() const { return size_bytes_.load(std::memory_order_relaxed); }
  size_t bytes_max() const { return bytes_max_.load(std::memory_order_relaxed); }
  bool IsTight() const { return size_bytes() > bytes_max() / 2; }
  size_t room_bytes() const { return bytes_max() / 4 * 3; }
  bool IsExhausted() const { return size_bytes() > bytes_max(); }

  // Drops grammars that no sequence follows until all take at most `bytes_wanted`, or none is left.
  // REQUIRES: the caller holds no lock of a cache.
  void MakeRoom(size_t bytes_wanted);
  // A number for each use of a grammar; a later use has a larger one.
  uint64_t NextUse() { return next_use_.fetch_add(1, std::memory_order_relaxed); }

  // Keeps grammars, and drops those that no sequence follows.
  class Cache {
   public:
    // The use of the oldest grammar that no sequence follows.
    virtual std::optional<uint64_t> OldestUnused() = 0;
    // Drops the grammar that has this use, if no sequence follows it.
    virtual void DropUnused(uint64_t last_use) = 0;

   protected:
    ~Cache() = default;
  };
  // A cache is here while it lives.
  void AddCache(Cache* cache);
  void RemoveCache(Cache* cache);

 private:
  std::atomic<size_t> bytes_max_;      // orders nothing
  std::atomic<size_t> size_bytes_{0};  // a sum that orders nothing
  std::atomic<uint64_t> next_use_{1};  // only numbers uses
  std::mutex mutex_;                   // taken before the lock of a cache
  std::vector<Cache*> caches_;         // guarded by mutex_
};

// The bytes of one part. They leave the sum with the part.
class CountedBytes {
 public:
  explicit CountedBytes(GrammarMemory* memory) : memory_(*memory) {}
  ~CountedBytes() { memory_.Remove(size()); }
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;

  // One thread at a time adds.
  void Add(size_t count) {
    memory_.Add(count);
    size_.store(size() + count, std::memory_order_relaxed);
  }
  size_t size() const { return size_.load(std::memory_order_relaxed); }
  const GrammarMemory& memory() const { return memory_; }

 private:
  GrammarMemory& memory_;
  std::atomic<size_t> size_{0};
};

}  // namespace specd::grammar
