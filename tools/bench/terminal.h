// Progress shows specd-bench's present measurement on a terminal, LoadWarning warns of a machine
// that is not quiet, and IsColourful says whether colours may be printed.
//
// One thread.
#pragma once

#include <string_view>

#include "tools/bench/measurement.h"

namespace specd::bench {

// False for a file, for a terminal without colours, and where NO_COLOR is set.
bool IsColourful(int fd);

// One line on stderr, which each text replaces; nothing if stderr is no terminal.
class Progress {
 public:
  Progress();
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(std::string_view text) const;
  void Clear() const { Show(""); }

 private:
  const bool shown_;
};

// Warns once: the column of loads has the rest.
class LoadWarning {
 public:
  void Take(const Measurement& measurement);

 private:
  bool given_ = false;
};

}  // namespace specd::bench
