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
  enum class Kind { kSwitch, kText, kWhole, kReal };

  std::string_view name;
  Kind kind = Kind::kText;
  std::string_view help;
  std::string usual = "";  // its text if it is not given
  std::string quick = "";  // the same with --quick, where that is another
  double minimum = 0;      // of each number
  double maximum = 0;
  bool is_list = false;  // separated by commas
  std::vector<std::string_view> choices = {};

  // A list of numbers in a range.
  struct Range {
    double minimum;
    double maximum;
  };
  static Flag Wholes(std::string_view name, std::string_view help, Range range, std::string usual,
                     std::string quick = "") {
    return {name, Kind::kWhole, help, usual, quick, range.minimum, range.maximum, true};
  }
  static Flag Reals(std::string_view name, std::string_view help, Range range, std::string usual,
                    std::string quick = "") {
    return {name, Kind::kReal, help, usual, quick, range.minimum, range.maximum, true};
  }
  // One number.
  static Flag Whole(std::string_view name, std::string_view help, Range range, std::string usual,
                    std::string quick = "") {
    return {name, Kind::kWhole, help, usual, quick, range.minimum, range.maximum};
  }
};

class Flags {
 public:
  // INVALID_ARGUMENT names the flag, the value, what is allowed and what to do.
  static absl::StatusOr<Flags> Read(std::string_view suite, const std::vector<Flag>& table,
                                    std::span<const std::string> arguments);

  // REQUIRES, of all: the table has the flag, with that kind.
  bool IsOn(std::string_view name) const { return Text(name) == "true"; }
  const std::string& Text(std::string_view name) const;
  std::vector<std::string> List(std::string_view name) const;  // no entry: all
  std::vector<int32_t> Numbers(std::string_view name) const;
  int32_t Number(std::string_view name) const { return Numbers(name).front(); }
  std::vector<double> Reals(std::string_view name) const;
  double Real(std::string_view name) const { return Reals(name).front(); }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// One line for each flag, with its default and its range.
std::string HelpOf(const std::vector<Flag>& table);

}  // namespace specd::bench
