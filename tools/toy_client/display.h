// The ways in which the toy client shows text: one event at a time in, characters on stdout out.
//
// A Display belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ipc/events/token_event.h"

namespace specd::toy {

enum class DisplayMode {
  kColumns,  // side by side, row by row, accepted draft tokens [like this]
  kLive,     // side by side, drawn again in place, accepted draft tokens in colour
  kRaw,      // the text of one stream and nothing else
  kJson,     // one line of JSON per event
};

struct DisplayOptions {
  DisplayMode mode = DisplayMode::kColumns;
  size_t num_columns = 4;
  int width = 100;  // cells of a row; for kLive that of the terminal is taken instead
};

class Display {
 public:
  static std::unique_ptr<Display> Make(const DisplayOptions& options);

  virtual ~Display() = default;

  virtual void Show(const TextEvent& event) = 0;

  // Called when there is nothing more to read for now: shows on screen what has been gathered.
  virtual void Refresh() {}

  // Shows what is still held back. Nothing is shown after it.
  virtual void Finish() {}
};

// One line, without the newline.
std::string FormatJsonEvent(const TextEvent& event);

// stop, length, abort, error or none, for a FinishReason as it is on the wire.
const char* FinishName(uint32_t finish_reason);

}  // namespace specd::toy
