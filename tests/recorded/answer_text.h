// Functions that write the answers of the C interface as fields of text, for Player.
//
// Floats become the digits of their bits, so equal texts are equal bits. Pure functions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "ipc/include/specd/specd.h"
#include "tests/recorded/life.h"

namespace specd::recorded {

inline constexpr const char* kNanText = "\"nan\"";

// The digits in quotes; all NaN are alike.
std::string Bits(float value);
std::string Bits(double value);

template <class Value>
std::pair<std::string, std::string> Field(std::string_view name, Value value) {
  return {std::string(name), fmt::format("{}", value)};
}

// Adds a field unless it has its usual value.
template <class Value>
void AddUnless(Value usual, std::string_view name, Value value, Answer* answer) {
  if (value != usual) answer->push_back(Field(name, value));
}

// The answer of a call that returned this error.
Answer Refused(int code);

// [[ID,"BITS",RANK],...] for each token.
std::string ScoresText(const specd_token_score* scores, uint32_t num_tokens, uint32_t per_token);

Answer AnswerOf(const specd_result& result);
Answer AnswerOf(const specd_engine_stats& stats);

}  // namespace specd::recorded
