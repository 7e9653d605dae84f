// Say writes a line of specd-http to stderr.
//
// A server outlives the reader of its lines: that they cannot be written is no error here. Safe
// from any thread.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "ipc/base/valid_text.h"

namespace specd::http {

inline void Say(std::string_view message) {
  const std::string line = "specd-http: " + ValidText(message) + "\n";
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace specd::http
