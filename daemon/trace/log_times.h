// LogTimes gives the messages of a trace file their log times, for the writers of such files.
//
// The public readers sort messages by log time, and equal times by their place in the file. A log
// time is therefore never below the one before it: the order of time is the order of the file. The
// records keep their own times.
#pragma once

#include <algorithm>
#include <cstdint>

namespace specd {

class LogTimes {
 public:
  uint64_t Next(int64_t time_ns) {
    last_ns_ = std::max(last_ns_, time_ns);
    return static_cast<uint64_t>(last_ns_);
  }

 private:
  int64_t last_ns_ = 0;
};

}  // namespace specd
