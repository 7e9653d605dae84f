// LazyAutomaton follows the texts of a grammar byte by byte, and builds its states as they are met.
//
// A state is everything that may follow: a set of network nodes, each with a stack of nodes to
// return to. Stacks and sets are kept once each, so a state is a 32-bit number that never changes
// its meaning. A matcher is therefore a list of numbers: rollback cuts the list, a fork copies it.
//
// Safe from any number of threads. A step that was taken before reads two words and takes no lock;
// a new step takes the lock. Each new step counts against a limit (kStatesMax, kItemsMax); past
// it the step leads to kTooLarge, from which nothing leads on.
//
//   LazyAutomaton automaton(&network);
//   StateId state = automaton.start();
//   state = automaton.Step(state, '{');
//   automaton.IsAccepting(state);
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "speculative/grammar/byte_set.h"
#include "speculative/grammar/network.h"

namespace specd::grammar {

using StateId = uint32_t;

class LazyAutomaton {
 public:
  static constexpr StateId kDead = 0;      // no text of the grammar begins like this
  static constexpr StateId kTooLarge = 1;  // a limit was met on the way
  static constexpr uint32_t kStatesMax = 1 << 18;
  static constexpr size_t kItemsMax = 4096;               // of one state
  static constexpr size_t kBytesMax = size_t{128} << 20;  // of all states and stacks

  // The network outlives the automaton.
  explicit LazyAutomaton(const Network* network);
  ~LazyAutomaton();
  LazyAutomaton(const LazyAutomaton&) = delete;
  LazyAutomaton& operator=(const LazyAutomaton&) = delete;

  StateId start() const { return start_; }

  // A state with its steps at hand, for many steps from one state.
  struct Steps {
    StateId state = kDead;
    const std::atomic<StateId>* row = nullptr;
  };
  Steps StepsFrom(StateId state) const { return {state, RecordOf(state).row}; }

  StateId Step(const Steps& from, uint8_t byte) {
    const uint8_t byte_class = network_.byte_class(byte);
    // Pairs with the store in Expand: the reader of a state's number sees its record and row.
    const StateId next = from.row[byte_class].load(std::memory_order_acquire);
    return next != kUnknown ? next : Expand(from.state, byte_class);
  }
  StateId Step(StateId state, uint8_t byte) { return Step(StepsFrom(state), byte); }

  StateId StepText(StateId state, std::string_view text) {
    for (const char byte : text) state = Step(state, static_cast<uint8_t>(byte));
    return state;
  }

  static bool IsAlive(StateId state) { return state > kTooLarge; }
  // The text may end here.
  bool IsAccepting(StateId state) const { return RecordOf(state).is_accepting; }
  // The bytes that may follow.
  const ByteSet& NextBytes(StateId state) const { return RecordOf(state).next_bytes; }

  const Network& network() const { return network_; }
  uint32_t num_states() const { return num_states_.load(std::memory_order_relaxed); }
  size_t size_bytes() const { return size_bytes_.load(std::memory_order_relaxed); }
  // Half of a limit is used: texts that begin now should follow a new automaton.
  bool IsHalfFull() const { return num_states() > kStatesMax / 2 || size_bytes() > kBytesMax / 2; }

 private:
  static constexpr StateId kUnknown = ~StateId{0};
  static constexpr uint32_t kEmptyStack = 0;
  static constexpr uint32_t kChunkStates = 64;
  static constexpr uint32_t kNumChunks = kStatesMax / kChunkStates;

  // A node, and the stack of nodes to return to.
  struct Item {
    uint32_t node = 0;
    uint32_t stack = kEmptyStack;

    uint64_t key() const { return uint64_t{node} << 32 | stack; }
    friend bool operator==(const Item&, const Item&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Item& item) {
      return H::combine(std::move(hash), item.node, item.stack);
    }
  };
  struct StackCell {
    uint32_t node = 0;
    uint32_t below = kEmptyStack;
  };
  struct Record {
    std::atomic<StateId>* row = nullptr;  // one for each byte class
    ByteSet next_bytes;
    uint32_t first_item = 0;
    uint32_t num_items = 0;
    bool is_accepting = false;
  };
  struct Chunk {
    std::array<Record, kChunkStates> records;
    std::unique_ptr<std::atomic<StateId>[]> rows;
  };
  // The items of a state, and whether the text may end.
  struct StateKey {
    std::vector<Item> items;
    bool is_accepting = false;

    friend bool operator==(const StateKey&, const StateKey&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const StateKey& key) {
      return H::combine(std::move(hash), key.items, key.is_accepting);
    }
  };

  const Record& RecordOf(StateId state) const {
    // Pairs with the store in Intern. A state's number is known only after its chunk.
    return chunks_[state / kChunkStates]
        .load(std::memory_order_relaxed)
        ->records[state % kChunkStates];
  }

  StateId Expand(StateId state, uint8_t byte_class);

  // The rest is called with the lock held.
  void Visit(Item item);
  // Follows calls and returns from visited_, and makes a state of what reads bytes.
  StateId CloseVisited();
  uint32_t Push(uint32_t node, uint32_t below);
  StateId Intern(StateKey key);
  Record* AddRecord();
  void AddBytes(size_t count) {
    size_bytes_.store(size_bytes() + count, std::memory_order_relaxed);
  }

  const Network& network_;
  StateId start_ = kDead;
  std::array<uint8_t, 256> byte_of_class_ = {};
  std::array<std::atomic<Chunk*>, kNumChunks> chunks_ = {};
  std::atomic<uint32_t> num_states_{0};
  std::atomic<size_t> size_bytes_{0};  // an estimate from above of what the maps take

  std::mutex mutex_;
  std::vector<StackCell> stacks_;
  absl::flat_hash_map<Item, uint32_t> stack_ids_;  // node and below -> stack
  std::vector<Item> items_;                        // of all states
  absl::flat_hash_map<StateKey, StateId> state_ids_;
  // Scratch of a step.
  std::vector<Item> visited_;
  absl::flat_hash_set<Item> seen_;
};

}  // namespace specd::grammar
