// One row of a slot output for each content, from answers that are written down here. The rows in
// SGLang's layout are those of SGLang's own test of verify_tree_greedy (<test_eagle_utils.py>).
#include "kernels/core/slot_output.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "kernels/core/round.h"

namespace specd {
namespace {

using OutputRow = std::vector<int64_t>;

struct Answer {
  uint32_t slot;
  std::vector<TokenId> tokens;
  std::vector<int32_t> path;
  uint32_t total_kept;
};

// Two trees of six nodes with the root, in SGLang's numbers 3, 4, 5 and 4, 5 of their requests.
const Answer kFirst{.slot = 0, .tokens = {3, 4, 5, 18}, .path = {2, 3, 4}, .total_kept = 104};
const Answer kSecond{.slot = 1, .tokens = {11, 12, 18}, .path = {3, 4}, .total_kept = 93};

template <typename Element>
OutputRow Written(const Answer& answer, SlotField field, int32_t row_length) {
  std::vector<Element> row(static_cast<size_t>(row_length) + 1, -9);
  const SlotOutput output{.data = row.data(),
                          .field = field,
                          .is_wide = sizeof(Element) == sizeof(int64_t),
                          .row_length = row_length,
                          .row_stride = row_length,
                          .num_nodes = 6};
  const SlotCounts counts{.slot = answer.slot,
                          .num_tokens = static_cast<int32_t>(answer.tokens.size()),
                          .num_accepted = static_cast<int32_t>(answer.path.size()),
                          .total_kept = answer.total_kept};
  WriteSlotRow(
      output, counts, [&](int32_t i) { return answer.tokens.at(static_cast<size_t>(i)); },
      [&](int32_t i) { return answer.path.at(static_cast<size_t>(i)); }, row.data());
  CHECK(row.back() == -9);
  return {row.begin(), row.end() - 1};
}

void CheckRow(const Answer& answer, SlotField field, const OutputRow& expected) {
  CAPTURE(static_cast<int>(field));
  const auto row_length = static_cast<int32_t>(expected.size());
  CHECK(Written<int32_t>(answer, field, row_length) == expected);
  CHECK(Written<int64_t>(answer, field, row_length) == expected);
}

TEST_SUITE("unit") {
  TEST_CASE("slot outputs: one number, and rows that end in -1") {
    CheckRow(kFirst, SlotField::kNextToken, {18});
    CheckRow(kFirst, SlotField::kKeptTokens, {3, 4, 5, 18});
    CheckRow(kSecond, SlotField::kKeptTokens, {11, 12, 18, -1});
    CheckRow(kFirst, SlotField::kNumKept, {4});
    CheckRow(kSecond, SlotField::kNumAccepted, {2});
    CheckRow(kSecond, SlotField::kTotalKept, {93});
    CheckRow(kFirst, SlotField::kAcceptedPath, {2, 3, 4});
    CheckRow(kSecond, SlotField::kAcceptedPath, {3, 4, -1});
  }

  TEST_CASE("slot outputs: a bad row after accepted tokens leaves as many tokens as nodes") {
    const Answer cut{.slot = 0, .tokens = {3, 4}, .path = {0, 1}, .total_kept = 2};
    CheckRow(cut, SlotField::kNextToken, {4});
    CheckRow(cut, SlotField::kKeptTokens, {3, 4, -1});
    CheckRow(cut, SlotField::kAcceptedPath, {0, 1});
    CheckRow(cut, SlotField::kPredicts, {3, 4, -1});
  }

  TEST_CASE("slot outputs: a number past 2^31 keeps its value in int64") {
    const Answer old{.slot = 0, .tokens = {3}, .path = {}, .total_kept = 4'000'000'000};
    CHECK(Written<int64_t>(old, SlotField::kTotalKept, 1) == OutputRow{4'000'000'000});
  }

  // The kernel also writes entries of predicts off the accepted path, for nodes that it looked at.
  // Nothing reads them, and they are -1 here.
  TEST_CASE("slot outputs: SGLang's predicts and accept_index of its own test") {
    CheckRow(kFirst, SlotField::kPredicts, {3, -1, -1, 4, 5, 18});
    CheckRow(kSecond, SlotField::kPredicts, {11, -1, -1, -1, 12, 18});
    CheckRow(kFirst, SlotField::kAcceptIndex, {0, 3, 4, 5});
    CheckRow(kSecond, SlotField::kAcceptIndex, {6, 10, 11, -1});
    // The kept tokens are the entries that the index names.
    for (const Answer& answer : {kFirst, kSecond}) {
      const OutputRow predicts = Written<int64_t>(answer, SlotField::kPredicts, 6);
      const OutputRow index = Written<int64_t>(answer, SlotField::kAcceptIndex, 4);
      for (size_t i = 0; i < answer.tokens.size(); ++i) {
        CHECK(predicts.at(static_cast<size_t>(index[i]) - answer.slot * 6) == answer.tokens[i]);
      }
    }
  }
}

}  // namespace
}  // namespace specd
