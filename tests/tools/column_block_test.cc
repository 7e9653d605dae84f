#include "tools/toy_client/column_block.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace specd::toy {
namespace {

using Rows = std::vector<std::string>;

// Two columns of 8 cells: 8 + 3 + 8.
struct TwoStreams {
  TwoStreams() : block(2, 19, Marking::kNone) {
    left = block.AddStream("left");
    right = block.AddStream("right heading");
  }
  ColumnBlock block;
  size_t left = 0;
  size_t right = 0;
};

constexpr char kHeading[] =
    "left     | right\n"
    "         | heading\n"
    "---------+---------\n";

TEST_SUITE("unit") {
  TEST_CASE("a row is taken when it is complete in every column") {
    TwoStreams two;
    two.block.Append(two.left, "one two\nthree\n", false);
    CHECK(two.block.TakeCompleteRows() == kHeading);
    two.block.Append(two.right, "eins zwei", false);
    CHECK(two.block.TakeCompleteRows() == "one two  | eins\n");
    CHECK(two.block.TakeCompleteRows() == "");
    two.block.Append(two.right, " drei", false);
    CHECK(two.block.TakeCompleteRows() == "three    | zwei\n");
  }

  TEST_CASE("a stream that has ended holds nobody up") {
    TwoStreams two;
    two.block.Append(two.left, "a", false);
    two.block.Finish(two.left, "end");
    two.block.Append(two.right, "1\n2\n3\n4", false);
    CHECK(two.block.TakeCompleteRows() ==
          std::string(kHeading) + "a        | 1\nend      | 2\n         | 3\n");
    CHECK_FALSE(two.block.IsFinished());
    two.block.Finish(two.right, "end");
    CHECK(two.block.IsFinished());
    CHECK(two.block.TakeCompleteRows() == "         | 4\n         | end\n");
  }

  TEST_CASE("nothing is shown before all columns have a stream, unless no more will come") {
    ColumnBlock block(2, 19, Marking::kNone);
    const size_t only = block.AddStream("only");
    block.Append(only, "a\nb", false);
    CHECK(block.TakeCompleteRows() == "");
    CHECK_FALSE(block.IsFull());
    block.FinishAll();
    CHECK(block.TakeCompleteRows() == "only\n--------\na\nb\n");
  }

  TEST_CASE("the picture shows the end of what does not fit") {
    TwoStreams two;
    two.block.Append(two.left, "1\n2\n3\n4", false);
    two.block.Append(two.right, "x", false);
    CHECK(two.block.Render(100).size() == 3 + 4);
    const Rows rows = two.block.Render(5);
    REQUIRE(rows.size() == 5);
    CHECK(rows[3] == "3        | x");
    CHECK(rows[4] == "4        |");
  }

  TEST_CASE("columns that would be too narrow are not made") {
    CHECK(ColumnBlock::MaxColumns(19) == 2);
    CHECK(ColumnBlock::MaxColumns(18) == 1);
    CHECK(ColumnBlock::MaxColumns(1) == 1);
  }
}

}  // namespace
}  // namespace specd::toy
