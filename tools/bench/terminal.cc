#include "tools/bench/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace specd::bench {

bool IsColourful(int fd) {
  const char* no_color = std::getenv("NO_COLOR");  // https://no-color.org
  const char* terminal = std::getenv("TERM");
  return isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

Progress::Progress() : shown_(isatty(STDERR_FILENO) == 1) {}

void Progress::Show(std::string_view text) const {
  if (shown_) fmt::print(stderr, "\r\x1b[K{}", text);
}

void LoadWarning::Take(const Measurement& m) {
  if (!IsDisturbed(m.load) || given_) return;
  given_ = true;
  fmt::print(stderr,
             "specd-bench: warning: the machine is not quiet: while {} {} was measured, other "
             "processes took {:.0f} % of its CPUs and the hypervisor {:.0f} %\n",
             m.case_name, DTypeName(m.dtype), 100 * m.load.others, 100 * m.load.stolen);
}

}  // namespace specd::bench
