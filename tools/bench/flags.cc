#include "tools/bench/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/core/check.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

using Kind = Flag::Kind;

std::vector<std::string> Split(const std::string& text) {
  return absl::StrSplit(text, ',', absl::SkipEmpty());
}

template <class... Args>
absl::Status Refused(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

bool IsRight(const Flag& flag, const std::string& item) {
  double number = 0;
  return absl::SimpleAtod(item, &number) && number >= flag.minimum && number <= flag.maximum &&
         (flag.kind == Kind::kReal || number == std::floor(number));
}

absl::Status CheckValue(std::string_view suite, const Flag& flag, const std::string& text) {
  if (flag.kind == Kind::kText) {
    for (const auto& item : flag.is_list ? Split(text) : std::vector<std::string>{text}) {
      if (flag.choices.empty() || std::ranges::count(flag.choices, item) > 0) continue;
      if (flag.name != "case") {
        return Refused("{} = {} is none of {}", flag.name, item, fmt::join(flag.choices, ", "));
      }
      return Refused("case = {} is unknown: specd-bench {} --list names them", item, suite);
    }
    return absl::OkStatus();
  }
  const std::vector<std::string> items = absl::StrSplit(text, ',');
  const auto is_right = [&flag](const std::string& item) { return IsRight(flag, item); };
  if ((flag.is_list || items.size() == 1) && std::ranges::all_of(items, is_right)) {
    return absl::OkStatus();
  }
  return Refused("{0} = {1} is not {2} in {3:.0f} .. {4:.0f}, such as {0}={5}", flag.name, text,
                 flag.kind == Kind::kReal ? "a number"
                 : flag.is_list           ? "a list of whole numbers"
                                          : "one whole number",
                 flag.minimum, flag.maximum, flag.usual);
}

}  // namespace

absl::StatusOr<Flags> Flags::Read(std::string_view suite, const std::vector<Flag>& table,
                                  std::span<const std::string> arguments, bool is_quick) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t dashes =
        std::min({arguments[i].find_first_not_of('-'), arguments[i].size(), size_t{2}});
    const std::string given = arguments[i].substr(dashes);
    const size_t equal = std::min(given.find('='), given.size());
    const auto flag = std::ranges::find(table, given.substr(0, equal), &Flag::name);
    if (flag == table.end() || dashes == 0) {
      std::vector<std::string_view> names;
      for (const Flag& known : table) names.push_back(known.name);
      return Refused("{} is no flag of {}, which takes {}", given.substr(0, equal), suite,
                     fmt::join(names, ", "));
    }
    if (equal == given.size() && ++i == arguments.size()) {
      return Refused("{0} has no value; give --{0}=VALUE", flag->name);
    }
    const std::string value = equal < given.size() ? given.substr(equal + 1) : arguments[i];
    SPECD_TRY(CheckValue(suite, *flag, value));
    flags.values_.insert_or_assign(std::string(flag->name), value);
  }
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
  std::vector<int32_t> numbers;
  for (const std::string& item : List(name)) {
    // What CheckValue lets pass may be written as 1e3.
    double number = 0;
    SPECD_CHECK(absl::SimpleAtod(item, &number));
    numbers.push_back(static_cast<int32_t>(number));
  }
  return numbers;
}

double Flags::Real(std::string_view name) const {
  double number = 0;
  SPECD_CHECK(absl::SimpleAtod(Text(name), &number));
  return number;
}

std::string HelpOf(const std::vector<Flag>& table) {
  std::string text;
  for (const Flag& flag : table) {
    text += fmt::format("  --{:<11} {}", flag.name, flag.help);
    if (flag.kind == Kind::kWhole || flag.kind == Kind::kReal) {
      text += fmt::format("; {:.0f} .. {:.0f}", flag.minimum, flag.maximum);
    }
    if (!flag.usual.empty()) text += fmt::format("; default {}", flag.usual);
    if (!flag.quick.empty()) text += fmt::format(", with --quick {}", flag.quick);
    text += "\n";
  }
  return text;
}

}  // namespace specd::bench
