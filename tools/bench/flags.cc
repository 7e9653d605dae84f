#include "tools/bench/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/core/check.h"

namespace specd::bench {
namespace {

std::vector<std::string> Split(const std::string& text) {
  return absl::StrSplit(text, ',', absl::SkipEmpty());
}

absl::Status CheckChoices(std::string_view suite, const Flag& flag, const std::string& text) {
  for (const std::string& item : flag.is_list ? Split(text) : std::vector<std::string>{text}) {
    if (std::find(flag.choices.begin(), flag.choices.end(), item) != flag.choices.end()) continue;
    if (flag.name == "case") {
      return absl::InvalidArgumentError(
          fmt::format("case = {} is unknown: specd-bench {} --list names them", item, suite));
    }
    return absl::InvalidArgumentError(
        fmt::format("{} = {} is none of {}", flag.name, item, fmt::join(flag.choices, ", ")));
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const Flag& flag, const std::string& text) {
  const bool is_whole = flag.kind == Flag::Kind::kWhole;
  const std::vector<std::string> items = absl::StrSplit(text, ',');
  bool is_right = flag.is_list || items.size() == 1;
  for (const std::string& item : items) {
    double number = 0;
    is_right = is_right && absl::SimpleAtod(item, &number) && number >= flag.minimum &&
               number <= flag.maximum && (!is_whole || number == std::floor(number));
  }
  if (is_right) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} = {} is not {} in {:.0f} .. {:.0f}, such as {}={}", flag.name, text,
                  !is_whole      ? "a number"
                  : flag.is_list ? "a list of whole numbers"
                                 : "one whole number",
                  flag.minimum, flag.maximum, flag.name, flag.usual));
}

absl::Status CheckValue(std::string_view suite, const Flag& flag, const std::string& text) {
  if (flag.kind == Flag::Kind::kSwitch) {
    if (text == "true" || text == "false") return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format(
        "{} = {} is neither true nor false; give --{} alone", flag.name, text, flag.name));
  }
  if (flag.kind == Flag::Kind::kText) {
    return flag.choices.empty() ? absl::OkStatus() : CheckChoices(suite, flag, text);
  }
  return CheckNumbers(flag, text);
}

}  // namespace

absl::StatusOr<Flags> Flags::Read(std::string_view suite, std::vector<Flag> table,
                                  std::span<const std::string> arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t dashes =
        std::min({arguments[i].find_first_not_of('-'), arguments[i].size(), size_t{2}});
    const std::string given = arguments[i].substr(dashes);
    const size_t equal = std::min(given.find('='), given.size());
    const auto flag = std::find_if(table.begin(), table.end(), [&](const Flag& known) {
      return known.name == given.substr(0, equal);
    });
    if (flag == table.end() || dashes == 0) {
      std::vector<std::string_view> names;
      for (const Flag& known : table) names.push_back(known.name);
      return absl::InvalidArgumentError(fmt::format("{} is no flag of {}, which takes {}",
                                                    given.substr(0, equal), suite,
                                                    fmt::join(names, ", ")));
    }
    std::string value = "true";
    if (equal < given.size()) {
      value = given.substr(equal + 1);
    } else if (flag->kind != Flag::Kind::kSwitch) {
      if (++i == arguments.size()) {
        return absl::InvalidArgumentError(
            fmt::format("{} has no value; give --{}=VALUE", flag->name, flag->name));
      }
      value = arguments[i];
    }
    if (absl::Status status = CheckValue(suite, *flag, value); !status.ok()) return status;
    flags.values_.insert_or_assign(std::string(flag->name), value);
  }
  const bool is_quick = flags.values_.contains("quick") && flags.IsOn("quick");
  for (const Flag& flag : table) {
    flags.values_.try_emplace(std::string(flag.name),
                              is_quick && !flag.quick.empty() ? flag.quick : flag.usual);
  }
  return flags;
}

const std::string& Flags::Text(std::string_view name) const {
  const auto found = values_.find(name);
  SPECD_CHECK(found != values_.end());
  return found->second;
}

std::vector<std::string> Flags::List(std::string_view name) const { return Split(Text(name)); }

std::vector<int32_t> Flags::Numbers(std::string_view name) const {
  const std::vector<double> numbers = Reals(name);
  return {numbers.begin(), numbers.end()};
}

std::vector<double> Flags::Reals(std::string_view name) const {
  std::vector<double> numbers;
  for (const std::string& item : List(name)) {
    SPECD_CHECK(absl::SimpleAtod(item, &numbers.emplace_back()));
  }
  return numbers;
}

std::string HelpOf(const std::vector<Flag>& table) {
  std::string text;
  for (const Flag& flag : table) {
    text += fmt::format("  --{:<11} {}", flag.name, flag.help);
    if (flag.kind == Flag::Kind::kWhole || flag.kind == Flag::Kind::kReal) {
      text += fmt::format("; {:.0f} .. {:.0f}", flag.minimum, flag.maximum);
    }
    if (!flag.usual.empty()) text += fmt::format("; default {}", flag.usual);
    if (!flag.quick.empty()) text += fmt::format(", with --quick {}", flag.quick);
    text += "\n";
  }
  return text;
}

}  // namespace specd::bench
