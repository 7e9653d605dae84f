#include "tools/toy_client/display.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kernels/core/sequence_round.h"
#include "tools/toy_client/column_block.h"
#include "tools/toy_engine/json_string.h"

namespace specd::toy {
namespace {

void Write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Calls show(piece, accepted) for each span of the event's text.
template <typename Function>
void ForEachSpan(const TextEvent& event, const Function& show) {
  std::string_view rest = event.text;
  for (const WireSpan& span : event.spans) {
    show(rest.substr(0, span.size_bytes), span.accepted);
    rest.remove_prefix(span.size_bytes);
  }
}

class RawDisplay : public Display {
 public:
  void Show(const TextEvent& event) override {
    if (!stream_.has_value()) stream_ = event.stream;
    if (event.stream == *stream_) Write(event.text);
  }

 private:
  std::optional<uint64_t> stream_;  // the first stream that was seen
};

class JsonDisplay : public Display {
 public:
  void Show(const TextEvent& event) override { Write(FormatJsonEvent(event) + '\n'); }
};

// Streams fill a block of columns from left to right. Further streams wait in the next blocks,
// which are shown after all streams of the first have ended.
class ColumnsDisplay : public Display {
 public:
  ColumnsDisplay(const DisplayOptions& options, Marking marking)
      : options_(options), marking_(marking) {
    AddBlock();
  }

  void Show(const TextEvent& event) override {
    const auto [entry, unseen] = places_.try_emplace(event.stream);
    if (unseen) {
      if (blocks_.back().IsFull()) AddBlock();
      entry->second.block = first_block_ + blocks_.size() - 1;
      entry->second.column = blocks_.back().AddStream(event.request_id);
    }
    const Place place = entry->second;
    ColumnBlock& block = blocks_[place.block - first_block_];
    ForEachSpan(event, [&](std::string_view text, bool accepted) {
      block.Append(place.column, text, accepted);
    });
    if (event.kind != TextEventKind::kEnd) return;
    block.Finish(place.column,
                 fmt::format("-- {}: {} tokens, {} accepted drafts",
                             FinishName(event.finish_reason), event.tokens, event.accepted));
    places_.erase(event.stream);
  }

  void Refresh() override {
    while (blocks_.front().IsFinished()) {
      Close(blocks_.front());
      blocks_.pop_front();
      ++first_block_;
      if (blocks_.empty()) AddBlock();
    }
    Draw(blocks_.front());
  }

  void Finish() override {
    for (ColumnBlock& block : blocks_) {
      if (block.IsEmpty()) continue;
      block.FinishAll();
      Close(block);
    }
    blocks_.clear();
  }

 protected:
  virtual void Draw(ColumnBlock& block) { Write(block.TakeCompleteRows()); }

  // The block will no longer change.
  virtual void Close(ColumnBlock& block) { Write(block.TakeCompleteRows() + '\n'); }

 private:
  struct Place {
    size_t block = 0;  // counted over the whole run
    size_t column = 0;
  };

  void AddBlock() { blocks_.emplace_back(options_.num_columns, options_.width, marking_); }

  DisplayOptions options_;
  Marking marking_;
  size_t first_block_ = 0;
  std::deque<ColumnBlock> blocks_;
  absl::flat_hash_map<uint64_t, Place> places_;  // streams that have not ended
};

winsize TerminalSize() {
  winsize size = {};
  const bool known =
      ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  return known ? size : winsize{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
}

// Draws the block over its former picture. A picture is never taller than the screen, because lines
// that have scrolled away cannot be drawn over. When the block ends, all of it is written.
class LiveDisplay : public ColumnsDisplay {
 public:
  explicit LiveDisplay(const DisplayOptions& options) : ColumnsDisplay(options, Marking::kColour) {
    Write("\x1b[?25l");  // hides the cursor
  }
  ~LiveDisplay() override { Write("\x1b[?25h"); }

 private:
  static constexpr size_t kAllRows = static_cast<size_t>(-1);
  void Draw(ColumnBlock& block) override {
    const size_t screen = TerminalSize().ws_row;
    Paint(block.Render(screen - 1));  // The cursor stands on a row of its own.
  }

  void Close(ColumnBlock& block) override {
    Paint(block.Render(kAllRows));
    Write("\n");
    num_rows_drawn_ = 0;
  }

  void Paint(const std::vector<std::string>& rows) {
    std::string picture;
    if (num_rows_drawn_ > 0) picture = fmt::format("\x1b[{}A\r", num_rows_drawn_);
    picture += "\x1b[J";  // clears from here to the end of the screen
    for (const std::string& row : rows) picture += row + '\n';
    num_rows_drawn_ = rows.size();
    Write(picture);
  }

  size_t num_rows_drawn_ = 0;
};

// JSON has no word for a missing number or an infinity. A logprob sum is infinite if the row as it
// arrived forbids a token.
std::string JsonNumber(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

// Triples of id, value and score rank for each token of the event, or nothing.
std::string FormatJsonScores(const TextEvent& event) {
  if (event.scores.empty()) return "";
  const size_t per_token = event.scores.size() / (event.tokens - event.token_offset);
  std::string tokens;
  for (size_t i = 0; i < event.scores.size(); ++i) {
    const TokenScore& score = event.scores[i];
    if (i % per_token == 0) tokens += i == 0 ? "[" : "], [";
    tokens += fmt::format("{}[{}, {}, {}]", i % per_token == 0 ? "" : ", ", score.id,
                          JsonNumber(score.value), score.rank);
  }
  return fmt::format(", \"scores\": [{}]]", tokens);
}

}  // namespace

const char* FinishName(uint32_t finish_reason) {
  switch (static_cast<FinishReason>(finish_reason)) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

std::string FormatJsonEvent(const TextEvent& event) {
  const char* kinds[] = {"open", "text", "end"};
  std::string line =
      fmt::format("{{\"kind\": \"{}\", \"epoch\": {}, \"seq\": {}, \"stream\": {}, \"rid\": {}",
                  kinds[static_cast<size_t>(event.kind)], event.epoch, event.seq, event.stream,
                  QuoteJson(event.request_id));
  if (event.kind == TextEventKind::kOpen) return line + "}";
  std::string spans;
  for (const WireSpan& span : event.spans) {
    spans += fmt::format("{}[{}, {}]", spans.empty() ? "" : ", ", span.size_bytes, span.accepted);
  }
  line += fmt::format(
      ", \"token_offset\": {}, \"tokens\": {}, \"byte_offset\": {}, \"text\": {}, \"spans\": [{}]",
      event.token_offset, event.tokens, event.byte_offset, QuoteJson(event.text), spans);
  line += FormatJsonScores(event);
  if (event.kind == TextEventKind::kText) return line + "}";
  std::string stop = "null";
  if (!event.stop_string.empty()) {
    stop = QuoteJson(event.stop_string);
  } else if (event.stop_token != kNoToken) {
    stop = fmt::format("{}", event.stop_token);
  }
  return line + fmt::format(
                    ", \"finish\": \"{}\", \"stop\": {}, \"rounds\": {}, "
                    "\"accepted\": {}, \"late\": {}, \"cumulative_logprob\": {}}}",
                    FinishName(event.finish_reason), stop, event.rounds, event.accepted, event.late,
                    JsonNumber(event.cumulative_logprob));
}

std::unique_ptr<Display> Display::Make(const DisplayOptions& options) {
  if (options.mode == DisplayMode::kRaw) return std::make_unique<RawDisplay>();
  if (options.mode == DisplayMode::kJson) return std::make_unique<JsonDisplay>();
  DisplayOptions fitted = options;
  if (options.mode == DisplayMode::kLive) fitted.width = TerminalSize().ws_col;
  fitted.num_columns = std::min(options.num_columns, ColumnBlock::MaxColumns(fitted.width));
  if (options.mode == DisplayMode::kLive) return std::make_unique<LiveDisplay>(fitted);
  return std::make_unique<ColumnsDisplay>(fitted, Marking::kBrackets);
}

}  // namespace specd::toy
