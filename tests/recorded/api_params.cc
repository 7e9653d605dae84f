#include "tests/recorded/api_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace specd::recorded {
namespace {

constexpr std::string_view kMethods[] = {"auto", "greedy", "exact_match", "token", "block"};
constexpr std::string_view kOrders[] = {"sequential", "joint"};
constexpr std::string_view kModes[] = {"raw_logprobs", "processed_logprobs", "raw_logits",
                                       "processed_logits", "unfiltered_logprobs"};

// Reads with >>, which is exact for the shortest text of a number.
template <class Value>
Value Parse(std::string_view text) {
  std::istringstream stream{std::string(text)};
  Value value{};
  if (!(stream >> value) || !(stream >> std::ws).eof()) {
    throw std::runtime_error(fmt::format("\"{}\" is not a value of this parameter", text));
  }
  return value;
}

template <class Value>
std::vector<Value> ParseList(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<Value> values;
  for (Value value; stream >> value;) values.push_back(value);
  if (!stream.eof()) throw std::runtime_error(fmt::format("\"{}\" is no list", text));
  return values;
}

std::vector<std::string> Split(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// A number that no word stands for is taken as it is, so that refusals can be recorded.
template <size_t kSize>
uint32_t Choice(const std::string_view (&words)[kSize], std::string_view text) {
  const auto* word = std::find(std::begin(words), std::end(words), text);
  return word == std::end(words) ? Parse<uint32_t>(text) : static_cast<uint32_t>(word - words);
}

struct Setter {
  std::string_view name;
  void (*set)(ApiParams* params, std::string_view text);
};

template <auto kMember>
void SetNumber(ApiParams* params, std::string_view text) {
  auto& field = params->mutable_params()->*kMember;
  field = Parse<std::remove_reference_t<decltype(field)>>(text);
}

template <auto kMember>
void SetIds(ApiParams* params, std::string_view text) {
  params->mutable_params()->*kMember = params->Ids(text);
}

template <auto kMember, const auto& kWords>
void SetChoice(ApiParams* params, std::string_view text) {
  params->mutable_params()->*kMember = Choice(kWords, text);
}

using S = specd_params;

constexpr Setter kSetters[] = {
    {"verify", &SetChoice<&S::verify, kMethods>},
    {"seed",
     [](ApiParams* params, std::string_view text) {
       params->mutable_params()->seed = Parse<uint64_t>(text);
       params->mutable_params()->has_seed = 1;
     }},
    {"n", &SetNumber<&S::n>},
    {"temperature", &SetNumber<&S::temperature>},
    {"top_p", &SetNumber<&S::top_p>},
    {"min_p", &SetNumber<&S::min_p>},
    {"top_k", &SetNumber<&S::top_k>},
    {"filter_order", &SetChoice<&S::filter_order, kOrders>},
    {"frequency_penalty", &SetNumber<&S::frequency_penalty>},
    {"presence_penalty", &SetNumber<&S::presence_penalty>},
    {"repetition_penalty", &SetNumber<&S::repetition_penalty>},
    {"logit_bias_ids", &SetIds<&S::logit_bias_ids>},
    {"logit_bias",
     [](ApiParams* params, std::string_view text) {
       params->mutable_params()->logit_bias = params->Floats(text);
     }},
    {"allowed_token_ids", &SetIds<&S::allowed_token_ids>},
    {"disallowed_token_ids", &SetIds<&S::disallowed_token_ids>},
    {"bad_word_ids", &SetIds<&S::bad_word_ids>},
    {"bad_word_lengths", &SetIds<&S::bad_word_lengths>},
    {"no_repeat_ngram_size", &SetNumber<&S::no_repeat_ngram_size>},
    {"no_repeat_ngram_window", &SetNumber<&S::no_repeat_ngram_window>},
    {"no_repeat_ngram_whitelist", &SetIds<&S::no_repeat_ngram_whitelist>},
    {"thinking_budget", &SetNumber<&S::thinking_budget>},
    {"thinking_start_id", &SetNumber<&S::thinking_start_id>},
    {"thinking_newline_id", &SetNumber<&S::thinking_newline_id>},
    {"thinking_end_ids", &SetIds<&S::thinking_end_ids>},
    {"thinking_preset",
     [](ApiParams* params, std::string_view text) {
       params->mutable_params()->thinking_preset = params->Word(text);
     }},
    {"processors", [](ApiParams* params, std::string_view text) { params->SetProcessors(text); }},
    {"max_tokens", &SetNumber<&S::max_tokens>},
    {"min_tokens", &SetNumber<&S::min_tokens>},
    {"stop_token_ids", &SetIds<&S::stop_token_ids>},
    {"stop_strings",
     [](ApiParams* params, std::string_view text) {
       params->mutable_params()->stop_strings = params->Strings(text);
     }},
    {"ignore_eos", &SetNumber<&S::ignore_eos>},
    {"include_stop", &SetNumber<&S::include_stop>},
    {"skip_special_tokens", &SetNumber<&S::skip_special_tokens>},
    {"logprobs", &SetNumber<&S::logprobs>},
    {"logprobs_mode", &SetChoice<&S::logprobs_mode, kModes>},
    {"draft_edits", &SetNumber<&S::draft_edits>},
    {"logprob_token_ids", &SetIds<&S::logprob_token_ids>},
    {"draft_temperature", &SetNumber<&S::draft_temperature>},
    {"draft_top_p", &SetNumber<&S::draft_top_p>},
    {"draft_min_p", &SetNumber<&S::draft_min_p>},
    {"draft_top_k", &SetNumber<&S::draft_top_k>},
    {"draft_filter_order", &SetChoice<&S::draft_filter_order, kOrders>},
    {"prompt_ids", &SetIds<&S::prompt_ids>},
    {"output_ids", &SetIds<&S::output_ids>},
};

}  // namespace

ApiParams::ApiParams(const std::vector<std::string>& params) {
  specd_params_init(&params_);
  for (const std::string_view param : params) {
    const std::string_view name = param.substr(0, param.find('='));
    const auto* setter = std::find_if(std::begin(kSetters), std::end(kSetters),
                                      [&](const Setter& each) { return each.name == name; });
    if (setter == std::end(kSetters) || name == param) {
      throw std::runtime_error(fmt::format("\"{}\" is no NAME=TEXT of a parameter", param));
    }
    setter->set(this, param.substr(name.size() + 1));
  }
}

std::vector<std::string> ApiParams::Names() {
  std::vector<std::string> names;
  for (const Setter& setter : kSetters) names.emplace_back(setter.name);
  return names;
}

specd_ids ApiParams::Ids(std::string_view text) {
  ids_.push_back(ParseList<int32_t>(text));
  return {ids_.back().data(), ids_.back().size()};
}

specd_floats ApiParams::Floats(std::string_view text) {
  floats_.push_back(ParseList<float>(text));
  return {floats_.back().data(), floats_.back().size()};
}

const char* ApiParams::Word(std::string_view text) {
  words_.emplace_back(text);
  return words_.back().c_str();
}

specd_strings ApiParams::Strings(std::string_view text) {
  std::vector<const char*> pointers;
  for (const std::string& part : Split(text)) pointers.push_back(Word(part));
  pointers_.push_back(std::move(pointers));
  return {pointers_.back().data(), pointers_.back().size()};
}

// Reads "NAME KEY=NUMBER,NAME".
void ApiParams::SetProcessors(std::string_view text) {
  for (const std::string& part : Split(text)) {
    const size_t space = part.find(' ');
    const bool has_values = space != std::string::npos;
    processors_.push_back({.name = Word(part.substr(0, space)),
                           .values = has_values ? Word(part.substr(space + 1)) : nullptr});
  }
  params_.processors = processors_.data();
  params_.num_processors = static_cast<uint32_t>(processors_.size());
}

}  // namespace specd::recorded
