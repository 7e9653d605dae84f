// Column lays out text that arrives in pieces in a column of a fixed width, for the toy client.
//
//   Column column(30, Marking::kBrackets);
//   column.Append("The", false);
//   column.Append(" daemon verifies", true);    // accepted draft tokens
//   column.Finish();                            // "The [daemon verifies]"
//
// Lines break at spaces; a word longer than the column is cut. Width counts code points: East Asian
// wide characters and emoji are two cells, combining marks none. Control characters become U+FFFD,
// because text from a model must not steer somebody's terminal.
//
// No I/O. Not safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace specd::toy {

// The mark of accepted draft tokens.
enum class Marking {
  kNone,
  kBrackets,  // [accepted]: one pair around a run, white space at its ends left outside
  kColour,    // green and bold, by terminal escape sequences
};

// 0, 1 or 2 cells of a terminal.
int CellWidth(uint32_t code_point);

struct Cell {
  std::string bytes;  // of one code point
  int width = 0;
  bool accepted = false;
};

struct Line {
  std::vector<Cell> cells;

  int Width() const;
  // Padded with spaces to at least `width` cells.
  std::string Render(int width, Marking marking) const;
};

class Column {
 public:
  // REQUIRES: width >= 2, so that every character fits.
  Column(int width, Marking marking) : width_(width), marking_(marking) {}

  // `text` holds whole characters.
  void Append(std::string_view text, bool accepted);

  // Closes the last run and the last line: nothing will follow.
  void Finish();

  int width() const { return width_; }
  Marking marking() const { return marking_; }
  bool finished() const { return finished_; }
  const std::vector<Line>& lines() const { return lines_; }  // the last one may still grow
  size_t num_complete_lines() const { return finished_ ? lines_.size() : lines_.size() - 1; }

 private:
  void Mark(Cell cell);
  void CloseRun();
  void Put(Cell cell);
  void WrapLastLine();

  int width_;
  Marking marking_;
  bool finished_ = false;
  bool run_open_ = false;         // a bracket waits to be closed
  std::vector<Cell> run_spaces_;  // white space that may turn out to stand after the run
  std::vector<Line> lines_ = std::vector<Line>(1);
};

}  // namespace specd::toy
