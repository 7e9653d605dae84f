#include "speculative/grammar/states/lazy_automaton.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/grammar/base/budget.h"

namespace specd::grammar {
namespace {

// Looking at an edge is a unit of work; a visit looks into hash tables, and costs as much as four,
// as measured (docs/GRAMMARS.md, "Limits of a sequence").
constexpr size_t kLooksPerVisit = 4;
// A new state takes memory, and writes a row.
constexpr size_t kLooksPerState = 64;
// The four tables begin with 512 bytes each; the lists of a step are as much. Measured by
// tests/speculative/grammar/grammar_memory_test.cc.
constexpr size_t kTableBytes = 4096;

}  // namespace

LazyAutomaton::LazyAutomaton(const Network* network, GrammarMemory* memory, uint32_t near_bytes)
    : network_(*network), bytes_(memory), stacks_(network, near_bytes, &bytes_) {
  for (int byte = 255; byte >= 0; --byte) {
    byte_of_class_[network_.byte_class(static_cast<uint8_t>(byte))] = static_cast<uint8_t>(byte);
  }
  bytes_.Add(sizeof(LazyAutomaton) + kTableBytes);
  const std::lock_guard lock(mutex_);
  for (const StateId state : {kDead, kTooManyWays, kFull, kTooMuchWork}) {
    Record* record = NextRecord();
    next_state_.store(state + 1, std::memory_order_relaxed);
    for (uint32_t i = 0; i < network_.num_classes(); ++i) {
      record->row[i].store(state, std::memory_order_relaxed);
    }
  }
  Visit({.node = network_.start(), .stack = StackTable::kEmpty});
  start_ = CloseVisited();
  if (network_.accepts_empty() && IsAlive(start_)) {
    const Record& record = RecordOf(start_);
    std::vector<Item> items(items_.begin() + record.first_item,
                            items_.begin() + record.first_item + record.num_items);
    start_ = Intern(items, true);
  } else if (network_.accepts_empty() && start_ == kDead) {
    start_ = Intern({}, true);
  }
}

StateId LazyAutomaton::Expand(StateId state, uint8_t byte_class) {
  const std::lock_guard lock(mutex_);
  const Record& record = RecordOf(state);
  StateId next = record.row[byte_class].load(std::memory_order_relaxed);
  if (next != kUnknown) return next;
  // A full automaton may still know where other bytes lead, so this answer is not kept.
  if (IsFull()) return kFull;
  ClearScratch();
  const uint8_t byte = byte_of_class_[byte_class];
  // Bytes around it that are on the same edges lead to the same state.
  uint8_t first = 0;
  uint8_t last = 255;
  size_t num_looks = 1;
  for (uint32_t i = 0; i < record.num_items; ++i) {
    const Item item = items_[record.first_item + i];
    num_looks += network_.node(item.node).edges.size();
    const Network::Node& node = network_.node(item.node);
    const bool is_key = node.role == Network::Role::kKey;
    const NextKeys keys = is_key ? KeysAt(node, item.stack) : NextKeys();
    for (const Network::Edge& edge : node.edges) {
      if (edge.last < byte) {
        first = std::max<uint8_t>(first, edge.last + 1);
      } else if (edge.first > byte) {
        last = std::min<uint8_t>(last, edge.first - 1);
      } else {
        first = std::max(first, edge.first);
        last = std::min(last, edge.last);
        if (!is_key || MayFollow(edge, keys)) Visit({.node = edge.target, .stack = item.stack});
      }
    }
  }
  const StateId before = next_state();
  next = visited_.empty() ? kDead : CloseVisited();
  num_looks += kLooksPerVisit * (visited_.size() + returns_.size() + num_listed_) +
               kLooksPerState * (next_state() - before);
  if (next == kFull) return kFull;
  for (int i = network_.byte_class(first); i <= network_.byte_class(last); ++i) {
    record.row[i].store(next, std::memory_order_release);
  }
  return Budget::Spend(num_looks) ? next : kTooMuchWork;
}

LazyAutomaton::Exported LazyAutomaton::Export(std::span<const StateId> states) const {
  const std::lock_guard lock(mutex_);
  Exported exported;
  std::vector<uint32_t> stacks;  // of all items
  for (const StateId state : states) {
    const Record& record = RecordOf(state);
    const auto first = items_.begin() + record.first_item;
    exported.states.push_back(
        {.items = {first, first + record.num_items}, .is_accepting = record.is_accepting});
    for (auto item = first; item != first + record.num_items; ++item) stacks.push_back(item->stack);
  }
  exported.cells = stacks_.Export(&stacks);
  size_t next = 0;
  for (Exported::State& state : exported.states) {
    for (Item& item : state.items) item.stack = stacks[next++];
  }
  return exported;
}

std::vector<StateId> LazyAutomaton::Import(const LazyAutomaton& other,
                                           std::span<const StateId> states) {
  Exported exported = other.Export(states);
  std::vector<StateId> imported;
  imported.reserve(states.size());
  const std::lock_guard lock(mutex_);
  std::vector<uint32_t> stacks = {StackTable::kEmpty};
  for (const StackTable::ExportedCell& cell : exported.cells) {
    if (IsFull()) return {};
    stacks.push_back(stacks_.Import(cell, stacks));
  }
  for (Exported::State& state : exported.states) {
    for (Item& item : state.items) item.stack = stacks[item.stack];
    imported.push_back(Intern(state.items, state.is_accepting));
    if (!IsAlive(imported.back())) return {};
  }
  return imported;
}

void LazyAutomaton::Visit(Item item) {
  const uint32_t hash = item.hash();
  const auto is_item = [&](uint32_t i) { return visited_[i] == item; };
  if (seen_.Find(hash, is_item) != IdTable::kNone) return;
  seen_.Reserve();
  visited_.push_back(item);
  seen_.Insert(hash, static_cast<uint32_t>(visited_.size() - 1));
}

void LazyAutomaton::BeginMember(uint32_t entry, FrameNumbers numbers, uint32_t below) {
  const NetworkFrame& frame = network_.frame(network_.node(entry));
  const MemberPlace place = PlaceAt(network_.node(entry), numbers);
  if (!place.Keys().IsEmpty()) {
    Visit({.node = frame.part, .stack = stacks_.Push(entry + 1, below, numbers)});
  }
  if (place.AllowsOther()) {
    Visit({.node = frame.other, .stack = stacks_.Push(entry, below, place.AfterOther())});
  }
  if (place.AllowsNeededOther()) {
    const FrameNumbers met = place.AfterNeededOther();
    Visit({.node = frame.needed_other, .stack = stacks_.Push(entry, below, met)});
  }
}

void LazyAutomaton::ListReturn(uint32_t stack) {
  const uint32_t hash = IdTable::Mix(stack);
  const auto is_stack = [&](uint32_t i) { return returns_[i] == stack; };
  if (returned_.Find(hash, is_stack) != IdTable::kNone) return;
  returned_.Reserve();
  returns_.push_back(stack);
  returned_.Insert(hash, static_cast<uint32_t>(returns_.size() - 1));
}

void LazyAutomaton::Return(uint32_t stack) {
  size_t next = returns_.size();
  for (ListReturn(stack); next < returns_.size(); ++next) {
    stack = returns_[next];
    if (stack == StackTable::kEmpty) {
      is_accepting_ = true;
      continue;
    }
    const StackTable::Cell cell = stacks_.cell(stack);
    if (cell.node == StackTable::kEitherNode) {
      std::vector<uint32_t> stacks;
      stacks_.List(stack, &stacks);
      for (const uint32_t one : stacks) ListReturn(one);
      num_listed_ += stacks.size();
      continue;
    }
    const Network::Node& node = network_.node(cell.node);
    if (node.role == Network::Role::kPlain) {
      Visit({.node = cell.node, .stack = cell.below});
      continue;
    }
    const NetworkFrame& frame = network_.frame(node);
    if (node.role == Network::Role::kNext) {
      BeginMember(cell.node - 1, cell.numbers, cell.below);
      continue;
    }
    bool may_end = cell.numbers.first == 0;
    if (frame.kind == FrameRule::Kind::kMembers) {
      const MemberPlace place = PlaceAt(node, cell.numbers);
      may_end = place.AllowsEnd();
      if (place.AllowsMore()) {
        Visit({.node = frame.separator,
               .stack = stacks_.Push(cell.node + 1, cell.below, cell.numbers)});
      }
    } else if (cell.numbers.second > 0) {
      const FrameNumbers more = NetworkFrame::AfterPart(cell.numbers);
      Visit({.node = frame.part, .stack = stacks_.Push(cell.node, cell.below, more)});
    }
    if (may_end) ListReturn(cell.below);  // the frame rule ends with its last part
  }
}

void LazyAutomaton::EndKey(Item item) {
  const Network::Node& node = network_.node(item.node);
  const NetworkFrame& frame = network_.frame(node);
  const StackTable::Cell cell = stacks_.cell(item.stack);
  const uint32_t key = node.whole_key;
  if (!KeysAt(node, item.stack).Has(key)) return;  // another one may go on
  const FrameNumbers after = PlaceAt(node, cell.numbers).AfterKey(key, &stacks_.sets());
  const auto push = [&](FrameNumbers numbers) {
    return stacks_.Push(cell.node - 1, cell.below, numbers);
  };
  if (!frame.has_values) {
    Return(push(after));
    return;
  }
  if (PlaceAt(node, after).MayBeMet()) Visit({.node = frame.values[key], .stack = push(after)});
  const bool may_meet = frame.needed_values[key] != NetworkFrame::kNoNode;
  if (may_meet && !MemberPlace::IsMet(after)) {
    Visit({.node = frame.needed_values[key], .stack = push(MemberPlace::Met(after))});
  }
}

void LazyAutomaton::Call(Item item) {
  const Network::Node& node = network_.node(item.node);
  if (node.role == Network::Role::kEntry) {
    const NetworkFrame& frame = network_.frame(node);
    if (frame.kind == FrameRule::Kind::kCount) {
      Visit({.node = frame.part, .stack = stacks_.Push(item.node, item.stack, frame.Begin())});
    } else {
      BeginMember(item.node, MemberPlace::Begin(frame), item.stack);
    }
    return;
  }
  if (!node.edges.empty()) closed_.push_back(item);
  for (const Network::Call& call : node.calls) {
    // A return to a node that can only end its rule would return at once.
    const bool is_last = network_.node(call.next).is_tail;
    Visit(
        {.node = call.start,
         .stack = is_last ? item.stack : stacks_.PushReturn(call.next, item.stack, &num_listed_)});
  }
}

StateId LazyAutomaton::CloseVisited() {
  const auto is_too_much = [&] {
    return visited_.size() > kItemsMax || returns_.size() > kItemsMax;
  };
  for (size_t i = 0; i < visited_.size() && !is_too_much(); ++i) {
    const Item item = visited_[i];
    const Network::Node& node = network_.node(item.node);
    if (node.whole_key != Network::kNoKey) EndKey(item);
    if (node.is_end) Return(item.stack);
  }
  // Every return is made, because no rule has the empty text. Calls come in the order of the ranks:
  // when a node's turn comes, all its stacks are there, and the node calls once for all of them.
  const auto is_later = [&](const Item& a, const Item& b) {
    return std::pair(network_.node(a.node).rank, a.node) >
           std::pair(network_.node(b.node).rank, b.node);
  };
  open_.clear();
  size_t num_taken = 0;
  const auto take_visited = [&] {
    for (; num_taken < visited_.size(); ++num_taken) {
      const Item item = visited_[num_taken];
      // A whole key may begin other keys. The frame may allow none of them.
      const bool is_whole = network_.node(item.node).whole_key != Network::kNoKey;
      if (is_whole && BytesAfter(item).IsEmpty()) continue;
      open_.push_back(item);
      std::push_heap(open_.begin(), open_.end(), is_later);
    }
  };
  for (take_visited(); !open_.empty() && !is_too_much(); take_visited()) {
    const uint32_t node = open_.front().node;
    scratch_stacks_.clear();
    while (!open_.empty() && open_.front().node == node) {
      scratch_stacks_.push_back(open_.front().stack);
      std::pop_heap(open_.begin(), open_.end(), is_later);
      open_.pop_back();
    }
    if (network_.node(node).role == Network::Role::kKey) {
      // The edges of a tree of keys look at the frame on top of their stack.
      for (const uint32_t stack : scratch_stacks_)
        closed_.push_back({.node = node, .stack = stack});
    } else {
      Call({.node = node, .stack = stacks_.Either(&scratch_stacks_)});
    }
  }
  return is_too_much() ? kTooManyWays : Intern(closed_, is_accepting_);
}

StateId LazyAutomaton::Near(StateId state) {
  const Record& known = RecordOf(state);
  // Pairs with the store below: the reader of a state's number sees its record and row.
  if (const StateId near = known.near.load(std::memory_order_acquire); near != kUnknown)
    return near;
  const std::lock_guard lock(mutex_);
  Record& record = PlaceOf(state);
  ClearScratch();
  for (uint32_t i = 0; i < record.num_items; ++i) {
    const Item item = items_[record.first_item + i];
    closed_.push_back({.node = item.node, .stack = stacks_.cell(item.stack).near});
  }
  // Items that were told apart by their numbers alone may be one now.
  const auto by_key = [](const Item& a, const Item& b) { return a.key() < b.key(); };
  std::sort(closed_.begin(), closed_.end(), by_key);
  closed_.erase(std::unique(closed_.begin(), closed_.end()), closed_.end());
  const StateId near = Intern(closed_, record.is_accepting);
  if (!IsAlive(near)) return state;
  record.near.store(near, std::memory_order_release);
  return near;
}

ByteSet LazyAutomaton::BytesAfter(Item item) const {
  const Network::Node& node = network_.node(item.node);
  if (node.role != Network::Role::kKey) return node.bytes;
  ByteSet bytes;
  const NextKeys keys = KeysAt(node, item.stack);
  for (const Network::Edge& edge : node.edges) {
    if (MayFollow(edge, keys)) bytes = bytes | ByteSet::Range(edge.first, edge.last);
  }
  return bytes;
}

StateId LazyAutomaton::Intern(std::span<Item> items, bool is_accepting) {
  if (items.empty() && !is_accepting) return kDead;
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.key() < b.key(); });
  uint64_t mixed = is_accepting ? 1 : 0;
  for (const Item& item : items) mixed = IdTable::Mix(mixed ^ item.key());
  const uint32_t hash = mixed;
  const uint32_t found = state_ids_.Find(hash, [&](uint32_t state) {
    const Record& record = RecordOf(state);
    return record.is_accepting == is_accepting && record.num_items == items.size() &&
           std::equal(items.begin(), items.end(), items_.begin() + record.first_item);
  });
  if (found != IdTable::kNone) return found;
  if (IsFull()) return kFull;
  // Memory is taken first. After that nothing can fail.
  Record* record = NextRecord();
  state_ids_.Reserve();
  const size_t first_item = items_.size();
  if (items_.capacity() < first_item + items.size()) {
    items_.reserve(std::max(2 * items_.capacity(), first_item + items.size()));
  }
  const StateId number = next_state();
  record->is_accepting = is_accepting;
  record->first_item = static_cast<uint32_t>(first_item);
  record->num_items = static_cast<uint32_t>(items.size());
  for (const Item& item : items) {
    record->next_bytes = record->next_bytes | BytesAfter(item);
    items_.push_back(item);
  }
  state_ids_.Insert(hash, number);
  next_state_.store(number + 1, std::memory_order_relaxed);
  bytes_.Add(2 * items.size() * sizeof(Item) + 4 * sizeof(uint64_t));
  return number;
}

LazyAutomaton::Record* LazyAutomaton::NextRecord() {
  const StateId number = next_state();
  std::atomic<Block*>& block = blocks_[number / kBlockStates];
  if (block.load(std::memory_order_relaxed) == nullptr) {
    owned_blocks_.push_back(std::make_unique<Block>());
    block.store(owned_blocks_.back().get(), std::memory_order_relaxed);
    bytes_.Add(sizeof(Block));
  }
  std::atomic<Chunk*>& place =
      block.load(std::memory_order_relaxed)->chunks[number % kBlockStates / kChunkStates];
  Chunk* chunk = place.load(std::memory_order_relaxed);
  const uint32_t num_classes = network_.num_classes();
  if (chunk == nullptr) {
    auto made = std::make_unique<Chunk>();
    made->rows.reset(new std::atomic<StateId>[kChunkStates * num_classes]);
    for (uint32_t i = 0; i < kChunkStates * num_classes; ++i) {
      made->rows[i].store(kUnknown, std::memory_order_relaxed);
    }
    chunk = made.get();
    owned_chunks_.push_back(std::move(made));
    place.store(chunk, std::memory_order_relaxed);
    bytes_.Add(sizeof(Chunk) + kChunkStates * num_classes * sizeof(StateId));
  }
  Record* record = &chunk->records[number % kChunkStates];
  record->row = &chunk->rows[number % kChunkStates * num_classes];
  return record;
}

}  // namespace specd::grammar
