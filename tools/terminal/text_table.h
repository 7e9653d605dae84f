// TextTable lays out lines of cells in aligned columns, or in Markdown, for the programs.
//
// Widths are counted in code points, and colours take no room. A long table may be printed in
// pieces, so that its memory stays bounded: Flush prints the lines so far. Their widths then hold
// for the lines that follow, at least.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "tools/terminal/terminal.h"

namespace specd {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  enum class Style { kAligned, kMarkdown };
  struct Column {
    std::string_view title;
    Align align = Align::kRight;
    size_t width = 0;  // at least
  };
  struct Cell {
    std::string text;
    Colour colour = Colour::kNone;
    Cell(std::string text_in, Colour colour_in = Colour::kNone)  // NOLINT: a text is a cell
        : text(std::move(text_in)), colour(colour_in) {}
    Cell(const char* text_in) : text(text_in) {}  // NOLINT
  };

  TextTable(std::vector<Column> columns, Paint paint, std::FILE* out = stdout,
            Style style = Style::kAligned);
  ~TextTable() { Flush(); }
  TextTable(const TextTable&) = delete;
  TextTable& operator=(const TextTable&) = delete;

  // REQUIRES: one cell for each column.
  void Add(std::vector<Cell> cells);
  void Flush();

 private:
  void Print(const std::vector<Cell>& cells) const;

  std::vector<Column> columns_;
  Paint paint_;
  std::FILE* out_;
  Style style_;
  std::vector<size_t> widths_;
  std::vector<std::vector<Cell>> lines_;
  bool has_titles_ = false;
};

// The number of code points of valid UTF-8.
size_t NumCodePoints(std::string_view text);

}  // namespace specd
