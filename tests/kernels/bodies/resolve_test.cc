// Tasks leave draft tokens, positions and counts to the processor that runs them. Each is compared
// with the counts of a std::map. open_rounds_test.cc and staged_conformance_test.cc have whole
// rounds.
#include "kernels/bodies/resolve.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/lone_lane.h"
#include "tests/kernels/bodies/resolution.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = ResolutionOptions().vocab_size;
constexpr int32_t kMaxDraft = ResolutionOptions().max_draft;
constexpr int32_t kRecentRoom = ResolutionOptions().recent_room;
constexpr int32_t kNumSlots = ResolutionOptions().num_slots;

TEST_SUITE("unit") {
  TEST_CASE("draft tokens, positions and overrides are what counting by hand gives") {
    std::mt19937_64 random(31);
    for (int repeat = 0; repeat < 300; ++repeat) {
      CAPTURE(repeat);
      Resolution round(kNumSlots);
      std::vector<DrawnTask> drawn;
      for (uint32_t i = 0; i < kNumSlots; ++i) drawn.emplace_back(random, (i * 2 + 1) % kNumSlots);
      for (size_t i = 0; i < drawn.size(); ++i) {
        drawn[i].Give(&round, &round.tasks[i]);
        round.progress[i].num_rows = static_cast<int32_t>(random() % 2);
      }
      if (repeat % 2 == 0) {
        round.RunBy<1>(LoneLane());
      } else {
        round.RunByBlocks({.num_threads = 32 * (1 + repeat % 3),
                           .schedule_seed = random(),
                           .num_blocks = 1 + repeat % 4});
      }
      for (size_t i = 0; i < drawn.size(); ++i) {
        drawn[i].Check(round.resolved[i]);
        // Rows after the end are marked dead, if a later launch takes the mark back.
        const std::pmr::vector<TokenId>& row = drawn[i].row;
        const bool is_told = drawn[i].by_slot && round.progress[i].num_rows > 0;
        NodeSet dead = 0;
        bool has_ended = false;
        for (size_t node = 0; is_told && node < row.size(); ++node) {
          has_ended = has_ended || row[node] < 0 || row[node] >= kVocabSize;
          if (has_ended) dead |= NodeSet{1} << node;
        }
        CHECK(round.progress[i].dead == dead);
      }
    }
  }

  TEST_CASE("a place of a tree counts its own path: what the chain of that path counts") {
    // Bug this would catch: siblings counted for each other, as the places of a chain are.
    std::mt19937_64 random(77);
    for (int repeat = 0; repeat < 200; ++repeat) {
      CAPTURE(repeat);
      const auto num_nodes = static_cast<int32_t>(1 + random() % kMaxDraft);
      std::vector<TokenId> tokens;
      std::vector<int32_t> parents;
      for (int32_t node = 0; node < num_nodes; ++node) {
        const TokenId invalid = random() % 2 == 0 ? kNoToken : kVocabSize;
        tokens.push_back(random() % 8 == 0 ? invalid : static_cast<TokenId>(random() % 5));
        parents.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(node + 1)) - 1);
      }
      Task given;
      given.edits.penalties.frequency = 1;
      given.min_tokens = 12;
      given.first_position = 8;
      given.continues = true;
      given.slot = 2;
      Resolution tree(1);
      tree.kept[2] = 10;
      tree.recent[2 * kRecentRoom + 8 % kRecentRoom] = 1;
      tree.recent[2 * kRecentRoom + 9 % kRecentRoom] = 3;
      tree.tasks[0] = given;
      tree.tasks[0].drafts_by_slot = true;
      tree.tasks[0].draft = {
          .num_nodes = num_nodes, .tokens = tokens.data(), .parents = parents.data()};
      tree.progress[0].num_rows = 1;
      tree.RunByBlocks({.num_threads = 32, .schedule_seed = random()});
      CHECK(tree.resolved[0].draft.num_nodes == num_nodes);
      NodeSet undrawn = 0;
      for (int32_t place = 0; place <= num_nodes; ++place) {
        CAPTURE(place);
        std::vector<TokenId> path;
        for (int32_t node = place - 1; node >= 0; node = parents[node]) {
          path.insert(path.begin(), tokens[node]);
        }
        const auto is_invalid = [](TokenId id) { return id < 0 || id >= kVocabSize; };
        if (place > 0 && std::ranges::any_of(path, is_invalid)) {
          undrawn |= NodeSet{1} << (place - 1);
          continue;
        }
        Resolution chain(1);
        chain.kept = tree.kept;
        chain.recent = tree.recent;
        chain.tasks[0] = given;
        chain.tasks[0].draft = {.num_nodes = static_cast<int32_t>(path.size()),
                                .tokens = path.data()};
        chain.RunBy<1>(LoneLane());
        const PlaceEdits& found = tree.resolved[0].places[place];
        const PlaceEdits& wanted = chain.resolved[0].places[path.size()];
        CHECK(found.below_min_tokens == wanted.below_min_tokens);
        REQUIRE(found.num_overrides == wanted.num_overrides);
        for (int32_t j = 0; j < found.num_overrides; ++j) {
          CHECK(found.overrides[j].id == wanted.overrides[j].id);
          CHECK(found.overrides[j].count == wanted.overrides[j].count);
        }
      }
      CHECK(tree.progress[0].dead == undrawn);
    }
  }

  TEST_CASE("whatever lies in a slot, it is a tree or it is refused, and nothing else is read") {
    // Expected values come from following every list of children with a set of visited nodes.
    std::mt19937_64 random(41);
    int num_trees = 0;
    int num_refused = 0;
    for (int repeat = 0; repeat < 40000; ++repeat) {
      const auto num_nodes = static_cast<int32_t>(1 + random() % 5);
      const auto any = [&] {
        const int64_t wild[] = {-2, int64_t{1} << 32, std::numeric_limits<int64_t>::min(), 1000};
        return random() % 30 == 0 ? wild[random() % 4]
                                  : static_cast<int64_t>(random() % uint64_t(num_nodes + 2)) - 1;
      };
      std::vector<int64_t> next_child(size_t(num_nodes) + 1, -1);
      std::vector<int64_t> next_sibling(next_child);
      for (int64_t& child : next_child) child = random() % 2 == 0 ? -1 : any();
      for (int64_t& sibling : next_sibling) sibling = random() % 2 == 0 ? -1 : any();

      std::vector<int32_t> expected(size_t(num_nodes), kNoNode);  // kNoNode: in no list
      bool is_tree = true;
      std::vector<int64_t> places = {0};
      for (size_t p = 0; p < places.size() && is_tree; ++p) {
        int64_t child = next_child[size_t(places[p])];
        while (child != -1 && is_tree) {
          is_tree =
              child > places[p] && child <= num_nodes && expected[size_t(child - 1)] == kNoNode;
          if (!is_tree) break;
          expected[size_t(child - 1)] = static_cast<int32_t>(places[p]) - 1;
          places.push_back(child);
          child = next_sibling[size_t(child)];
        }
      }

      TreeRows rows;
      rows.next_child = {.data = next_child.data(), .is_wide = true};
      rows.next_sibling = {.data = next_sibling.data(), .is_wide = true};
      std::vector<int32_t> numbers(size_t(NumTreeNumbers(true, num_nodes)));
      for (size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = ReadTreeNumber(rows, 0, num_nodes, static_cast<int32_t>(i));
      }
      std::vector<int32_t> parents(size_t(num_nodes), kNoNode);
      const SlotTree tree =
          MakeSlotTree({.num_nodes = num_nodes}, true, kNodesMax, numbers.data(), parents.data());
      REQUIRE((tree.fault == TreeFault::kNone) == is_tree);
      ++(is_tree ? num_trees : num_refused);
      if (!is_tree) continue;
      for (int32_t node = 0; node < num_nodes; ++node) {
        const bool is_listed = expected[size_t(node)] != kNoNode;
        REQUIRE(Holds(tree.unlisted, node) == !is_listed);
        REQUIRE(parents[size_t(node)] == (is_listed ? expected[size_t(node)] : kRoot));
      }
    }
    CHECK(num_trees > 1000);
    CHECK(num_refused > 1000);
  }

  TEST_CASE("a tree by slot has no path that is too long, and drawn siblings of one kind") {
    const auto fault_of = [](std::vector<int32_t> numbers, const std::vector<DraftKind>& kinds,
                             int32_t max_path) {
      std::vector<int32_t> parents(numbers.size());
      const Draft draft{.num_nodes = static_cast<int32_t>(numbers.size()), .kinds = kinds.data()};
      return MakeSlotTree(draft, false, max_path, numbers.data(), parents.data()).fault;
    };
    constexpr DraftKind kHot = DraftKind::kOneHot;
    constexpr DraftKind kDrawn = DraftKind::kSampled;
    constexpr DraftKind kRest = DraftKind::kSampledRest;
    CHECK(fault_of({-1, 0, 1}, {kHot, kHot, kHot}, 3) == TreeFault::kNone);
    CHECK(fault_of({-1, 0, 1}, {kHot, kHot, kHot}, 2) == TreeFault::kPath);
    CHECK(fault_of({-1, 0, 0}, {kHot, kHot, kHot}, 2) == TreeFault::kNone);
    CHECK(fault_of({-1, -1, -1}, {kDrawn, kHot, kDrawn}, 1) == TreeFault::kNone);
    CHECK(fault_of({-1, -1, -1}, {kDrawn, kHot, kRest}, 1) == TreeFault::kKinds);
    CHECK(fault_of({-1, 0, 0}, {kDrawn, kRest, kRest}, 2) == TreeFault::kNone);
    CHECK(fault_of({-1, 1, 0}, {kHot, kHot, kHot}, 3) == TreeFault::kParents);
    CHECK(fault_of({-2, -1, -1}, {kHot, kHot, kHot}, 3) == TreeFault::kParents);
  }

  TEST_CASE("a task that leaves nothing open passes as it is, places and all") {
    Resolution round(1);
    const TokenId tokens[] = {3, kNoToken, 4};
    TokenEdit override{.id = 7, .flags = kEditBanned};
    const PlaceEdits places[] = {
        {.overrides = &override, .num_overrides = 1}, {}, {.forced = 9}, {}};
    Task& task = round.tasks[0];
    task.draft.num_nodes = 3;
    task.draft.tokens = tokens;
    task.places = places;
    task.edits.penalties.repetition = 2;
    task.first_position = 11;
    task.round_base = 8;
    task.min_tokens = 100;
    round.kept[0] = 50;
    round.RunBy<1>(LoneLane());
    CHECK(round.resolved[0].draft.num_nodes == 3);
    CHECK(round.resolved[0].draft.tokens == tokens);
    CHECK(round.resolved[0].places == places);
    CHECK(round.resolved[0].first_position == 11);
    CHECK(round.resolved[0].round_base == 8);
  }

  // The drafter may write new tokens there while the round runs.
  TEST_CASE("draft tokens are read once, and what was read is counted") {
    struct Rewriting : LoneLane {
      TokenId* row;
      void SyncWarp() const { std::fill_n(row, kMaxDraft, 33); }
    };
    Resolution round(1);
    round.drafts = {5, 6, 6, kNoToken, 1, 1};
    Task& task = round.tasks[0];
    task.drafts_by_slot = true;
    task.draft.num_nodes = kMaxDraft;
    task.edits.penalties.presence = 1;
    Rewriting thread;
    thread.row = round.drafts.data();
    round.RunBy<1>(thread);
    REQUIRE(round.drafts[0] == 33);
    const Task& resolved = round.resolved[0];
    REQUIRE(resolved.draft.num_nodes == 3);
    CHECK(std::vector<TokenId>(resolved.draft.tokens, resolved.draft.tokens + 3) ==
          std::vector<TokenId>{5, 6, 6});
    CheckOverrides(resolved.places[3], {{5, kEditSeen, 0, 1}, {6, kEditSeen, 0, 2}});
  }

  TEST_CASE("whatever lies in the slots, no more is counted than ids that the ring has") {
    const TokenId invalid[] = {kNoToken, kVocabSize, std::numeric_limits<TokenId>::max()};
    for (const uint32_t kept : {0u, 99u, 100u, 101u, 100u + kRecentRoom, 5000u, 0xFFFFFFFFu}) {
      for (const bool is_valid : {false, true}) {
        CAPTURE(kept);
        CAPTURE(is_valid);
        Resolution round(1);
        for (size_t i = 0; i < round.recent.size(); ++i) {
          round.recent[i] = is_valid ? 4 : invalid[i % 3];
        }
        round.kept[2] = kept;
        Task& task = round.tasks[0];
        task.slot = 2;
        task.continues = true;
        task.first_position = 100;
        task.edits.penalties.presence = 1;
        round.RunBy<1>(LoneLane());
        CHECK(round.resolved[0].first_position == kept);
        const uint32_t confirmed = kept > 100 ? std::min<uint32_t>(kept - 100, kRecentRoom) : 0;
        std::vector<TokenEdit> expected;
        if (is_valid && confirmed > 0) expected.push_back({4, kEditSeen, 0, confirmed});
        CheckOverrides(round.resolved[0].places[0], expected);
      }
    }
  }
}

}  // namespace
}  // namespace specd
