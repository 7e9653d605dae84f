#include "tools/toy_client/columns.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/toy_engine/utf8.h"

namespace specd::toy {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kAcceptedOn = "\x1b[1;32m";
constexpr std::string_view kAcceptedOff = "\x1b[0m";

struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

// Blocks of combining marks and joiners (Unicode 14, general categories Mn and Cf), without those
// of single scripts.
constexpr CodePointRange kZeroWidth[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x200B, 0x200F},
                                         {0x2060, 0x2064}, {0x20D0, 0x20F0}, {0xFE00, 0xFE0F},
                                         {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}};

// Blocks whose characters are East Asian Wide or Fullwidth (Unicode 14, EastAsianWidth.txt).
constexpr CodePointRange kDoubleWidth[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0x33FF},  {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},
    {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

template <size_t N>
bool IsIn(const CodePointRange (&ranges)[N], uint32_t code_point) {
  return std::any_of(std::begin(ranges), std::end(ranges), [&](const CodePointRange& range) {
    return range.first <= code_point && code_point <= range.last;
  });
}

bool IsControl(uint32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7F && code_point <= 0x9F);
}

bool IsSpace(const Cell& cell) { return cell.bytes == " "; }
bool IsNewline(const Cell& cell) { return cell.bytes == "\n"; }

Cell MakeCell(std::string_view bytes, const Utf8Char& c, bool accepted) {
  if (c.valid && c.code_point == '\n') return {"\n", 0, accepted};
  if (c.valid && c.code_point == '\t') return {" ", 1, accepted};
  if (!c.valid || IsControl(c.code_point)) return {std::string(kReplacement), 1, accepted};
  return {std::string(bytes), CellWidth(c.code_point), accepted};
}

}  // namespace

int CellWidth(uint32_t code_point) {
  if (IsIn(kZeroWidth, code_point)) return 0;
  return IsIn(kDoubleWidth, code_point) ? 2 : 1;
}

int Line::Width() const {
  int width = 0;
  for (const Cell& cell : cells) width += cell.width;
  return width;
}

std::string Line::Render(int width, Marking marking) const {
  std::string text;
  bool coloured = false;
  for (const Cell& cell : cells) {
    const bool wanted = marking == Marking::kColour && cell.accepted;
    if (wanted != coloured) text += wanted ? kAcceptedOn : kAcceptedOff;
    coloured = wanted;
    text += cell.bytes;
  }
  if (coloured) text += kAcceptedOff;
  return text.append(static_cast<size_t>(std::max(0, width - Width())), ' ');
}

void Column::Append(std::string_view text, bool accepted) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    Mark(MakeCell(text.substr(i, c.size_bytes), c, accepted));
    i += c.size_bytes;
  }
}

void Column::Finish() {
  CloseRun();
  finished_ = true;
}

// Puts brackets around runs of accepted cells. White space inside a run is held back until the next
// cell shows whether the run continues.
void Column::Mark(Cell cell) {
  if (marking_ != Marking::kBrackets) return Put(std::move(cell));
  if (!cell.accepted) {
    CloseRun();
    return Put(std::move(cell));
  }
  if (IsSpace(cell) || IsNewline(cell)) {
    if (!run_open_) return Put(std::move(cell));
    run_spaces_.push_back(std::move(cell));
    return;
  }
  if (!run_open_) Put({"[", 1, true});
  run_open_ = true;
  for (Cell& space : std::exchange(run_spaces_, {})) Put(std::move(space));
  Put(std::move(cell));
}

void Column::CloseRun() {
  if (run_open_) Put({"]", 1, true});
  run_open_ = false;
  for (Cell& space : std::exchange(run_spaces_, {})) Put(std::move(space));
}

void Column::Put(Cell cell) {
  if (IsNewline(cell)) {
    lines_.emplace_back();
    return;
  }
  if (lines_.back().cells.empty() && IsSpace(cell))
    return;  // No indentation, least of all by a wrap.
  lines_.back().cells.push_back(std::move(cell));
  if (lines_.back().Width() > width_) WrapLastLine();
}

// Moves what follows the last space to a new line; that space is not shown. A line without a space
// is cut before its last character.
void Column::WrapLastLine() {
  std::vector<Cell>& cells = lines_.back().cells;
  const auto space = std::find_if(cells.rbegin(), cells.rend(), IsSpace);
  Line next;
  if (space != cells.rend()) {
    next.cells.assign(std::make_move_iterator(space.base()), std::make_move_iterator(cells.end()));
    cells.erase(space.base() - 1, cells.end());
  } else {
    next.cells.push_back(std::move(cells.back()));
    cells.pop_back();
  }
  lines_.push_back(std::move(next));
}

}  // namespace specd::toy
