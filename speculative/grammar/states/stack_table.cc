#include "speculative/grammar/states/stack_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "speculative/grammar/states/member_place.h"

namespace specd::grammar {

uint32_t StackTable::Push(uint32_t node, uint32_t below, FrameNumbers numbers) {
  const uint64_t mixed =
      IdTable::Mix(uint64_t{node} << 32 | below) ^ (uint64_t{numbers.first} << 32 | numbers.second);
  const uint32_t hash = IdTable::Mix(mixed);
  const auto is_cell = [&](uint32_t i) {
    return cells_[i].node == node && cells_[i].below == below && cells_[i].numbers == numbers;
  };
  const uint32_t found = ids_.Find(hash, is_cell);
  if (found != IdTable::kNone) return found;
  const uint32_t near = NearOf({.node = node, .below = below, .numbers = numbers});
  const uint32_t number = cells_.size();
  ids_.Reserve();
  cells_.push_back({.node = node,
                    .below = below,
                    .numbers = numbers,
                    .near = near == kSameStack ? number : near});
  ids_.Insert(hash, number);
  // The cell is in a list, which doubles, and in the table, which is half empty.
  bytes_.Add(2 * sizeof(Cell) + 4 * sizeof(uint64_t));
  return number;
}

uint32_t StackTable::PushReturn(uint32_t node, uint32_t below, size_t* num_listed) {
  if (!network_.node(node).is_loop) return Push(node, below);
  if (cells_[below].node == node) return below;
  if (cells_[below].node != kEitherNode) return Push(node, below);
  std::vector<uint32_t> loops;
  List(below, &loops);
  *num_listed += loops.size();
  const auto others = std::partition(loops.begin(), loops.end(),
                                     [&](uint32_t stack) { return cells_[stack].node == node; });
  if (others == loops.begin()) return Push(node, below);
  std::vector<uint32_t> rest(others, loops.end());
  loops.erase(others, loops.end());
  if (!rest.empty()) loops.push_back(Push(node, Either(&rest)));
  return Either(&loops);
}

bool StackTable::IsCount(const Cell& cell) const {
  const Network::Node& node = network_.node(cell.node);
  return node.role == Network::Role::kEntry && network_.frame(node).kind == FrameRule::Kind::kCount;
}

void StackTable::JoinCounts(std::vector<uint32_t>* stacks) {
  const auto is_counted = [&](uint32_t stack) {
    return stack != kEmpty && cells_[stack].node != kEitherNode && IsCount(cells_[stack]);
  };
  const auto counted = std::partition(stacks->begin(), stacks->end(),
                                      [&](uint32_t stack) { return !is_counted(stack); });
  if (stacks->end() - counted < 2) return;
  const auto order = [&](uint32_t stack) {
    const Cell& cell = cells_[stack];
    return std::tuple(cell.node, cell.below, cell.numbers.first, cell.numbers.second);
  };
  std::sort(counted, stacks->end(), [&](uint32_t a, uint32_t b) { return order(a) < order(b); });
  auto last = counted;
  for (auto stack = counted + 1; stack != stacks->end(); ++stack) {
    const Cell a = cells_[*last];
    const Cell b = cells_[*stack];
    if (a.node == b.node && a.below == b.below && NetworkFrame::Touch(a.numbers, b.numbers)) {
      *last = Push(a.node, a.below, NetworkFrame::Join(a.numbers, b.numbers));
    } else {
      *++last = *stack;
    }
  }
  stacks->erase(last + 1, stacks->end());
}

uint32_t StackTable::Either(std::vector<uint32_t>* stacks) {
  if (stacks->size() == 1) return stacks->front();
  std::vector<uint32_t> listed;
  for (const uint32_t stack : *stacks) List(stack, &listed);
  *stacks = std::move(listed);
  JoinCounts(stacks);
  std::sort(stacks->begin(), stacks->end());
  stacks->erase(std::unique(stacks->begin(), stacks->end()), stacks->end());
  uint32_t either = stacks->back();
  for (size_t i = stacks->size() - 1; i-- > 0;) {
    either = Push(kEitherNode, (*stacks)[i], {.first = either});
  }
  return either;
}

void StackTable::List(uint32_t stack, std::vector<uint32_t>* stacks) const {
  for (; cells_[stack].node == kEitherNode; stack = cells_[stack].numbers.first) {
    stacks->push_back(cells_[stack].below);
  }
  stacks->push_back(stack);
}

uint32_t StackTable::NearOf(const Cell& cell) {
  const uint32_t below = cells_[cell.below].near;
  if (cell.node == kEitherNode) {
    const uint32_t other = cells_[cell.numbers.first].near;
    if (below == cell.below && other == cell.numbers.first) return kSameStack;
    std::vector<uint32_t> stacks = {below, other};
    return Either(&stacks);
  }
  const FrameNumbers numbers =
      IsCount(cell) ? NetworkFrame::Near(cell.numbers, near_bytes_) : cell.numbers;
  if (below == cell.below && numbers == cell.numbers) return kSameStack;
  return Push(cell.node, below, numbers);
}

std::vector<StackTable::ExportedCell> StackTable::Export(std::vector<uint32_t>* stacks) const {
  std::vector<uint32_t> cells;
  IdTable is_listed;
  const auto list = [&](uint32_t cell) {
    const uint32_t hash = IdTable::Mix(cell);
    if (is_listed.Find(hash, [&](uint32_t id) { return id == cell; }) != IdTable::kNone) {
      return false;
    }
    is_listed.Reserve();
    is_listed.Insert(hash, cell);
    cells.push_back(cell);
    return true;
  };
  std::vector<uint32_t> open;
  for (const uint32_t stack : *stacks) {
    open.push_back(stack);
    while (!open.empty()) {
      const uint32_t cell = open.back();
      open.pop_back();
      if (cell == kEmpty || !list(cell)) continue;
      open.push_back(cells_[cell].below);
      if (cells_[cell].node == kEitherNode) open.push_back(cells_[cell].numbers.first);
    }
  }
  std::sort(cells.begin(), cells.end());
  const auto number_of = [&](uint32_t cell) {
    if (cell == kEmpty) return kEmpty;
    return static_cast<uint32_t>(std::lower_bound(cells.begin(), cells.end(), cell) -
                                 cells.begin() + 1);
  };
  std::vector<ExportedCell> exported;
  for (const uint32_t cell : cells) {
    ExportedCell& one = exported.emplace_back(ExportedCell{.cell = cells_[cell], .set = {}});
    Cell& made = one.cell;
    if (HasSet(made)) {
      const KeySets::Words words = sets_.words(MemberPlace::SetOf(made.numbers));
      one.set.assign(words.begin(), words.end());
    }
    made.below = number_of(made.below);
    if (made.node == kEitherNode) made.numbers.first = number_of(made.numbers.first);
  }
  for (uint32_t& stack : *stacks) stack = number_of(stack);
  return exported;
}

uint32_t StackTable::Import(const ExportedCell& exported, std::span<const uint32_t> numbers) {
  const Cell& cell = exported.cell;
  FrameNumbers frame = cell.numbers;
  if (cell.node == kEitherNode) frame.first = numbers[frame.first];
  if (HasSet(cell)) frame = MemberPlace::WithSet(frame, sets_.NumberOf(exported.set));
  return Push(cell.node, numbers[cell.below], frame);
}

}  // namespace specd::grammar
