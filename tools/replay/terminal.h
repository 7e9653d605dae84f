// Paint colours text for a terminal, Printable makes it harmless, and Progress shows how much of
// the trace is read.
//
// One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace specd::replay {

// False for a file, for a terminal without colours, and where NO_COLOR is set.
bool IsColourful(int fd);

enum class Colour { kNone, kGreen, kRed, kYellow, kDim, kBold };

// Colours text where it is shown. A default object leaves text as it is.
class Paint {
 public:
  explicit Paint(bool is_on = false) : is_on_(is_on) {}
  std::string operator()(Colour colour, std::string_view text) const;

 private:
  bool is_on_;
};

// The text of one line with control characters (C0, DEL and C1) and bytes that are no UTF-8 as
// \x.., so that names from a trace cannot steer the terminal.
std::string Printable(std::string_view text);

// A bar on stderr, after one second, if stderr is a terminal.
class Progress {
 public:
  Progress();
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(uint64_t done_bytes, uint64_t all_bytes);
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  const bool is_terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_at_;
  bool is_shown_ = false;
};

}  // namespace specd::replay
