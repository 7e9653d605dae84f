// ColumnBlock shows several text streams side by side for the toy client: a heading over each
// column, then the lines.
//
// The caller adds events as they come and takes rows of text out. A file or a pipe takes rows that
// are complete in every column, because nothing can be taken back. A terminal takes the whole
// picture, which is drawn again.
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

  // The number of columns that fit into total_width cells, at least 1.
  static size_t MaxColumns(int total_width);

  // Shares total_width cells among num_columns columns.
  ColumnBlock(size_t num_columns, int total_width, Marking marking);

  bool IsEmpty() const { return columns_.empty(); }
  bool IsFull() const { return columns_.size() == num_columns_; }
  bool IsFinished() const;  // true if full, and every stream has ended

  // Returns the stream's index in this block. REQUIRES: !IsFull().
  size_t AddStream(std::string_view heading);
  void Append(size_t stream, std::string_view text, bool accepted);
  void Finish(size_t stream, std::string_view remark);

  // Ends the block: no streams and no text follow, and the text so far counts as complete.
  void FinishAll();

  // The rows that have become complete since the last call, each ending in a newline. The heading
  // comes with the first of them.
  std::string TakeCompleteRows();

  // Heading and text as they are now, in at most max_rows rows. If the heading leaves no row for
  // the text, there is one row more. A column shows its last lines.
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
