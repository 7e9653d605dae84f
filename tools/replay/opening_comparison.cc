#include "tools/replay/opening_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "speculative/params/param_numbers.h"
#include "speculative/params/param_table.h"
#include "tools/replay/names.h"

namespace specd::replay {

std::string NumberText(std::string_view name, std::optional<double> number) {
  const ParamRow* const row = FindParam(name);
  SequenceParams params;
  if (row != nullptr && IsNumber(*row) && (!number || SetNumber(name, *number, &params).ok())) {
    return ValueText(*row, params);
  }
  return number ? fmt::format("{}", *number) : std::string("the default");
}

namespace {

using Texts = std::vector<std::string>;

std::string Differ(std::string_view name, std::string_view a, std::string_view b) {
  return fmt::format("{} is {} in A and {} in B", name, a, b);
}

std::string IdsText(const std::vector<TokenId>& ids) {
  return fmt::format("[{}]", fmt::join(ids, " "));
}

std::optional<double> NumberOf(const TraceOpening& opening, std::string_view name) {
  for (const auto& [known, value] : opening.numbers) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void CompareNumbers(const TraceOpening& a, const TraceOpening& b, Texts* texts) {
  std::set<std::string_view> names;
  for (const TraceOpening* opening : {&a, &b}) {
    for (const auto& number : opening->numbers) names.insert(number.first);
  }
  for (const std::string_view name : names) {
    const std::optional<double> x = NumberOf(a, name);
    const std::optional<double> y = NumberOf(b, name);
    if (x == y) continue;  // an absent number has its default
    texts->push_back(Differ(name, NumberText(name, x), NumberText(name, y)));
  }
}

// The hash of a list that was given; 0: the hashes of lists were not recorded.
std::optional<uint64_t> ListHash(const TraceOpening& opening, std::string_view name) {
  const auto place = std::find(opening.lists.begin(), opening.lists.end(), name);
  if (place == opening.lists.end()) return std::nullopt;
  const size_t index = place - opening.lists.begin();
  return index < opening.list_hashes.size() ? opening.list_hashes[index] : 0;
}

void CompareLists(const TraceOpening& a, const TraceOpening& b, Texts* texts) {
  if (a.stop_token_ids != b.stop_token_ids) {
    texts->push_back(
        Differ("stop_token_ids", IdsText(a.stop_token_ids), IdsText(b.stop_token_ids)));
  }
  std::set<std::string_view> names(a.lists.begin(), a.lists.end());
  names.insert(b.lists.begin(), b.lists.end());
  names.erase("stop_token_ids");
  for (const std::string_view name : names) {
    const std::optional<uint64_t> x = ListHash(a, name);
    const std::optional<uint64_t> y = ListHash(b, name);
    if (x.has_value() != y.has_value()) {
      texts->push_back(Differ(name, x ? "given" : "empty", y ? "given" : "empty"));
    } else if (*x != *y && *x != 0 && *y != 0) {
      texts->push_back(fmt::format("{} has other members in A than in B", name));
    }
  }
}

void CompareConstraints(const TraceOpening& a, const TraceOpening& b, Texts* texts) {
  const auto text = [](const std::string& kind) { return kind.empty() ? "none" : kind; };
  if (a.constraint != b.constraint) {
    texts->push_back(Differ("the constraint", text(a.constraint), text(b.constraint)));
  } else if (a.constraint_hash != b.constraint_hash && a.constraint_hash != 0 &&
             b.constraint_hash != 0) {
    texts->push_back(
        fmt::format("the constraint ({}) has another text in A than in B", text(a.constraint)));
  }
}

}  // namespace

Texts CompareOpenings(const TraceOpening& a, const TraceOpening& b, OpeningParts parts) {
  Texts texts;
  if (parts == OpeningParts::kAll && a.num_prompt_ids != b.num_prompt_ids) {
    texts.push_back(Differ("the number of prompt ids", std::to_string(a.num_prompt_ids),
                           std::to_string(b.num_prompt_ids)));
  }
  if ((a.forked_from != 0) != (b.forked_from != 0)) {
    texts.push_back(
        fmt::format("the sequence is a fork in {} alone", a.forked_from != 0 ? "A" : "B"));
  }
  if (parts == OpeningParts::kWithoutParameters) return texts;
  CompareNumbers(a, b, &texts);
  CompareLists(a, b, &texts);
  CompareConstraints(a, b, &texts);
  return texts;
}

Texts CompareModels(const TraceInfo& a, const TraceInfo& b) {
  Texts texts;
  if (a.vocab_size != b.vocab_size) {
    texts.push_back(
        Differ("vocab_size", std::to_string(a.vocab_size), std::to_string(b.vocab_size)));
  }
  if (a.eos_token_ids != b.eos_token_ids) {
    texts.push_back(Differ("eos_token_ids", IdsText(a.eos_token_ids), IdsText(b.eos_token_ids)));
  }
  return texts;
}

}  // namespace specd::replay
