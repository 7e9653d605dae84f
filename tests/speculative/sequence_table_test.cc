#include "speculative/sequence/sequence_table.h"

#include <doctest/doctest.h>

#include <set>
#include <vector>

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("a full table opens nothing, and a closed slot is used again under a new handle") {
    SequenceTable table(2);
    const SequenceHandle a = table.Open()->handle;
    const SequenceHandle b = table.Open()->handle;
    CHECK(table.Open() == nullptr);
    CHECK(table.num_taken() == 2);
    CHECK(table.Close(a));
    const SequenceHandle c = table.Open()->handle;
    CHECK(SlotOf(c) == SlotOf(a));
    CHECK(c != a);
    CHECK(table.Find(a) == nullptr);
    CHECK(table.Find(c) != nullptr);
    CHECK(table.Find(b) != nullptr);
  }

  TEST_CASE("stale, foreign and zero handles find nothing and close nothing") {
    SequenceTable table(2);
    const SequenceHandle a = table.Open()->handle;
    CHECK(table.Find(0) == nullptr);
    CHECK(table.Find(a + (uint64_t{1} << 32)) == nullptr);
    CHECK(table.Find((uint64_t{1} << 32) | 77) == nullptr);
    CHECK(table.Close(a));
    CHECK_FALSE(table.Close(a));
    CHECK(table.num_taken() == 0);
  }

  TEST_CASE("the handle of another table finds nothing, and is told apart") {
    SequenceTable table(2, 5);
    SequenceTable other(2, 6);
    const SequenceHandle ours = table.Open()->handle;
    const SequenceHandle foreign = other.Open()->handle;
    CHECK(SlotOf(foreign) == SlotOf(ours));
    CHECK(GenerationOf(foreign) == GenerationOf(ours));
    CHECK(table.Find(foreign) == nullptr);
    CHECK_FALSE(table.Close(foreign));
    CHECK(table.MayHaveGivenOut(ours));
    CHECK_FALSE(table.MayHaveGivenOut(foreign));
    CHECK(table.WhyNotFound(foreign).find("another engine") != std::string::npos);
    CHECK(table.WhyNotFound(ours + (uint64_t{1} << 32)).ends_with("is not open"));
    // The parts fill the word: the greatest of each stay apart.
    const HandleParts greatest = {
        .generation = kHandleGenerationMax, .owner = kHandleOwnerMax, .slot = kSlotsMax - 1};
    CHECK(SlotOf(MakeHandle(greatest)) == greatest.slot);
    CHECK(OwnerOf(MakeHandle(greatest)) == greatest.owner);
    CHECK(GenerationOf(MakeHandle(greatest)) == greatest.generation);
  }

  TEST_CASE("a sequence gets the handle that it had in another table") {
    SequenceTable before(4, 5);
    std::vector<SequenceHandle> handles;
    for (int i = 0; i < 4; ++i) handles.push_back(before.Open()->handle);
    before.Close(handles[1]);
    const SequenceHandle again = before.Open()->handle;
    // Slots 1 and 3, and generations begin after those that the other table has given out.
    SequenceTable after(4, 5, GenerationOf(again));
    for (const SequenceHandle handle : {again, handles[3]}) {
      REQUIRE(after.CanOpenAs(handle));
      CHECK(after.Open(handle)->handle == handle);
      CHECK(after.Find(handle) != nullptr);
      CHECK_FALSE(after.CanOpenAs(handle));
      CHECK(after.Open(handle) == nullptr);
    }
    CHECK(after.num_taken() == 2);
    // Slots without a sequence go to others, whose handles the first table has never given out.
    for (const uint32_t slot : {0u, 2u}) {
      const SequenceHandle fresh = after.Open()->handle;
      CHECK(SlotOf(fresh) == slot);
      CHECK(GenerationOf(fresh) > GenerationOf(again));
    }
    CHECK(after.Open() == nullptr);
    CHECK(after.Close(handles[3]));
    CHECK(after.CanOpenAs(handles[3]));
  }

  TEST_CASE("no handle that is foreign, held or out of range can be had") {
    SequenceTable table(2, 5);
    const auto made = [](uint32_t generation, uint32_t owner, uint32_t slot) {
      return MakeHandle({.generation = generation, .owner = owner, .slot = slot});
    };
    CHECK_FALSE(table.CanOpenAs(made(1, 6, 0)));
    CHECK_FALSE(table.CanOpenAs(made(1, 5, 2)));
    CHECK_FALSE(table.CanOpenAs(made(0, 5, 0)));
    const SequenceHandle open = table.Open()->handle;
    table.Hold(SlotOf(open));
    table.Close(open);
    CHECK_FALSE(table.CanOpenAs(open));
    table.Release(SlotOf(open));
    CHECK(table.CanOpenAs(open));
  }

  TEST_CASE("a reused slot starts from nothing") {
    SequenceTable table(1);
    Sequence* first = table.Open();
    first->kept_tokens = 9;
    first->finish_reason = FinishReason::kLength;
    first->stop_token_ids = {1, 2};
    table.Close(first->handle);
    const Sequence* second = table.Open();
    CHECK(second->kept_tokens == 0);
    CHECK(second->finish_reason == FinishReason::kNone);
    CHECK(second->stop_token_ids.empty());
    CHECK(second->last_round == 0);
  }

  TEST_CASE("generations come round to 1, never to 0, and stay within a state word's 29 bits") {
    CHECK(NextGeneration(0) == 1);
    CHECK(NextGeneration(1) == 2);
    CHECK(NextGeneration((uint32_t{1} << 29) - 2) == (uint32_t{1} << 29) - 1);
    CHECK(NextGeneration((uint32_t{1} << 29) - 1) == 1);
  }

  TEST_CASE("handles never repeat while slots come and go") {
    SequenceTable table(3);
    std::set<SequenceHandle> seen;
    for (int i = 0; i < 1000; ++i) {
      Sequence* sequence = table.Open();
      CHECK(seen.insert(sequence->handle).second);
      table.Close(sequence->handle);
    }
  }
}

}  // namespace
}  // namespace specd
