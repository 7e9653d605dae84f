// Paint colours text for a terminal, SafeText makes it harmless, and Progress shows what a program
// is at.
//
// One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace specd {

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
std::string SafeText(std::string_view text);

// Prints "PROGRAM: message" on stderr, after what was printed on stdout before; returns the status.
int FailAs(std::string_view program, int status, std::string_view message);

// One line on stderr, which each text replaces; nothing if stderr is no terminal.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // Shows nothing before `patience` is over, and then at most one text in each tenth of it.
  explicit Progress(Clock::duration patience = {});
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(std::string_view text);
  // A bar.
  void ShowBytes(uint64_t done_bytes, uint64_t all_bytes);
  void Clear();

 private:
  bool IsDue() const;

  const bool is_terminal_;
  const Clock::duration patience_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_at_;
  bool is_shown_ = false;
};

}  // namespace specd
