// Several streams side by side: a heading over each column, then their lines.
//
// Give it events as they come; take rows of text out, either those that are complete in every
// column (for a file or a pipe, where nothing can be taken back), or the whole picture (for a
// terminal, where it is drawn again).
//
// No I/O. Not safe to share between threads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tools/toy_client/columns.h"

namespace specd::toy {

class ColumnBlock {
 public:
  // The fewest cells that a column is given.
  static constexpr int kColumnWidthMin = 8;

  // How many columns find room in total_width cells, at least 1.
  static size_t MaxColumns(int total_width);

  // Shares total_width cells among num_columns columns.
  ColumnBlock(size_t num_columns, int total_width, Marking marking);

  bool IsEmpty() const { return columns_.empty(); }
  bool IsFull() const { return columns_.size() == num_columns_; }
  bool IsFinished() const;  // full, and every stream has ended

  // Returns the stream's index in this block. REQUIRES: !IsFull().
  size_t AddStream(std::string_view heading);
  void Append(size_t stream, std::string_view text, bool accepted);
  void Finish(size_t stream, std::string_view remark);

  // No more streams will be added and no more text: whatever is there counts as complete.
  void FinishAll();

  // The rows, each ending in a newline, that have become complete since the last call; the heading
  // comes with the first of them.
  std::string TakeCompleteRows();

  // Heading and text as they are now, in at most max_rows rows as long as the heading leaves one
  // for the text: of each column the end is shown.
  std::vector<std::string> Render(size_t max_rows) const;

 private:
  std::vector<std::string> RenderHeading() const;
  std::string RenderRow(const std::vector<const Line*>& lines) const;

  size_t num_columns_;
  int column_width_;
  Marking marking_;
  std::vector<Column> headings_;
  std::vector<Column> columns_;
  bool heading_taken_ = false;
  size_t num_rows_taken_ = 0;
};

}  // namespace specd::toy
