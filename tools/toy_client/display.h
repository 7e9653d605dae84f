// Display shows text for the toy client: events go in one at a time, and characters go to stdout.
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
  int width = 100;  // cells of a row; kLive uses the terminal's width instead
};

class Display {
 public:
  static std::unique_ptr<Display> Make(const DisplayOptions& options);

  virtual ~Display() = default;

  virtual void Show(const TextEvent& event) = 0;

  // Called when there is no event to read for now: shows the gathered text.
  virtual void Refresh() {}

  // Shows the text that is still held back. No further call shows text.
  virtual void Finish() {}
};

// One line, without the newline.
std::string FormatJsonEvent(const TextEvent& event);

// The name of a FinishReason on the wire: stop, length, abort, error or none.
const char* FinishName(uint32_t finish_reason);

}  // namespace specd::toy
