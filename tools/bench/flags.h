// Flags are the flags of one suite of specd-bench: a table declares them, and Read checks a command
// line against it.
//
// Immutable once read; safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd::bench {

struct Flag {
  enum class Kind { kText, kWhole, kReal };

  std::string_view name;
  Kind kind = Kind::kText;
  std::string_view help;
  std::string usual = "";  // its text if it is not given
  std::string quick = "";  // the same with --quick, where that is another
  double minimum = 0;      // of each number
  double maximum = 0;
  bool is_list = false;  // separated by commas
  std::vector<std::string_view> choices = {};

  struct Range {
    double minimum;
    double maximum;
  };
  // A list of whole numbers, one whole number, and one number, in a range.
  static Flag Wholes(std::string_view name, std::string_view help, Range range, std::string usual,
                     std::string quick = "") {
    return {name, Kind::kWhole, help, usual, quick, range.minimum, range.maximum, true};
  }
  static Flag Whole(std::string_view name, std::string_view help, Range range, std::string usual,
                    std::string quick = "") {
    return {name, Kind::kWhole, help, usual, quick, range.minimum, range.maximum};
  }
  static Flag Real(std::string_view name, std::string_view help, Range range, std::string usual,
                   std::string quick = "") {
    return {name, Kind::kReal, help, usual, quick, range.minimum, range.maximum};
  }
  static Flag Seconds(std::string usual, std::string quick) {
    return Real("seconds", "time for each measurement; of grammar, for all", {0, 3600}, usual,
                quick);
  }
};

class Flags {
 public:
  // INVALID_ARGUMENT names the flag, the value, what is allowed and what to do.
  static absl::StatusOr<Flags> Read(std::string_view suite, const std::vector<Flag>& table,
                                    std::span<const std::string> arguments, bool is_quick = false);

  // REQUIRES, of all: the table has the flag, with that kind.
  const std::string& Text(std::string_view name) const;
  std::vector<std::string> List(std::string_view name) const;  // no entry: all
  std::vector<int32_t> Numbers(std::string_view name) const;
  int32_t Number(std::string_view name) const { return Numbers(name).front(); }
  double Real(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// One line for each flag, with its default and its range.
std::string HelpOf(const std::vector<Flag>& table);

}  // namespace specd::bench
