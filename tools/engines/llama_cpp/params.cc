#include "tools/engines/llama_cpp/params.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace specd::llama_cpp {
namespace {

struct Remedy {
  std::string_view name;
  std::string_view text;
};

// llama.cpp's names, with underscores for dashes. A name that ends with _ stands for all that begin
// with it.
constexpr Remedy kLlamaNames[] = {
    {"temp", "set temperature"},
    {"repeat_penalty", "set repetition_penalty, which counts prompt and output"},
    {"repeat_last_n", "penalties count the whole text; leave it out"},
    {"penalty_last_n", "penalties count the whole text; leave it out"},
    {"typical", "specd has no typical sampling; set min_p or top_p"},
    {"typical_p", "specd has no typical sampling; set min_p or top_p"},
    {"typ_p", "specd has no typical sampling; set min_p or top_p"},
    {"top_nsigma", "specd has no such filter; set min_p"},
    {"top_n_sigma", "specd has no such filter; set min_p"},
    {"xtc_", "specd has no such filter; leave it out"},
    {"dry_", "set no_repeat_ngram_size, or penalties"},
    {"mirostat", "specd has no adaptive sampling; set temperature and top_p"},
    {"mirostat_", "specd has no adaptive sampling; set temperature and top_p"},
    {"adaptive_", "specd has no adaptive sampling; set temperature and top_p"},
    {"dynatemp_", "a sequence has one temperature; set temperature"},
    {"samplers", "the order of steps is fixed (docs/PARAMETERS.md); set filter_order"},
    {"sampler_seq", "the order of steps is fixed (docs/PARAMETERS.md); set filter_order"},
    {"sampling_seq", "the order of steps is fixed (docs/PARAMETERS.md); set filter_order"},
    {"min_keep", "every filter keeps the best id; leave it out"},
    {"n_predict", "set the flag --max_tokens"},
    {"n_probs", "this engine prints no scores; leave it out"},
};

// Parameters of specd that this engine sets itself or has no use for.
constexpr Remedy kEngineNames[] = {
    {"max_tokens", "set the flag --max_tokens"},
    {"seed", "set the flag --seed"},
    {"stop", "set the flag --stop"},
    {"n", "give the prompt several times; each has a seed of its own"},
    {"logprobs", "this engine prints no scores; leave it out"},
    {"logprobs_mode", "this engine prints no scores; leave it out"},
};

constexpr const char* kDraftSteps[][2] = {{"temperature", "draft_temperature"},
                                          {"top_p", "draft_top_p"},
                                          {"top_k", "draft_top_k"},
                                          {"min_p", "draft_min_p"},
                                          {"filter_order", "draft_filter_order"}};

constexpr double kGreedyBelow = 1e-5;  // as docs/PARAMETERS.md says

template <size_t N>
std::optional<std::string_view> FindRemedy(const Remedy (&remedies)[N], std::string_view name) {
  for (const Remedy& remedy : remedies) {
    const bool is_prefix = remedy.name.ends_with('_');
    if (is_prefix ? name.starts_with(remedy.name) : name == remedy.name) return remedy.text;
  }
  return std::nullopt;
}

absl::Status Refuse(std::string_view name, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("params: {}: {}", name, why));
}

std::optional<specd_param_info> FindParam(std::string_view name) {
  specd_param_info info = {};
  info.struct_size = sizeof(info);
  for (uint32_t i = 0; specd_get_param_info(i, &info) == SPECD_OK; ++i) {
    if (name == info.name) return info;
  }
  return std::nullopt;
}

std::optional<double> ReadValue(const specd_param_info& info, const std::string& text) {
  if (info.type == SPECD_PARAM_CHOICE) {
    for (uint64_t i = 0; i < info.choices.count; ++i) {
      if (text == info.choices.items[i]) return static_cast<double>(i);
    }
    return std::nullopt;
  }
  if (info.type == SPECD_PARAM_FLAG && (text == "true" || text == "false")) return text == "true";
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return std::nullopt;
  return value;
}

absl::StatusOr<specd_number> ReadParam(std::string_view name, const std::string& text) {
  for (const auto& remedy : {FindRemedy(kEngineNames, name), FindRemedy(kLlamaNames, name)}) {
    if (remedy.has_value()) return Refuse(name, *remedy);
  }
  const std::string name_text(name);
  if (const char* why = specd_refused_param(name_text.c_str(), text.c_str()); why != nullptr) {
    return Refuse(name, why);
  }
  const std::optional<specd_param_info> info = FindParam(name);
  if (!info.has_value()) {
    return Refuse(name, "no such parameter of one number; docs/PARAMETERS.md lists them");
  }
  const std::optional<double> value = ReadValue(*info, text);
  if (!value.has_value()) {
    return Refuse(name, fmt::format("\"{}\" is outside its range: {}", text, info->range));
  }
  return specd_number{info->name, *value};
}

const specd_number* Find(const Numbers& numbers, std::string_view name) {
  for (const specd_number& number : numbers) {
    if (name == number.name) return &number;
  }
  return nullptr;
}

bool IsGreedy(const Numbers& numbers) {
  const specd_number* temperature = Find(numbers, "temperature");
  return temperature != nullptr && temperature->value < kGreedyBelow;
}

uint32_t MethodOf(const Numbers& numbers) {
  const specd_number* verify = Find(numbers, "verify");
  return verify == nullptr ? uint32_t{SPECD_VERIFY_AUTO} : static_cast<uint32_t>(verify->value);
}

}  // namespace

absl::StatusOr<Numbers> ReadParams(std::string_view text) {
  Numbers numbers;
  if (text.empty()) return numbers;
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ',');
  for (const std::string& part : parts) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return Refuse(part, "give name=value");
    const std::string name = part.substr(0, equals);
    const absl::StatusOr<specd_number> number = ReadParam(name, part.substr(equals + 1));
    if (!number.ok()) return number.status();
    if (Find(numbers, name) != nullptr) return Refuse(name, "it is named twice; name it once");
    numbers.push_back(*number);
  }
  return numbers;
}

absl::Status CheckTakesTrees(const Numbers& numbers) {
  const uint32_t method = MethodOf(numbers);
  if (method != SPECD_VERIFY_TOKEN && method != SPECD_VERIFY_BLOCK) return absl::OkStatus();
  return Refuse("verify", "token and block are for chains; leave --tree out, or take auto");
}

Drafts ChooseDrafts(Drafts asked, bool has_draft_model, const Numbers& numbers) {
  if (asked != Drafts::kAuto) return asked;
  if (!has_draft_model) return Drafts::kNgram;
  const uint32_t method = MethodOf(numbers);
  const bool is_exact = method == SPECD_VERIFY_GREEDY || method == SPECD_VERIFY_EXACT_MATCH;
  return is_exact || IsGreedy(numbers) ? Drafts::kBest : Drafts::kSampled;
}

void AddDraftSteps(Numbers* numbers) {
  if (IsGreedy(*numbers)) return;
  for (const specd_number& number : *numbers) {
    if (std::string_view(number.name).starts_with("draft_")) return;
  }
  for (const auto& [own, draft] : kDraftSteps) {
    const specd_number* number = Find(*numbers, own);
    if (number != nullptr) numbers->push_back({draft, number->value});
  }
}

}  // namespace specd::llama_cpp
