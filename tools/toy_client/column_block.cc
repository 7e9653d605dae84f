#include "tools/toy_client/column_block.h"

#include <algorithm>

namespace specd::toy {
namespace {

constexpr std::string_view kGap = " | ";

std::string WithoutTrailingSpaces(std::string row) {
  row.erase(row.find_last_not_of(' ') + 1);
  return row;
}

const Line* LineAt(const Column& column, size_t index) {
  return index < column.lines().size() ? &column.lines()[index] : nullptr;
}

}  // namespace

size_t ColumnBlock::MaxColumns(int total_width) {
  const int gap = static_cast<int>(kGap.size());
  return static_cast<size_t>(std::max(1, (total_width + gap) / (kColumnWidthMin + gap)));
}

ColumnBlock::ColumnBlock(size_t num_columns, int total_width, Marking marking)
    : num_columns_(num_columns),
      column_width_((total_width - static_cast<int>((num_columns - 1) * kGap.size())) /
                    static_cast<int>(num_columns)),
      marking_(marking) {
  column_width_ = std::max(column_width_, kColumnWidthMin);
}

bool ColumnBlock::IsFinished() const {
  return IsFull() && std::all_of(columns_.begin(), columns_.end(),
                                 [](const Column& column) { return column.finished(); });
}

size_t ColumnBlock::AddStream(std::string_view heading) {
  headings_.emplace_back(column_width_, Marking::kNone);
  headings_.back().Append(heading, false);
  headings_.back().Finish();
  columns_.emplace_back(column_width_, marking_);
  return columns_.size() - 1;
}

void ColumnBlock::Append(size_t stream, std::string_view text, bool accepted) {
  columns_[stream].Append(text, accepted);
}

void ColumnBlock::Finish(size_t stream, std::string_view remark) {
  if (columns_[stream].finished()) return;
  columns_[stream].Append("\n", false);
  columns_[stream].Append(remark, false);
  columns_[stream].Finish();
}

void ColumnBlock::FinishAll() {
  for (Column& column : columns_) column.Finish();
  num_columns_ = columns_.size();
}

std::string ColumnBlock::RenderRow(const std::vector<const Line*>& lines) const {
  std::string row;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) row += kGap;
    row += (lines[i] == nullptr ? Line() : *lines[i]).Render(column_width_, marking_);
  }
  return WithoutTrailingSpaces(std::move(row));
}

std::vector<std::string> ColumnBlock::RenderHeading() const {
  size_t height = 0;
  for (const Column& heading : headings_) height = std::max(height, heading.lines().size());
  std::vector<std::string> rows;
  for (size_t i = 0; i < height; ++i) {
    std::vector<const Line*> lines;
    for (const Column& heading : headings_) lines.push_back(LineAt(heading, i));
    rows.push_back(RenderRow(lines));
  }
  std::string rule;
  for (size_t i = 0; i < headings_.size(); ++i) {
    if (i > 0) rule += "-+-";
    rule.append(static_cast<size_t>(column_width_), '-');
  }
  rows.push_back(std::move(rule));
  return rows;
}

std::string ColumnBlock::TakeCompleteRows() {
  if (!IsFull() || columns_.empty()) return "";
  // A row is complete if every running column is past it. If all columns have ended, the longest
  // column gives the number of rows.
  size_t num_complete = 0;
  for (const Column& column : columns_) {
    num_complete = std::max(num_complete, column.num_complete_lines());
  }
  for (const Column& column : columns_) {
    if (!column.finished()) num_complete = std::min(num_complete, column.num_complete_lines());
  }
  std::string text;
  if (!heading_taken_) {
    for (const std::string& row : RenderHeading()) text += row + '\n';
    heading_taken_ = true;
  }
  for (; num_rows_taken_ < num_complete; ++num_rows_taken_) {
    std::vector<const Line*> lines;
    for (const Column& column : columns_) lines.push_back(LineAt(column, num_rows_taken_));
    text += RenderRow(lines) + '\n';
  }
  return text;
}

std::vector<std::string> ColumnBlock::Render(size_t max_rows) const {
  std::vector<std::string> rows = RenderHeading();
  const size_t max_text_rows = max_rows > rows.size() ? max_rows - rows.size() : 1;
  size_t height = 0;
  for (const Column& column : columns_) height = std::max(height, column.lines().size());
  height = std::min(height, max_text_rows);
  for (size_t i = 0; i < height; ++i) {
    std::vector<const Line*> lines;
    for (const Column& column : columns_) {
      const size_t num_lines = column.lines().size();
      const size_t first = num_lines > height ? num_lines - height : 0;
      lines.push_back(LineAt(column, first + i));
    }
    rows.push_back(RenderRow(lines));
  }
  return rows;
}

}  // namespace specd::toy
