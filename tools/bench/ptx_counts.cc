#include "tools/bench/ptx_counts.h"

#include <fmt/format.h>

#include <utility>

#include "absl/strings/str_split.h"
#include "simdjson.h"

namespace specd::bench {
namespace {

using simdjson::dom::element;

// The members of both by their names in a file, in its order.
template <class Counts, class Visit>
void VisitLaunch(Counts& launch, const Visit& visit) {
  visit("kernel", launch.kernel);
  visit("blocks", launch.num_blocks);
  visit("threads", launch.threads_per_block);
  visit("idle_lanes", launch.num_idle_lanes);
  visit("asked_bytes", launch.asked_bytes);
  visit("asked_sectors", launch.asked_sectors);
  visit("needed_sectors", launch.needed_sectors);
  visit("asked_row_sectors", launch.asked_row_sectors);
  visit("repeated_row_sectors", launch.repeated_row_sectors);
  visit("shared_turns", launch.num_shared_turns);
  visit("bank_conflicts", launch.num_bank_conflicts);
  visit("chain_cycles", launch.chain_cycles);
  visit("chain_instructions", launch.chain_instructions);
  visit("chain_functions", launch.chain_functions);
  visit("classes", launch.num_by_class);
}

template <class Counts, class Visit>
void VisitRound(Counts& counts, const Visit& visit) {
  visit("case", counts.case_name);
  visit("dtype", counts.dtype);
  visit("arch", counts.arch);
  visit("processors", counts.num_processors);
  visit("batch", counts.batch);
  visit("draft", counts.draft);
  visit("vocab", counts.vocab_size);
  visit("elements", counts.num_elements);
  visit("round", counts.round);
  visit("read", counts.read);
}

std::string TextOf(int64_t number) { return fmt::format("{}", number); }
std::string TextOf(const std::string& name) { return fmt::format("\"{}\"", name); }
std::string TextOf(const std::map<std::string, int64_t>& numbers) {
  std::string text;
  for (const auto& [name, number] : numbers) {
    text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, number);
  }
  return "{" + text + "}";
}
std::string TextOf(const std::vector<LaunchCounts>& launches) {
  std::vector<std::string> texts;
  for (const LaunchCounts& launch : launches) {
    std::vector<std::string> members;
    VisitLaunch(launch, [&](const char* name, const auto& member) {
      members.push_back(fmt::format("\"{}\": {}", name, TextOf(member)));
    });
    texts.push_back(fmt::format("{{{}}}", fmt::join(members, ", ")));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

// False: the member is of another type; `missing` is the first such of an object below.
bool Take(const element& from, std::string* out, std::string*) {
  std::string_view value;
  if (from.get(value) != simdjson::SUCCESS) return false;
  *out = value;
  return true;
}
template <class Number>
bool Take(const element& from, Number* out, std::string*) {
  int64_t value = 0;
  if (from.get(value) != simdjson::SUCCESS) return false;
  *out = static_cast<Number>(value);
  return true;
}
bool Take(const element& from, std::map<std::string, int64_t>* out, std::string* missing) {
  simdjson::dom::object numbers;
  if (from.get(numbers) != simdjson::SUCCESS) return false;
  for (const auto& field : numbers) {
    if (!Take(field.value, &(*out)[std::string(field.key)], missing)) return false;
  }
  return true;
}
bool Take(const element& from, std::vector<LaunchCounts>* out, std::string* missing);

// Takes each member that it visits.
auto TakeFrom(const element& from, std::string* missing) {
  return [from, missing](const char* name, auto& member) {
    element value;
    const bool is_there = from[name].get(value) == simdjson::SUCCESS;
    if ((!is_there || !Take(value, &member, missing)) && missing->empty()) *missing = name;
  };
}

bool Take(const element& from, std::vector<LaunchCounts>* out, std::string* missing) {
  simdjson::dom::array launches;
  if (from.get(launches) != simdjson::SUCCESS) return false;
  for (const element launch : launches) {
    VisitLaunch(out->emplace_back(), TakeFrom(launch, missing));
  }
  return true;
}

}  // namespace

int64_t LaunchCounts::num_instructions() const {
  int64_t sum = 0;
  for (const auto& [name, count] : num_by_class) sum += count;
  return sum;
}

int64_t RoundCounts::num_instructions() const {
  int64_t sum = 0;
  for (const LaunchCounts& launch : round) sum += launch.num_instructions();
  return sum;
}

std::string ToJson(const RoundCounts& counts) {
  std::vector<std::string> members;
  VisitRound(counts, [&](const char* name, const auto& member) {
    members.push_back(fmt::format("\"{}\": {}", name, TextOf(member)));
  });
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

absl::StatusOr<std::vector<RoundCounts>> ParseCounts(std::string_view text) {
  std::vector<RoundCounts> all;
  simdjson::dom::parser parser;
  int64_t line_number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++line_number;
    if (line.empty()) continue;
    const auto refused = [line_number](const std::string& what) {
      return absl::InvalidArgumentError(
          fmt::format("line {}{}: count the rounds again", line_number, what));
    };
    element document;
    if (parser.parse(line.data(), line.size()).get(document) != simdjson::SUCCESS) {
      return refused(" is no JSON");
    }
    RoundCounts& counts = all.emplace_back();
    std::string missing;
    VisitRound(counts, TakeFrom(document, &missing));
    if (!missing.empty()) {
      return refused(fmt::format(": {} is missing or of another type", missing));
    }
    if (counts.num_elements <= 0 || counts.round.empty() || counts.read.empty()) {
      return refused(": a round needs elements, and launches for itself and its read");
    }
  }
  return all;
}

}  // namespace specd::bench
