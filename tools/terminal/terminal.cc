#include "tools/terminal/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace specd {
namespace {

constexpr size_t kBarCells = 30;

// The bytes of the character of UTF-8 that begins the text; 0: none, or a control character of C1.
size_t CharacterBytes(std::string_view text) {
  const auto at = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t size = at(0) < 0x80   ? 1
                      : at(0) < 0xc2 ? 0
                      : at(0) < 0xe0 ? 2
                      : at(0) < 0xf0 ? 3
                      : at(0) < 0xf5 ? 4
                                     : 0;
  if (size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const bool is_overlong = (at(0) == 0xe0 && at(1) < 0xa0) || (at(0) == 0xf0 && at(1) < 0x90);
  const bool is_c1 = at(0) == 0xc2 && at(1) < 0xa0;
  return is_overlong || is_c1 ? 0 : size;
}

const char* CodeOf(Colour colour) {
  switch (colour) {
    case Colour::kNone:
      break;
    case Colour::kGreen:
      return "\x1b[32m";
    case Colour::kRed:
      return "\x1b[31m";
    case Colour::kYellow:
      return "\x1b[33m";
    case Colour::kDim:
      return "\x1b[2m";
    case Colour::kBold:
      return "\x1b[1m";
  }
  return "";
}

}  // namespace

bool IsColourful(int fd) {
  const char* const no_color = std::getenv("NO_COLOR");  // https://no-color.org
  const char* const terminal = std::getenv("TERM");
  return isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

std::string SafeText(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t size = first < 0x20 || first == 0x7f ? 0 : CharacterBytes(text);
    if (size == 0) {
      safe += fmt::format("\\x{:02x}", first);
    } else {
      safe += text.substr(0, size);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return safe;
}

int FailAs(std::string_view program, int status, std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", program, SafeText(message));
  return status;
}

std::string Paint::operator()(Colour colour, std::string_view text) const {
  if (!is_on_ || colour == Colour::kNone) return std::string(text);
  return fmt::format("{}{}\x1b[0m", CodeOf(colour), text);
}

Progress::Progress(Clock::duration patience)
    : is_terminal_(isatty(STDERR_FILENO) == 1), patience_(patience) {}

bool Progress::IsDue() const {
  const Clock::time_point now = Clock::now();
  return is_terminal_ && now - start_ >= patience_ && now - shown_at_ >= patience_ / 10;
}

void Progress::Show(std::string_view text) {
  if (!IsDue()) return;
  shown_at_ = Clock::now();
  is_shown_ = true;
  fmt::print(stderr, "\r\x1b[K{}", text);
}

void Progress::ShowBytes(uint64_t done_bytes, uint64_t all_bytes) {
  if (all_bytes == 0 || !IsDue()) return;
  const double share = std::min(1.0, static_cast<double>(done_bytes) / double(all_bytes));
  const size_t full = share * kBarCells;
  Show(fmt::format("[{}{}] {:3.0f} % of {:.1f} MiB", std::string(full, '#'),
                   std::string(kBarCells - full, ' '), 100 * share,
                   static_cast<double>(all_bytes) / 1048576));
}

void Progress::Clear() {
  if (is_shown_) fmt::print(stderr, "\r\x1b[K");
  is_shown_ = false;
}

}  // namespace specd
