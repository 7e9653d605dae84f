// ReasonCounts counts why tasks were left out, for verify and rerun.
//
// Messages that differ in numbers only (a row, an offset in a file) are one reason, so a damaged
// file has a few reasons and not one for each task. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace specd::replay {

class ReasonCounts {
 public:
  struct Reason {
    uint64_t count = 0;
    std::string first;  // the message that came first
  };

  void Add(std::string_view message, uint64_t count = 1);
  bool empty() const { return reasons_.empty(); }
  // In the order of their texts.
  std::map<std::string, Reason>::const_iterator begin() const { return reasons_.begin(); }
  std::map<std::string, Reason>::const_iterator end() const { return reasons_.end(); }

 private:
  std::map<std::string, Reason> reasons_;  // by the message with each number as #
};

// The first message, marked as the first of several if it has numbers.
std::string TextOf(const std::pair<const std::string, ReasonCounts::Reason>& reason);

}  // namespace specd::replay
