#include "speculative/grammar/lazy_automaton.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace specd::grammar {

LazyAutomaton::LazyAutomaton(const Network* network) : network_(*network) {
  for (int byte = 255; byte >= 0; --byte) {
    byte_of_class_[network_.byte_class(static_cast<uint8_t>(byte))] = static_cast<uint8_t>(byte);
  }
  stacks_.emplace_back();  // kEmptyStack
  const std::lock_guard lock(mutex_);
  for (const StateId state : {kDead, kTooLarge}) {
    Record* record = AddRecord();
    for (uint32_t i = 0; i < network_.num_classes(); ++i) {
      record->row[i].store(state, std::memory_order_relaxed);
    }
  }
  Visit({network_.start(), kEmptyStack});
  start_ = CloseVisited();
  if (network_.accepts_empty() && IsAlive(start_)) {
    const Record& record = RecordOf(start_);
    StateKey key = {.items = {items_.begin() + record.first_item,
                              items_.begin() + record.first_item + record.num_items},
                    .is_accepting = true};
    start_ = Intern(std::move(key));
  } else if (network_.accepts_empty() && start_ == kDead) {
    start_ = Intern({.items = {}, .is_accepting = true});
  }
}

LazyAutomaton::~LazyAutomaton() {
  for (std::atomic<Chunk*>& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
}

StateId LazyAutomaton::Expand(StateId state, uint8_t byte_class) {
  const std::lock_guard lock(mutex_);
  const Record& record = RecordOf(state);
  StateId next = record.row[byte_class].load(std::memory_order_relaxed);
  if (next != kUnknown) return next;
  const uint8_t byte = byte_of_class_[byte_class];
  // Bytes around it that are on the same edges lead to the same state.
  uint8_t first = 0;
  uint8_t last = 255;
  for (uint32_t i = 0; i < record.num_items; ++i) {
    const Item item = items_[record.first_item + i];
    for (const Network::Edge& edge : network_.node(item.node).edges) {
      if (edge.last < byte) {
        first = std::max<uint8_t>(first, edge.last + 1);
      } else if (edge.first > byte) {
        last = std::min<uint8_t>(last, edge.first - 1);
      } else {
        first = std::max(first, edge.first);
        last = std::min(last, edge.last);
        Visit({edge.target, item.stack});
      }
    }
  }
  if (size_bytes() > kBytesMax) {
    visited_.clear();
    seen_.clear();
    next = kTooLarge;
  } else {
    next = visited_.empty() ? kDead : CloseVisited();
  }
  for (int i = network_.byte_class(first); i <= network_.byte_class(last); ++i) {
    record.row[i].store(next, std::memory_order_release);
  }
  return next;
}

void LazyAutomaton::Visit(Item item) {
  if (seen_.insert(item).second) visited_.push_back(item);
}

StateId LazyAutomaton::CloseVisited() {
  StateKey key;
  for (size_t i = 0; i < visited_.size() && visited_.size() <= kItemsMax; ++i) {
    const Item item = visited_[i];
    const Network::Node& node = network_.node(item.node);
    if (!node.edges.empty()) key.items.push_back(item);
    for (const Network::Call& call : node.calls) {
      // A return to a node that can only end its rule would return at once.
      const bool is_last = network_.node(call.next).is_tail;
      Visit({call.start, is_last ? item.stack : Push(call.next, item.stack)});
    }
    if (!node.is_end) continue;
    if (item.stack == kEmptyStack) {
      key.is_accepting = true;
    } else {
      Visit({stacks_[item.stack].node, stacks_[item.stack].below});
    }
  }
  const bool is_too_large = visited_.size() > kItemsMax;
  visited_.clear();
  seen_.clear();
  if (is_too_large) return kTooLarge;
  std::sort(key.items.begin(), key.items.end(),
            [](const Item& a, const Item& b) { return a.key() < b.key(); });
  return Intern(std::move(key));
}

uint32_t LazyAutomaton::Push(uint32_t node, uint32_t below) {
  const auto [entry, is_new] =
      stack_ids_.emplace(Item{node, below}, static_cast<uint32_t>(stacks_.size()));
  if (is_new) {
    stacks_.push_back({node, below});
    AddBytes(3 * sizeof(StackCell) + sizeof(Item) + sizeof(uint32_t));
  }
  return entry->second;
}

StateId LazyAutomaton::Intern(StateKey key) {
  if (key.items.empty() && !key.is_accepting) return kDead;
  const auto found = state_ids_.find(key);
  if (found != state_ids_.end()) return found->second;
  const uint32_t number = num_states_.load(std::memory_order_relaxed);
  if (number == kStatesMax) return kTooLarge;
  Record* record = AddRecord();
  record->is_accepting = key.is_accepting;
  record->first_item = static_cast<uint32_t>(items_.size());
  record->num_items = static_cast<uint32_t>(key.items.size());
  for (const Item& item : key.items) {
    record->next_bytes = record->next_bytes | network_.node(item.node).bytes;
    items_.push_back(item);
  }
  // The items are in the list, which doubles, and in the key.
  AddBytes(3 * key.items.size() * sizeof(Item) + 2 * sizeof(StateKey));
  state_ids_.emplace(std::move(key), number);
  return number;
}

LazyAutomaton::Record* LazyAutomaton::AddRecord() {
  const uint32_t number = num_states_.load(std::memory_order_relaxed);
  std::atomic<Chunk*>& place = chunks_[number / kChunkStates];
  Chunk* chunk = place.load(std::memory_order_relaxed);
  const uint32_t num_classes = network_.num_classes();
  if (chunk == nullptr) {
    chunk = new Chunk;
    chunk->rows.reset(new std::atomic<StateId>[kChunkStates * num_classes]);
    for (uint32_t i = 0; i < kChunkStates * num_classes; ++i) {
      chunk->rows[i].store(kUnknown, std::memory_order_relaxed);
    }
    place.store(chunk, std::memory_order_relaxed);
    AddBytes(sizeof(Chunk) + kChunkStates * num_classes * sizeof(StateId));
  }
  Record* record = &chunk->records[number % kChunkStates];
  record->row = &chunk->rows[number % kChunkStates * num_classes];
  num_states_.store(number + 1, std::memory_order_relaxed);
  return record;
}

}  // namespace specd::grammar
