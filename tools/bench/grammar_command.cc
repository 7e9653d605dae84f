// The command `specd-bench grammar`: the flags and the lines of GrammarSuite.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/grammar_fill.h"
#include "tools/bench/grammar_peer.h"
#include "tools/bench/grammar_suite.h"
#include "tools/bench/suite.h"

namespace specd::bench {
namespace {

int32_t DraftOf(GrammarCase grammar_case) {
  if (grammar_case == GrammarCase::kRoundK5) return GrammarReplay::kDraft;
  return grammar_case == GrammarCase::kFillThreads ? GrammarFill::kDraft : 0;
}

std::vector<CaseWords> Words() {
  std::vector<CaseWords> words;
  for (size_t i = 0; i < kNumGrammarCases; ++i) {
    const auto known = static_cast<GrammarCase>(i);
    words.push_back({GrammarCaseName(known), GrammarCaseSummary(known)});
  }
  return words;
}

// Refusals and targets, below the table.
void Explain(const GrammarMeasurement& m, Output* out) {
  if (m.IsRefused()) {
    out->Note(fmt::format("{} is refused by {}: {}", m.constraint, m.refused_by, m.refusal));
  } else if (m.HasTarget()) {
    out->Note(fmt::format("{}: p50 {:.2f} us, target {:.0f}; p99 {:.2f} us, target {:.0f}: {}",
                          GrammarCaseName(m.grammar_case), m.value.median, m.target, m.value.p99,
                          m.target_p99, m.IsMet() ? "met" : "missed"));
  }
}

GrammarOptions OptionsOf(const Flags& flags) {
  GrammarOptions options;
  const std::vector<CaseWords> words = Words();
  for (const CaseWords* const chosen : Chosen(flags, words)) {
    options.cases.push_back(static_cast<GrammarCase>(chosen - words.data()));
  }
  const std::vector<std::string> names = flags.List("constraint");
  for (const auto& texts : {GrammarTexts(), LargeGrammarTexts()}) {
    for (const GrammarText& text : texts) {
      const bool is_named = std::find(names.begin(), names.end(), text.name) != names.end();
      const bool is_usual = names.empty() && texts.data() == GrammarTexts().data();
      if (is_named || is_usual) options.texts.push_back(&text);
    }
  }
  options.vocab_size = flags.Number("vocab");
  options.each = flags.IsOn("each");
  options.seconds = flags.Real("seconds");
  return options;
}

absl::Status RunGrammar(const Flags& flags, Output* out) {
  const GrammarOptions options = OptionsOf(flags);
  const Machine machine = ReadMachine();
  const bool has_peer = !flags.Text("base").empty();
  GrammarSuite::Hooks hooks = {.make_peer = nullptr,
                               .on_progress = [&](std::string_view text) { out->Show(text); },
                               .on_result =
                                   [&](const GrammarMeasurement& measurement) {
                                     out->Print(LineOf(measurement));
                                     Explain(measurement, out);
                                   }};
  if (has_peer) {
    hooks.make_peer = [&](const SyntheticVocabulary& vocabulary) {
      return GrammarPeer::Start(flags.Text("python"), vocabulary, options.vocab_size);
    };
  }
  out->Begin(machine.processor, Describe(machine, 1));
  out->Caption(fmt::format(
      "V = {}; {}", options.vocab_size,
      has_peer ? fmt::format("base = {}, ratio = specd / base", GrammarPeer::kName) : "no peer"));
  return GrammarSuite(options, std::move(hooks)).Run();
}

}  // namespace

Line LineOf(const GrammarMeasurement& m) {
  Line line;
  line.Name("case", GrammarCaseName(m.grammar_case), 10).Name("constraint", m.constraint, 11);
  line.Json("vocab", m.vocab_size);
  if (m.IsRefused()) {
    return line.Cell("unit", 5, "refused")
        .Json("refused_by", m.refused_by)
        .Json("refusal", m.refusal);
  }
  const auto add = [&](std::string_view title, size_t width, double value) {
    line.Cell(title, width, "{:.{}f}", value, m.unit == "us" ? 2 : 0);
  };
  line.Cell("unit", 5, "{}", m.unit).Json("unit", m.unit).Json("draft", DraftOf(m.grammar_case));
  add("p50", 9, m.value.median);
  add("p90", 9, m.value.p90);
  add("p99", 9, m.value.p99);
  line.Cell("samples", 7, "{}", m.value.num_samples)
      .Times("", m.value)
      .Json("checked", m.num_checked);
  if (m.HasBase()) {
    add("base p50", 10, m.base.median);
    add("base p90", 10, m.base.p90);
    add("base p99", 10, m.base.p99);
    line.Cell("ratio p50", 9, "{:.3f}", m.value.median / m.base.median)
        .Cell("ratio p90", 9, "{:.3f}", m.value.p90 / m.base.p90)
        .Cell("ratio p99", 9, "{:.3f}", m.value.p99 / m.base.p99)
        .Json("ratio", m.value.median / m.base.median)
        .Json("ratio_p90", m.value.p90 / m.base.p90)
        .Json("ratio_p99", m.value.p99 / m.base.p99)
        .Json("ratio_of", m.base_of)
        .Times("base_", m.base);
  }
  if (m.HasTarget()) {
    line.Json("target", m.target).Json("target_p99", m.target_p99).Json("met", m.IsMet());
  }
  return line.LoadOfAll(m.load);
}

Suite GrammarCommand() {
  Flag constraint = {.name = "constraint",
                     .help = "constraints by name, separated by commas; empty: all but large ones",
                     .is_list = true};
  for (const auto& texts : {GrammarTexts(), LargeGrammarTexts()}) {
    for (const GrammarText& text : texts) constraint.choices.push_back(text.name);
  }
  return {.name = "grammar",
          .summary = "compiling constraints, and their masks along texts",
          .examples = {"--quick --base=xgrammar --python=build/xgrammar/bin/python",
                       "--quick --each --case=compile,cold_mask"},
          .cases = Words(),
          .seconds = "120",
          .quick_seconds = "20",
          .flags = {constraint,
                    {.name = "vocab",
                     .kind = Flag::Kind::kWhole,
                     .help = "the vocabulary's size",
                     .usual = "128256",
                     .minimum = SyntheticVocabulary::kSizeMin,
                     .maximum = kVocabSizeMax},
                    {.name = "each",
                     .kind = Flag::Kind::kSwitch,
                     .help = "lines for single constraints too"},
                    {.name = "base",
                     .help = "xgrammar, by --python; without it no peer",
                     .choices = {GrammarPeer::kName}},
                    {.name = "python", .help = "an interpreter with xgrammar", .usual = "python3"}},
          .run = &RunGrammar};
}

}  // namespace specd::bench
