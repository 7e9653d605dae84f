#include "tools/toy_client/columns.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace specd::toy {
namespace {

using Rows = std::vector<std::string>;
using Spans = std::vector<std::pair<std::string, bool>>;

Rows RowsOf(const Column& column) {
  Rows rows;
  for (const Line& line : column.lines()) rows.push_back(line.Render(0, column.marking()));
  return rows;
}

Rows Layout(int width, Marking marking, const Spans& spans) {
  Column column(width, marking);
  for (const auto& [text, accepted] : spans) column.Append(text, accepted);
  column.Finish();
  return RowsOf(column);
}

Rows Wrap(int width, const std::string& text) {
  return Layout(width, Marking::kNone, {{text, false}});
}

TEST_SUITE("unit") {
  TEST_CASE("lines break at spaces") {
    CHECK(Wrap(10, "one two three four") == Rows{"one two", "three four"});
    CHECK(Wrap(5, "exact fit!") == Rows{"exact", "fit!"});
    CHECK(Wrap(10, "") == Rows{""});
  }

  TEST_CASE("how the text arrives does not change the layout") {
    const std::string text = "speculative drafts are verified in one round";
    const Rows whole = Wrap(12, text);
    Column column(12, Marking::kNone);
    for (char c : text) column.Append(std::string(1, c), false);
    CHECK(RowsOf(column) == whole);
    CHECK(whole == Rows{"speculative", "drafts are", "verified in", "one round"});
  }

  TEST_CASE("a word longer than the column is cut") {
    CHECK(Wrap(4, "abcdefghij") == Rows{"abcd", "efgh", "ij"});
    CHECK(Wrap(4, "a bcdefg") == Rows{"a", "bcde", "fg"});
    // The space at the beginning of a stream leaves no empty line.
    CHECK(Wrap(4, " abcd e") == Rows{"abcd", "e"});
  }

  TEST_CASE("newlines in the text are kept") {
    CHECK(Wrap(10, "a\nb\n\nc") == Rows{"a", "b", "", "c"});
    CHECK(Wrap(3, "abc\nd") == Rows{"abc", "d"});
  }

  TEST_CASE("width counts cells of the terminal") {
    CHECK(Wrap(4, "\u6f22\u5b57\u6f22") == Rows{"\u6f22\u5b57", "\u6f22"});
    CHECK(Wrap(3, "a\u6f22\u5b57") == Rows{"a\u6f22", "\u5b57"});
    CHECK(Wrap(4, "cafe\u0301") == Rows{"cafe\u0301"});
    CHECK(Wrap(4, "na\u00efv") == Rows{"na\u00efv"});
    CHECK(CellWidth(0x1F44B) == 2);
    const Line line = {{{"\u6f22", 2, false}}};
    CHECK(line.Render(5, Marking::kNone) == "\u6f22   ");
  }

  TEST_CASE("control characters cannot steer the terminal") {
    CHECK(Wrap(20, "a\x1b[31mb\tc\r") == Rows{"a\ufffd[31mb c\ufffd"});
    CHECK(Wrap(20, "a\u009bb\xff") == Rows{"a\ufffdb\ufffd"});
  }

  TEST_CASE("brackets stand around runs of accepted tokens") {
    const Spans spans = {{"The", false},  {" daemon", true}, {" ver", true}, {"ifies", false},
                         {" dra", false}, {"fts", true},     {".", false}};
    CHECK(Layout(80, Marking::kBrackets, spans) == Rows{"The [daemon ver]ifies dra[fts]."});
  }

  TEST_CASE("white space at the ends of a run stays outside its brackets") {
    CHECK(Layout(80, Marking::kBrackets, {{"a", false}, {" b ", true}, {"c", false}}) ==
          Rows{"a [b] c"});
    CHECK(Layout(80, Marking::kBrackets, {{"a", false}, {" b\n", true}, {"c", false}}) ==
          Rows{"a [b]", "c"});
    CHECK(Layout(80, Marking::kBrackets, {{"a", false}, {" ", true}, {"c", false}}) == Rows{"a c"});
    CHECK(Layout(80, Marking::kBrackets, {{"a", true}}) == Rows{"[a]"});
  }

  TEST_CASE("a bracket wraps with its word") {
    CHECK(Layout(8, Marking::kBrackets, {{"one two", false}, {" abc", true}}) ==
          Rows{"one two", "[abc]"});
  }

  TEST_CASE("colour begins and ends on each line and takes no room") {
    const Rows rows = Layout(3, Marking::kColour, {{"a", false}, {"b cd", true}, {"e", false}});
    CHECK(rows == Rows{"a\x1b[1;32mb\x1b[0m", "\x1b[1;32mcd\x1b[0me"});
  }

  TEST_CASE("only the last line is open") {
    Column column(5, Marking::kNone);
    CHECK(column.num_complete_lines() == 0);
    column.Append("abc de", false);
    CHECK(column.num_complete_lines() == 1);
    column.Append("\n", false);
    CHECK(column.num_complete_lines() == 2);
    column.Finish();
    CHECK(column.num_complete_lines() == 3);
  }
}

}  // namespace
}  // namespace specd::toy
