#include "tools/terminal/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr size_t kLinesAtOnce = 1000;

}  // namespace

size_t NumCodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

TextTable::TextTable(std::vector<Column> columns, Paint paint, std::FILE* out, Style style)
    : columns_(std::move(columns)), paint_(paint), out_(out), style_(style) {
  for (const Column& column : columns_) {
    widths_.push_back(std::max(column.title.size(), column.width));
  }
}

void TextTable::Add(std::vector<Cell> cells) {
  SPECD_CHECK(cells.size() == columns_.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].text = SafeText(cells[i].text);
    widths_[i] = std::max(widths_[i], NumCodePoints(cells[i].text));
  }
  lines_.push_back(std::move(cells));
  if (lines_.size() >= kLinesAtOnce) Flush();
}

void TextTable::Flush() {
  if (lines_.empty()) return;
  if (!std::exchange(has_titles_, true)) {
    std::vector<Cell> titles;
    for (const Column& column : columns_) {
      titles.emplace_back(std::string(column.title), Colour::kDim);
    }
    Print(titles);
    if (style_ == Style::kMarkdown) Print(std::vector<Cell>(columns_.size(), "---"));
  }
  for (const std::vector<Cell>& cells : lines_) Print(cells);
  lines_.clear();
}

void TextTable::Print(const std::vector<Cell>& cells) const {
  std::string line = style_ == Style::kMarkdown ? "|" : "";
  for (size_t i = 0; i < cells.size(); ++i) {
    if (style_ == Style::kMarkdown) {
      line += fmt::format(" {} |", cells[i].text);
      continue;
    }
    const std::string room(widths_[i] - NumCodePoints(cells[i].text), ' ');
    const bool is_last = i + 1 == cells.size();
    if (columns_[i].align == Align::kRight) line += room;
    line += paint_(cells[i].colour, cells[i].text);
    if (columns_[i].align == Align::kLeft && !is_last) line += room;
    if (!is_last) line += "  ";
  }
  line.erase(line.find_last_not_of(' ') + 1);
  // It throws nothing, because a destructor prints; the stream keeps an error.
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), out_);
}

}  // namespace specd
