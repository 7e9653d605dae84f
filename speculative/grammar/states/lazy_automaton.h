// LazyAutomaton follows the texts of a grammar byte by byte, and builds its states as they are met.
//
// A state is everything that may follow: a set of network nodes, each with a stack of nodes to
// return to. Nodes of frame rules have their numbers on the stack (frame_numbers.h). Stacks and
// sets are kept once each, so a state is a 32-bit number that never changes its meaning. A matcher
// is therefore a list of numbers: rollback cuts the list, a fork copies it.
//
// Safe from any number of threads. A step that was taken before reads two words and takes no lock;
// a new step takes the lock. A step past a limit leads to one of the states that name it, from
// which nothing leads on: kTooManyWays, kFull or kTooMuchWork. Such an answer says nothing about
// the text. If the automaton is full, a new automaton has room: Import takes states along.
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
#include <span>
#include <string_view>
#include <vector>

#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/base/id_table.h"
#include "speculative/grammar/network/network.h"
#include "speculative/grammar/states/member_place.h"
#include "speculative/grammar/states/stack_table.h"

namespace specd::grammar {

using StateId = uint32_t;

class LazyAutomaton {
 public:
  static constexpr StateId kDead = 0;         // no text of the grammar begins like this
  static constexpr StateId kTooManyWays = 1;  // the state would have more than kItemsMax items
  static constexpr StateId kFull = 2;  // kStatesMax, kBytesMax or the process's memory is used up
  static constexpr StateId kTooMuchWork = 3;  // the caller's Budget is used up
  static constexpr uint32_t kNearBytes = 256;
  static constexpr uint32_t kStatesMax = 1 << 18;
  static constexpr size_t kItemsMax = 4096;               // of one state
  static constexpr size_t kBytesMax = size_t{128} << 20;  // of all states and stacks

  // Network and memory outlive the automaton. `near_bytes` are those of the longest token.
  explicit LazyAutomaton(const Network* network,
                         GrammarMemory* memory = &GrammarMemory::OfProcess(),
                         uint32_t near_bytes = kNearBytes);
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
    return StepClass(from, network_.byte_class(byte));
  }
  // By any byte of a class.
  StateId StepClass(const Steps& from, uint8_t byte_class) {
    // Pairs with the store in Expand: the reader of a state's number sees its record and row.
    const StateId next = from.row[byte_class].load(std::memory_order_acquire);
    return next != kUnknown ? next : Expand(from.state, byte_class);
  }
  StateId Step(StateId state, uint8_t byte) { return Step(StepsFrom(state), byte); }

  StateId StepText(StateId state, std::string_view text) {
    for (const char byte : text) state = Step(state, static_cast<uint8_t>(byte));
    return state;
  }

  static bool IsAlive(StateId state) { return state > kTooMuchWork; }
  // The state is unknown, because the text met a limit.
  static bool IsLimit(StateId state) { return state > kDead && state <= kTooMuchWork; }
  // The text may end here.
  bool IsAccepting(StateId state) const { return RecordOf(state).is_accepting; }
  // In how many ways a text may go on from the state: places in rules, each with its callers.
  uint32_t NumWays(StateId state) const { return RecordOf(state).num_items; }
  // A state after which the same texts of up to `near_bytes` bytes may come: masks need no more.
  // Where bounds are far away, the numbers of their frames do not tell states apart. `state`
  // itself, if there is no room for another.
  StateId Near(StateId state);
  // The bytes that may follow.
  const ByteSet& NextBytes(StateId state) const { return RecordOf(state).next_bytes; }

  // The same states here. Empty if there is no room for them. REQUIRES: `other` follows the same
  // network, and its states are alive.
  std::vector<StateId> Import(const LazyAutomaton& other, std::span<const StateId> states);

  const Network& network() const { return network_; }
  // Those that texts have met.
  uint32_t num_states() const { return next_state() - kTooMuchWork - 1; }
  size_t size_bytes() const { return bytes_.size(); }
  // Half of a limit is used: texts should move to a new automaton. Where the process is short of
  // memory for grammars, little is enough.
  bool IsHalfFull() const {
    return num_states() > kStatesMax / 2 ||
           size_bytes() > (bytes_.memory().IsTight() ? kTightBytes : kBytesMax / 2);
  }

 private:
  static constexpr StateId kUnknown = ~StateId{0};
  static constexpr uint32_t kChunkStates = 64;
  static constexpr size_t kTightBytes = size_t{1} << 20;
  // Most automata have few states, so the places of chunks come in blocks too.
  static constexpr uint32_t kBlockChunks = 64;
  static constexpr uint32_t kBlockStates = kBlockChunks * kChunkStates;
  static constexpr uint32_t kNumBlocks = kStatesMax / kBlockStates;

  // A node, and the stack of nodes to return to.
  struct Item {
    uint32_t node = 0;
    uint32_t stack = StackTable::kEmpty;

    uint64_t key() const { return uint64_t{node} << 32 | stack; }
    uint32_t hash() const { return static_cast<uint32_t>(IdTable::Mix(key())); }
    friend bool operator==(const Item&, const Item&) = default;
  };
  struct Record {
    std::atomic<StateId>* row = nullptr;  // one for each byte class
    ByteSet next_bytes;
    uint32_t first_item = 0;
    uint32_t num_items = 0;
    bool is_accepting = false;
    // Of Near; kUnknown: not asked for yet.
    std::atomic<StateId> near{kUnknown};
  };
  struct Chunk {
    std::array<Record, kChunkStates> records;
    std::unique_ptr<std::atomic<StateId>[]> rows;
  };
  struct Block {
    std::array<std::atomic<Chunk*>, kBlockChunks> chunks = {};
  };
  const Record& RecordOf(StateId state) const { return PlaceOf(state); }
  Record& PlaceOf(StateId state) const {
    // Pairs with the stores in NextRecord. A state's number is known only after its chunk.
    return blocks_[state / kBlockStates]
        .load(std::memory_order_relaxed)
        ->chunks[state % kBlockStates / kChunkStates]
        .load(std::memory_order_relaxed)
        ->records[state % kChunkStates];
  }

  // States with the stack cells that they reach; the items' stacks are numbers of these.
  struct Exported {
    struct State {
      std::vector<Item> items;
      bool is_accepting = false;
    };
    std::vector<StackTable::ExportedCell> cells;
    std::vector<State> states;
  };

  StateId next_state() const { return next_state_.load(std::memory_order_relaxed); }
  StateId Expand(StateId state, uint8_t byte_class);
  Exported Export(std::span<const StateId> states) const;

  // The caller of each function below holds the lock. If memory runs out in one of them, only the
  // scratch has changed.
  void ClearScratch() {
    visited_.clear();
    seen_.Clear();
    returns_.clear();
    returned_.Clear();
    num_listed_ = 0;
    closed_.clear();
    is_accepting_ = false;
  }
  void Visit(Item item);
  // The item that is next on `stack`, after a rule has ended. The frame rules on top of it may go
  // on.
  void Return(uint32_t stack);
  void ListReturn(uint32_t stack);
  // Begins a member of the frame rule whose entry is the node `entry`.
  void BeginMember(uint32_t entry, FrameNumbers numbers, uint32_t below);
  // If the whole key may come, its value follows it, and the frame is behind the key.
  void EndKey(Item item);
  // What the node of an item calls, and the item itself if it reads bytes.
  void Call(Item item);
  MemberPlace PlaceAt(const Network::Node& node, FrameNumbers numbers) const {
    return {network_.frame(node), numbers, stacks_.sets()};
  }
  // The keys that may come where a node of a tree of keys reads on.
  NextKeys KeysAt(const Network::Node& node, uint32_t stack) const {
    return PlaceAt(node, stacks_.cell(stack).numbers).Keys();
  }
  // With `keys` of its node, if that is of a tree of keys.
  bool MayFollow(const Network::Edge& edge, const NextKeys& keys) const {
    return keys.HasAnyOf(network_.keys(network_.node(edge.target)));
  }
  ByteSet BytesAfter(Item item) const;
  // Follows calls and returns from visited_, and makes a state of what reads bytes.
  StateId CloseVisited();
  // Sorts the items.
  StateId Intern(std::span<Item> items, bool is_accepting);
  // Makes the record of the next state's number, if it is not there.
  Record* NextRecord();
  bool IsFull() const {
    return next_state() == kStatesMax || size_bytes() > kBytesMax || bytes_.memory().IsExhausted();
  }

  const Network& network_;
  StateId start_ = kDead;
  std::array<uint8_t, 256> byte_of_class_ = {};
  std::array<std::atomic<Block*>, kNumBlocks> blocks_ = {};
  std::atomic<StateId> next_state_{0};
  CountedBytes bytes_;  // an estimate from above of what the maps take

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> owned_blocks_;  // those of blocks_
  std::vector<std::unique_ptr<Chunk>> owned_chunks_;
  StackTable stacks_;
  std::vector<Item> items_;  // of all states
  IdTable state_ids_;
  // Scratch of a step; an exception may leave something in it.
  std::vector<Item> visited_;
  IdTable seen_;                          // places in visited_
  std::vector<Item> open_;                // a heap: the items whose nodes have not called yet
  std::vector<uint32_t> scratch_stacks_;  // of one node
  std::vector<uint32_t> returns_;         // stacks to which a rule returns
  IdTable returned_;                      // places in returns_
  size_t num_listed_ = 0;                 // stacks that are one of several
  std::vector<Item> closed_;
  bool is_accepting_ = false;
};

}  // namespace specd::grammar
