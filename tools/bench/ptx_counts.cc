#include "tools/bench/ptx_counts.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "absl/strings/str_split.h"
#include "simdjson.h"

namespace specd::bench {
namespace {

using simdjson::dom::element;

std::string ToJson(const std::map<std::string, int64_t>& numbers) {
  std::string text;
  for (const auto& [name, number] : numbers) {
    text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, number);
  }
  return text;
}

// The members that are numbers, by their names in a file.
constexpr std::pair<const char*, int64_t LaunchCounts::*> kNumbers[] = {
    {"blocks", &LaunchCounts::num_blocks},
    {"threads", &LaunchCounts::threads_per_block},
    {"idle_lanes", &LaunchCounts::num_idle_lanes},
    {"asked_bytes", &LaunchCounts::asked_bytes},
    {"asked_sectors", &LaunchCounts::asked_sectors},
    {"needed_sectors", &LaunchCounts::needed_sectors},
    {"asked_row_sectors", &LaunchCounts::asked_row_sectors},
    {"repeated_row_sectors", &LaunchCounts::repeated_row_sectors},
    {"shared_turns", &LaunchCounts::num_shared_turns},
    {"bank_conflicts", &LaunchCounts::num_bank_conflicts},
    {"chain_cycles", &LaunchCounts::chain_cycles},
    {"chain_instructions", &LaunchCounts::chain_instructions}};

std::string ToJson(const LaunchCounts& launch) {
  std::string text = fmt::format("{{\"kernel\": \"{}\"", launch.kernel);
  for (const auto& [name, member] : kNumbers) {
    text += fmt::format(", \"{}\": {}", name, launch.*member);
  }
  return text + fmt::format(", \"chain_functions\": {{{}}}, \"classes\": {{{}}}}}",
                            ToJson(launch.chain_functions), ToJson(launch.num_by_class));
}

std::string ToJson(const std::vector<LaunchCounts>& launches) {
  std::string text;
  for (const LaunchCounts& launch : launches) {
    text += (text.empty() ? "" : ", ") + ToJson(launch);
  }
  return text;
}

// Reads members of objects, and remembers the first that is missing or of another type.
class Reader {
 public:
  const std::string& missing() const { return missing_; }

  template <typename Number>
  void Take(const element& from, const char* name, Number* out) {
    int64_t value = 0;
    if (from[name].get(value) != simdjson::SUCCESS) return Miss(name);
    *out = static_cast<Number>(value);
  }
  void Take(const element& from, const char* name, std::string* out) {
    std::string_view value;
    if (from[name].get(value) != simdjson::SUCCESS) return Miss(name);
    *out = value;
  }
  void Take(const element& from, const char* name, std::vector<LaunchCounts>* out) {
    simdjson::dom::array launches;
    if (from[name].get(launches) != simdjson::SUCCESS) return Miss(name);
    for (const element launch : launches) out->push_back(TakeLaunch(launch));
  }
  void Take(const element& from, const char* name, std::map<std::string, int64_t>* out) {
    simdjson::dom::object numbers;
    if (from[name].get(numbers) != simdjson::SUCCESS) return Miss(name);
    for (const auto& field : numbers) {
      int64_t number = 0;
      if (field.value.get(number) != simdjson::SUCCESS) return Miss(name);
      (*out)[std::string(field.key)] = number;
    }
  }

 private:
  LaunchCounts TakeLaunch(const element& from) {
    LaunchCounts launch;
    Take(from, "kernel", &launch.kernel);
    for (const auto& [name, member] : kNumbers) Take(from, name, &(launch.*member));
    Take(from, "chain_functions", &launch.chain_functions);
    Take(from, "classes", &launch.num_by_class);
    return launch;
  }
  void Miss(const char* name) {
    if (missing_.empty()) missing_ = name;
  }

  std::string missing_;
};

}  // namespace

int64_t LaunchCounts::num_instructions() const {
  int64_t sum = 0;
  for (const auto& [name, count] : num_by_class) sum += count;
  return sum;
}

int64_t RoundCounts::num_instructions() const {
  return std::accumulate(
      round.begin(), round.end(), int64_t{0},
      [](int64_t sum, const LaunchCounts& launch) { return sum + launch.num_instructions(); });
}

std::string ToJson(const RoundCounts& counts) {
  return fmt::format(
      "{{\"case\": \"{}\", \"dtype\": \"{}\", \"arch\": {}, \"processors\": {}, \"batch\": {}, "
      "\"draft\": {}, \"vocab\": {}, \"elements\": {}, \"round\": [{}], \"read\": [{}]}}",
      counts.case_name, counts.dtype, counts.arch, counts.num_processors, counts.batch,
      counts.draft, counts.vocab_size, counts.num_elements, ToJson(counts.round),
      ToJson(counts.read));
}

absl::StatusOr<std::vector<RoundCounts>> ParseCounts(std::string_view text) {
  std::vector<RoundCounts> all;
  simdjson::dom::parser parser;
  int64_t line_number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++line_number;
    if (line.empty()) continue;
    element document;
    if (parser.parse(line.data(), line.size()).get(document) != simdjson::SUCCESS) {
      return absl::InvalidArgumentError(
          fmt::format("line {} is no JSON: count the rounds again", line_number));
    }
    RoundCounts& counts = all.emplace_back();
    Reader reader;
    reader.Take(document, "case", &counts.case_name);
    reader.Take(document, "dtype", &counts.dtype);
    reader.Take(document, "arch", &counts.arch);
    reader.Take(document, "processors", &counts.num_processors);
    reader.Take(document, "batch", &counts.batch);
    reader.Take(document, "draft", &counts.draft);
    reader.Take(document, "vocab", &counts.vocab_size);
    reader.Take(document, "elements", &counts.num_elements);
    reader.Take(document, "round", &counts.round);
    reader.Take(document, "read", &counts.read);
    if (!reader.missing().empty()) {
      return absl::InvalidArgumentError(
          fmt::format("line {}: {} is missing or of another type: count the rounds again",
                      line_number, reader.missing()));
    }
    if (counts.num_elements <= 0 || counts.round.empty() || counts.read.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("line {}: a round needs elements, and launches for itself and its read: "
                      "count the rounds again",
                      line_number));
    }
  }
  return all;
}

}  // namespace specd::bench
