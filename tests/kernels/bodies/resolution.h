// Resolution and DrawnTask hold tasks that leave something open, for tests of RunResolve on any
// processor. The resolved tasks are compared with the counts of a std::map.
//
//   Resolution round(1);
//   DrawnTask drawn(random, 0);
//   drawn.Give(&round, &round.tasks[0]);
//   round.RunBy<1>(LoneLane());
//   drawn.Check(round.resolved[0]);
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <memory_resource>
#include <random>
#include <vector>

#include "kernels/bodies/resolve.h"
#include "tests/gpu/emulation/emulated_block.h"
#include "tests/support/slot_rounds.h"

namespace specd {

// The sizes of tasks and slots.
struct ResolutionOptions {
  int32_t vocab_size = 50;
  int32_t max_draft = 6;
  int32_t recent_room = 9;
  int32_t num_slots = 5;
  // Holds all that the processor reads and writes; null: the heap.
  std::pmr::memory_resource* memory = nullptr;

  std::pmr::memory_resource* resource() const {
    return memory != nullptr ? memory : std::pmr::get_default_resource();
  }
};

// A few tasks with slots, and their resolved copies.
class Resolution {
 public:
  explicit Resolution(int32_t num_tasks, const ResolutionOptions& the_options = {})
      : options(the_options),
        kept(options.num_slots, 0xDDDDDDDDu, options.resource()),
        recent(options.num_slots * options.recent_room, std::numeric_limits<TokenId>::min(),
               options.resource()),
        drafts(options.num_slots * row_stride(), kNoToken, options.resource()),
        tasks(num_tasks, options.resource()),
        resolved(num_tasks, options.resource()),
        progress(num_tasks, options.resource()),
        scratch_(num_tasks * ResolveBytes(options.max_draft, options.recent_room), char(kPoison),
                 options.resource()) {}

  int32_t row_stride() const { return options.max_draft + 2; }
  RoundBatch batch() {
    RoundBatch batch;
    batch.target.vocab_size = options.vocab_size;
    batch.num_tasks = static_cast<int32_t>(tasks.size());
    batch.draft_tokens = {drafts.data(), row_stride()};
    batch.slots = {kept.data(), recent.data(), options.recent_room};
    return batch;
  }
  ResolvePlan plan() { return {tasks.data(), resolved.data(), scratch_.data(), options.max_draft}; }

  template <int32_t kWarpSize, typename Thread>
  void RunBy(const Thread& thread) {
    RunResolve<kWarpSize>(thread, batch(), plan(), progress.data());
  }
  void RunByBlocks(const EmulationOptions& emulation) {
    REQUIRE(RunEmulatedBlocks(emulation, [&](EmulatedThread thread) { RunBy<32>(thread); }) == "");
  }

  const ResolutionOptions options;
  std::pmr::vector<uint32_t> kept;
  std::pmr::vector<TokenId> recent;
  std::pmr::vector<TokenId> drafts;
  std::pmr::vector<Task> tasks;
  std::pmr::vector<Task> resolved;
  std::pmr::vector<TaskProgress> progress;

 private:
  std::pmr::vector<char> scratch_;
};

inline void CheckOverrides(const PlaceEdits& place, const std::vector<TokenEdit>& expected) {
  REQUIRE(place.num_overrides == static_cast<int32_t>(expected.size()));
  for (size_t e = 0; e < expected.size(); ++e) {
    CHECK(place.overrides[e].id == expected[e].id);
    CHECK(place.overrides[e].flags == expected[e].flags);
    CHECK(BitsOf(place.overrides[e].bias) == BitsOf(expected[e].bias));
    CHECK(place.overrides[e].count == expected[e].count);
  }
}

// One task with everything drawn, and the facts that its host would have known. Few ids, so that
// they repeat.
struct DrawnTask {
  DrawnTask(std::mt19937_64& random, uint32_t the_slot, const ResolutionOptions& options = {})
      : slot(the_slot),
        vocab_size(options.vocab_size),
        edits(options.resource()),
        row(options.resource()),
        mask_rows(options.resource()) {
    const auto draw = [&random](uint64_t below) { return static_cast<int32_t>(random() % below); };
    const auto token = [&] {
      return draw(static_cast<uint64_t>(draw(4) == 0 ? vocab_size : std::min(vocab_size, 5)));
    };
    state.position = static_cast<uint32_t>(draw(1000));
    state.min_tokens = draw(2) == 0 ? 0 : state.position + static_cast<uint32_t>(draw(20));
    if (draw(4) != 0) {
      state.penalties = {draw(2) == 0 ? 1.0f : 1.5f, draw(2) == 0 ? 0.0f : 0.5f,
                         draw(2) == 0 ? 0.0f : -2.0f};
    }
    for (int32_t n = draw(7); n > 0; --n) {
      const TokenId id = token();
      state.edits[id] = {id, static_cast<uint32_t>(draw(16)), static_cast<float>(draw(9)) - 4.0f,
                         static_cast<uint32_t>(draw(3))};
    }
    for (int32_t n = draw(options.recent_room + 1); n > 0; --n) confirmed.push_back(token());
    const TokenId invalid[] = {kNoToken, -2, vocab_size, std::numeric_limits<TokenId>::min(),
                               std::numeric_limits<TokenId>::max()};
    for (int32_t n = draw(options.max_draft + 1); n > 0; --n) {
      row.push_back(draw(options.max_draft) == 0 ? invalid[draw(5)] : token());
      mask_rows.push_back({.mask_row = draw(9) - 1});
    }
    mask_rows.push_back({.mask_row = draw(9) - 1});
    has_masks = draw(2) == 0;
    by_slot = draw(3) != 0;
    continues = draw(3) != 0;
  }

  void Give(Resolution* to, Task* task) {
    const std::vector<TokenEdit> known = state.Edits();
    edits.assign(known.begin(), known.end());
    task->slot = slot;
    task->first_position = task->round_base = state.position;
    task->min_tokens = state.min_tokens;
    task->edits.edits = edits.data();
    task->edits.num_edits = static_cast<int32_t>(edits.size());
    task->edits.penalties = state.penalties;
    task->places = has_masks ? mask_rows.data() : nullptr;
    task->drafts_by_slot = by_slot;
    task->continues = continues;
    task->draft.num_nodes = static_cast<int32_t>(row.size());
    task->draft.tokens = by_slot ? nullptr : row.data();
    if (by_slot) std::copy(row.begin(), row.end(), to->drafts.begin() + slot * to->row_stride());
    if (!continues) return;
    uint32_t position = state.position;
    for (const TokenId id : confirmed) {
      const auto room = static_cast<uint32_t>(to->options.recent_room);
      to->recent[slot * room + position++ % room] = id;
    }
    to->kept[slot] = position;
  }

  void Check(const Task& task) const {
    CHECK(!task.drafts_by_slot);
    CHECK(!task.continues);
    // Penalties count these tokens.
    std::vector<TokenId> prefix;
    if (continues) prefix = confirmed;
    const auto position = state.position + static_cast<uint32_t>(prefix.size());
    CHECK(task.first_position == position);
    CHECK(task.round_base == position);
    // The chain ends before -1, and after any other id outside the vocabulary, which is counted.
    auto end = row.end();
    if (by_slot) {
      end = std::find_if(row.begin(), row.end(),
                         [this](TokenId id) { return id < 0 || id >= vocab_size; });
      if (end != row.end() && *end != kNoToken) ++end;
    }
    const std::vector<TokenId> draft(row.begin(), end);
    REQUIRE(task.draft.num_nodes == static_cast<int32_t>(draft.size()));
    CHECK(std::equal(draft.begin(), draft.end(), task.draft.tokens));
    CHECK((by_slot || task.draft.tokens == row.data()));
    for (size_t i = 0; i <= draft.size(); ++i) {
      const PlaceEdits place = task.places == nullptr ? PlaceEdits{} : task.places[i];
      CHECK(place.mask_row == (has_masks ? mask_rows[i].mask_row : -1));
      CHECK(place.forced == kNoToken);
      if (!by_slot && !continues) continue;
      CHECK(place.below_min_tokens == (position + i < state.min_tokens));
      CheckOverrides(place, state.Overrides(prefix, vocab_size));
      if (i < draft.size()) prefix.push_back(draft[i]);
    }
  }

  const uint32_t slot;
  const int32_t vocab_size;
  KnownSequence state;
  std::pmr::vector<TokenEdit> edits;
  std::vector<TokenId> confirmed;
  std::pmr::vector<TokenId> row;
  std::pmr::vector<PlaceEdits> mask_rows;
  bool has_masks = false;
  bool by_slot = false;
  bool continues = false;
};

}  // namespace specd
