#include "tools/params_doc/params_doc.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <variant>
#include <vector>

#include "speculative/params/param_rules.h"
#include "speculative/params/param_table.h"
#include "tools/params_doc/presets.h"

namespace specd {
namespace {

using Cells = std::vector<std::string>;

// The heading stands before the row of the section's first field.
struct Section {
  std::string_view first_field;
  std::string_view heading;
};
constexpr Section kSections[] = {
    {"verify", "Method, seed, samples"},
    {"temperature", "Temperature and filters"},
    {"frequency_penalty", "Penalties, masks and processors"},
    {"max_tokens", "Length and stops"},
    {"logprobs", "Logprobs"},
    {"grammar_kind", "Constraints"},
    {"draft_temperature", "What the drafter declares"},
    {"stop_strings", "Text"},
};

// Indexed by the index of a row's place.
constexpr std::string_view kTypes[] = {"number",   "integer", "64-bit seed", "flag",
                                       "token id", "choice",  "ids",         "id: number",
                                       "id lists", "texts",   "processors",  "numbers"};
static_assert(std::size(kTypes) == std::variant_size_v<AnyParamPlace>);

constexpr std::string_view kHead = R"(# Parameters

Printed by `specd-params` from the table, speculative/params/param_list.inc. Do not edit: change the table, then
`specd-params > docs/PARAMETERS.md`.

specd refuses three things at the opening: a value outside its range, a combination that it cannot honour, and an unknown name. The
error has the field, the value, the range and the remedy. Nothing is ignored or bent to fit. NaN lies outside every range.
)";

constexpr std::string_view kPresetsHead = R"(
## Where to begin

`verify` stays at auto in all of them. Whatever is not named stays at its default.

)";

constexpr std::string_view kMethodNotes = R"(
`exact_match` gives the same text for the same seed, with drafts or without; for sampled drafts it accepts only with probability
sum p*q. `block` and `token` accept more of those and keep the distribution, but not the text: with other drafts the same seed writes
another text of the same distribution. Both take one-hot drafts, as draft probability 1. With auto, the kinds of a round's drafts
decide, and the reply to an open says auto, or greedy for a greedy sequence.
)";

constexpr std::string_view kRulesHead = R"(
## Refused combinations

A session also refuses stop_strings and stop_regex where no detokenizer runs, stops = inline and a constraint where no tokenizer is known, and ignore_eos where
no EOS id is known.

)";

constexpr std::string_view kRefusedHead = R"(
## Refused names

A peer's name for a parameter of the tables is refused too, with the name it has here.

)";

constexpr std::string_view kDifferencesHead = R"(
## Differences from vLLM and SGLang

specd has one order of steps for every row, with drafts or without, at every draft position. The peers have several: vLLM refuses
`min_p` and `logit_bias` with speculation, SGLang drops `min_p` there without a word.

)";

constexpr std::string_view kDifferences[][4] = {
    {"subject", "specd", "vLLM", "SGLang"},
    {"temperature near 0", "below 1e-5 greedy", "0 is greedy; 0 .. 0.01 is raised to 0.01",
     "below 1e-6 greedy"},
    {"largest temperature", "100", "2", "none"},
    {"argmax of equal logits", "the lowest id", "not defined", "not defined"},
    {"`top_k`", "exactly k ids, ties to the lower id", "ties at the threshold all stay",
     "depends on the backend"},
    {"`top_k` off", "-1, 0, vocab_size or more", "the same", "-1; 0 is refused"},
    {"`top_k` = 1", "greedy, bit for bit", "drawn from the ids tied for the maximum", "greedy"},
    {"filters", "`min_p`, `top_k`, `top_p`, each on what is left; or joint",
     "`min_p`, `top_k`, `top_p`", "joint or in sequence, as the batch falls; `min_p` last"},
    {"`repetition_penalty`", "prompt, output, draft prefix", "the same", "output only"},
    {"penalties and drafts", "each position counts the drafts before it", "the same",
     "one row for all positions"},
    {"`logit_bias`", "outside -100 .. 100 refused", "clamped to it", "any number"},
    {"`allowed_token_ids` = []", "all are allowed", "refused", "no such parameter"},
    {"`bad_words`", "token ids", "texts", "no such parameter"},
    {"`min_tokens`", "stop strings wait as well", "the same", "stop strings do not wait"},
    {"`ignore_eos`", "drops the EOS ids only", "the same", "drops `stop_token_ids` too"},
    {"`stop_token_ids`", "inside the vocabulary", "not checked", "not checked"},
    {"`max_tokens`", "1 or more, default 16", "the same, or None",
     "0 or more, or None, default 128"},
    {"`logprobs` = -1", "none", "the whole vocabulary", "no such value"},
    {"logprobs by default", "`raw_logprobs`", "raw", "`unfiltered_logprobs`"},
    {"rank of a logprob", "1 + ids strictly greater", "ids greater or equal", ""},
    {"`logprob_token_ids`", "beside the best ids", "instead of them, or as many", "beside them"},
    {"no seed", "`seed` left out", "None or -1", "None"},
    {"seeds of `n` samples", "seed + i", "", "the same for each"},
    {"`n` > 1, greedy", "refused", "refused", "equal texts"},
};

std::string Code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

// Columns are padded to their widest cell, except the last, which holds sentences.
std::string Table(const std::vector<Cells>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const Cells& cells : rows) {
    for (size_t i = 0; i + 1 < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string text;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < rows[row].size(); ++i) {
      text += fmt::format("| {:<{}} ", rows[row][i], widths[i]);
    }
    text += "|\n";
    if (row != 0) continue;
    for (size_t width : widths) text += fmt::format("|{:-<{}}", "", std::max<size_t>(width + 2, 3));
    text += "|\n";
  }
  return text;
}

std::string DefaultText(const ParamRow& row) {
  return row.field == "seed" ? "drawn" : ValueText(row, {});
}

std::string FieldTables() {
  const Cells head = {"field", "type", "default", "range", "vLLM", "SGLang", "meaning"};
  std::string text;
  std::vector<Cells> rows;
  const auto flush = [&] {
    if (!rows.empty()) text += Table(rows);
    rows = {head};
  };
  for (const ParamRow& row : ParamTable()) {
    const auto* section =
        std::find_if(std::begin(kSections), std::end(kSections),
                     [&](const Section& each) { return each.first_field == row.field; });
    if (section != std::end(kSections)) {
      flush();
      if (section == std::begin(kSections) + 1) text += kMethodNotes;
      text += fmt::format("\n## {}\n\n", section->heading);
    }
    rows.push_back({Code(row.field), std::string(kTypes[row.place.index()]), DefaultText(row),
                    RangeText(row), Code(row.vllm_name), Code(row.sglang_name),
                    std::string(row.meaning)});
  }
  flush();
  return text;
}

// The fields a preset sets, read back by comparing each with its default.
std::string Settings(const SequenceParams& params) {
  std::string text;
  for (const ParamRow& row : ParamTable()) {
    const std::string value = ValueText(row, params);
    if (value == ValueText(row, {})) continue;
    text += fmt::format("{}`{}` {}", text.empty() ? "" : ", ", row.field, value);
  }
  return text;
}

std::string PresetTable() {
  std::vector<Cells> rows = {{"for", "set", "why"}};
  for (const Preset& preset : Presets()) {
    rows.push_back({std::string(preset.use), Settings(preset.make()), std::string(preset.why)});
  }
  return Table(rows);
}

std::string RuleTable() {
  std::vector<Cells> rows = {{"refused", "why", "instead"}};
  for (const ParamRule& rule : ParamRules()) {
    rows.push_back({std::string(rule.when), std::string(rule.why), std::string(rule.remedy)});
  }
  return Table(rows);
}

// Names that are refused for one reason share a row.
std::string RefusedTable() {
  std::vector<Cells> rows = {{"name", "why", "instead"}};
  for (const RefusedName& refused : RefusedNames()) {
    const std::string name =
        Code(refused.value.empty() ? std::string(refused.name)
                                   : fmt::format("{} = {}", refused.name, refused.value));
    if (rows.back()[1] == refused.why && rows.back()[2] == refused.remedy) {
      rows.back()[0] += ", " + name;
    } else {
      rows.push_back({name, std::string(refused.why), std::string(refused.remedy)});
    }
  }
  return Table(rows);
}

std::string DifferenceTable() {
  std::vector<Cells> rows;
  for (const auto& cells : kDifferences) rows.emplace_back(std::begin(cells), std::end(cells));
  return Table(rows);
}

}  // namespace

std::string ParamsDoc() {
  std::string text(kHead);
  text += kPresetsHead;
  text += PresetTable();
  text += FieldTables();
  text += kRulesHead;
  text += RuleTable();
  text += kRefusedHead;
  text += RefusedTable();
  text += kDifferencesHead;
  text += DifferenceTable();
  return text;
}

}  // namespace specd
