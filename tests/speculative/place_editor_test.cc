#include "speculative/processors/place_editor.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

namespace specd {
namespace {

constexpr int32_t kVocab = 10;

TEST_SUITE("unit") {
  TEST_CASE("a place has one entry for each id, though more are added than the room holds") {
    const TokenId ids[] = {9, 2, 4};
    constexpr size_t kRoom = 4;  // one more, so that a merge makes room
    SequenceParams params;
    params.logit_bias = {{4, 0.5f}, {6, 2.0f}};
    const TokenEdits of_sequence(params, {}, {}, kVocab);
    std::mt19937 random(5);
    for (const size_t num_before : {0, 1, 2, 7}) {
      CAPTURE(num_before);
      // Entries of earlier places, which stay.
      FixedList<TokenEdit> pool(num_before + kRoom);
      for (size_t i = 0; i < num_before; ++i) pool.push_back({.id = 4, .count = 77});
      PlaceEditor editor(&of_sequence, kVocab, kRoom, &pool);
      std::map<TokenId, TokenEdit> expected;
      expected[4].bias = 0.5f;
      for (int step = 0; step < 50; ++step) {
        const TokenId id = ids[random() % 3];
        TokenEdit& entry = expected[id];
        switch (random() % 3) {
          case 0:
            editor.Ban(id);
            entry.flags |= kEditBanned;
            break;
          case 1:
            editor.AddBias(id, 0.25f);  // every sum is exact
            entry.bias += 0.25f;
            break;
          default:
            editor.Count(id);
            entry.flags |= kEditSeen;
            ++entry.count;
        }
      }
      const PlaceEdits place = editor.Finish();
      REQUIRE(place.num_overrides == static_cast<int32_t>(expected.size()));
      const TokenEdit* override = place.overrides;
      for (const auto& [id, entry] : expected) {  // in the order of ids
        CHECK(override->id == id);
        CHECK(override->flags == entry.flags);
        CHECK(override->bias == entry.bias);
        CHECK(override->count == entry.count);
        ++override;
      }
      for (size_t i = 0; i < num_before; ++i) CHECK(pool[i].count == 77);
    }
  }

  TEST_CASE("a place that adds nothing has no overrides; the last forced token wins") {
    const TokenEdits of_sequence({}, {}, {}, kVocab);
    FixedList<TokenEdit> pool(2);
    pool.push_back({.id = 1});
    PlaceEditor editor(&of_sequence, kVocab, 1, &pool);
    editor.Force(3);
    editor.Force(0);
    const PlaceEdits place = editor.Finish();
    CHECK(place.num_overrides == 0);
    CHECK(place.overrides == nullptr);
    CHECK(place.forced == 0);
  }
}

}  // namespace
}  // namespace specd
