#include "speculative/grammar/front_ends/choice.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <utility>

#include "absl/status/status.h"
#include "speculative/grammar/automata/word_dfa.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/json_memory.h"

namespace specd::grammar {

absl::StatusOr<ExprId> BuildChoice(std::string_view json_array, GrammarRules* rules) {
  if (json_array.size() > kChoiceSizeBytesMax) {
    return absl::ResourceExhaustedError(
        fmt::format("choice has {} bytes, allowed are {}; give fewer or shorter strings",
                    json_array.size(), kChoiceSizeBytesMax));
  }
  simdjson::dom::parser parser;  // owns the strings below
  simdjson::dom::element root;
  const simdjson::error_code error = parser.parse(json_array.data(), json_array.size()).get(root);
  if (absl::Status status = CheckJsonMemory(error); !status.ok()) return status;
  if (error) {
    return absl::InvalidArgumentError(fmt::format(
        "choice is not valid JSON ({}); give an array of strings", simdjson::error_message(error)));
  }
  simdjson::dom::array choices;
  if (root.get(choices)) {
    return absl::InvalidArgumentError("choice is not an array; give an array of strings");
  }
  List<std::string_view> words;
  for (const simdjson::dom::element choice : choices) {
    std::string_view word;
    if (choice.get(word)) {
      return absl::InvalidArgumentError(
          fmt::format("choice /{} is not a string; put it into quotes", words.size()));
    }
    words.push_back(word);
    if (words.size() > kChoicesMax) {
      return absl::ResourceExhaustedError(fmt::format(
          "choice has more than {} strings, the most that specd takes; give fewer", kChoicesMax));
    }
  }
  if (words.empty()) {
    return absl::InvalidArgumentError("choice is an empty array; give at least one string");
  }
  absl::StatusOr<ByteDfa> dfa = BuildWordDfa(std::move(words));
  if (!dfa.ok()) return dfa.status();
  return rules->Automaton(*std::move(dfa));
}

}  // namespace specd::grammar
