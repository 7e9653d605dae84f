#include "tools/replay/doctor/doctor_command.h"

#include <fmt/format.h>

#include "tools/replay/json_text.h"
#include "tools/replay/output_file.h"
#include "tools/terminal/text_table.h"

namespace specd::replay {
namespace {

using Align = TextTable::Align;

std::string Optional(const std::optional<double>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}

void PrintFigures(const std::vector<Figure>& figures, const Paint& paint) {
  TextTable table(
      {{"figure", Align::kLeft}, {"value"}, {"standard error"}, {"n"}, {"expected"}, {"sigma"}},
      paint);
  for (const Figure& figure : figures) {
    const bool is_far = figure.sigmas && std::abs(*figure.sigmas) > kSigmas;
    table.Add({figure.name,
               fmt::format("{:.4f}", figure.value),
               fmt::format("{:.4f}", figure.error),
               fmt::format("{}", figure.count),
               Optional(figure.expected, "{:.4f}"),
               {Optional(figure.sigmas, "{:+.1f}"), is_far ? Colour::kRed : Colour::kNone}});
  }
}

struct NamedGroups {
  std::string_view title;
  std::vector<Group> groups;
};

std::vector<NamedGroups> GroupsOf(const Doctor& doctor) {
  return {{"place", doctor.Places()},
          {"method", doctor.Methods()},
          {"sequence", doctor.Sequences()},
          {"time", doctor.Times()},
          {"context length", doctor.Contexts()},
          {"class of token", doctor.Classes()},
          {"grammar state", doctor.GrammarStates()}};
}

void PrintGroups(const NamedGroups& named, const Paint& paint) {
  if (named.groups.empty()) return;
  fmt::print("\n");
  std::fflush(stdout);
  TextTable table({{named.title, Align::kLeft},
                   {"reached"},
                   {"accepted"},
                   {"rate"},
                   {"expected"},
                   {"standard error"},
                   {"sigma"}},
                  paint);
  for (const Group& group : named.groups) {
    const AcceptanceSum& sum = group.sum;
    const bool is_known = sum.num_known > 0;
    table.Add({group.label, fmt::format("{}", sum.count), fmt::format("{:.0f}", sum.accepted),
               fmt::format("{:.4f}", sum.rate()),
               is_known ? fmt::format("{:.4f}", sum.expected_rate()) : "-",
               is_known ? fmt::format("{:.4f}", sum.error()) : "-",
               is_known ? fmt::format("{:+.1f}", sum.z()) : "-"});
  }
}

void PrintLengths(const std::vector<LengthGain>& gains, const Paint& paint) {
  if (gains.size() < 2) return;
  fmt::print("\n");
  std::fflush(stdout);
  bool has_guess = false;
  {
    TextTable table({{"draft tokens", Align::kLeft},
                     {"tokens per forward"},
                     {"standard error"},
                     {"tokens per second"}},
                    paint);
    for (const LengthGain& gain : gains) {
      has_guess = has_guess || gain.is_guess;
      table.Add({fmt::format("{}{}", gain.length, gain.is_guess ? " *" : ""),
                 fmt::format("{:.3f}", gain.tokens), fmt::format("{:.3f}", gain.error),
                 gain.per_second > 0 ? fmt::format("{:.1f}", gain.per_second) : "-"});
    }
  }
  if (has_guess) fmt::print("* no draft was so long: the rate of the last place is taken\n");
}

void PrintFindings(const std::vector<Finding>& findings, const Doctor& doctor, const Paint& paint) {
  bool has_fault = false;
  for (const Finding& finding : findings) {
    has_fault = has_fault || finding.is_fault;
    fmt::print("{}: {}\n",
               paint(finding.is_fault ? Colour::kRed : Colour::kYellow,
                     finding.is_fault ? "fault" : "advice"),
               SafeText(finding.sentence));
  }
  if (!has_fault) {
    fmt::print("no fault: {} judged drafts are as their p, q and coins say, within {:g} sigma\n",
               doctor.all().count, kSigmas);
  }
  for (const auto& reason : doctor.without_rows()) {
    fmt::print("without rows: {} drafts ({}); they have fewer figures\n", reason.second.count,
               SafeText(TextOf(reason)));
  }
}

void PrintCauses(const Doctor& doctor, const Paint& paint) {
  if (doctor.causes().empty() && doctor.num_outside() == 0) return;
  fmt::print("\n");
  std::fflush(stdout);
  TextTable table({{"rejected because", Align::kLeft}, {"drafts"}}, paint);
  for (const auto& [cause, count] : doctor.causes()) {
    table.Add({cause, fmt::format("{}", count)});
  }
  if (doctor.num_outside() > 0) {
    table.Add(
        {"an id outside the vocabulary ends the draft", fmt::format("{}", doctor.num_outside())});
  }
}

std::string Json(const Doctor& doctor, const std::vector<Finding>& findings,
                 const std::vector<LengthGain>& lengths) {
  std::string text = "{\"findings\": [";
  for (size_t i = 0; i < findings.size(); ++i) {
    text += fmt::format("{}\n  {{\"fault\": {}, \"name\": {}, \"sentence\": {}}}",
                        i == 0 ? "" : ",", findings[i].is_fault, JsonString(findings[i].name),
                        JsonString(findings[i].sentence));
  }
  text += "],\n \"figures\": [";
  bool is_first = true;
  for (const Figure& figure : FiguresOf(doctor)) {
    text += fmt::format(
        "{}\n  {{\"name\": {}, \"value\": {}, \"error\": {}, \"n\": {}, \"expected\": {}, "
        "\"sigmas\": {}}}",
        is_first ? "" : ",", JsonString(figure.name), JsonNumber(figure.value),
        JsonNumber(figure.error), figure.count, JsonNumber(figure.expected),
        JsonNumber(figure.sigmas));
    is_first = false;
  }
  text += "]";
  for (const NamedGroups& named : GroupsOf(doctor)) {
    text += fmt::format(",\n {}: [", JsonString(named.title));
    for (size_t i = 0; i < named.groups.size(); ++i) {
      const AcceptanceSum& sum = named.groups[i].sum;
      text += fmt::format(
          "{}\n  {{\"label\": {}, \"reached\": {}, \"accepted\": {}, \"expected\": {}, \"error\": "
          "{}}}",
          i == 0 ? "" : ",", JsonString(named.groups[i].label), sum.count, sum.accepted,
          sum.num_known > 0 ? JsonNumber(sum.expected_rate()) : "null", JsonNumber(sum.error()));
    }
    text += "]";
  }
  text += ",\n \"rejected\": {";
  is_first = true;
  for (const auto& [cause, count] : doctor.causes()) {
    text += fmt::format("{}{}: {}", is_first ? "" : ", ", JsonString(cause), count);
    is_first = false;
  }
  text += "},\n \"lengths\": [";
  for (size_t i = 0; i < lengths.size(); ++i) {
    text += fmt::format(
        "{}\n  {{\"length\": {}, \"tokens\": {}, \"error\": {}, \"guess\": {}, \"per_second\": "
        "{}}}",
        i == 0 ? "" : ",", lengths[i].length, JsonNumber(lengths[i].tokens),
        JsonNumber(lengths[i].error), lengths[i].is_guess, JsonNumber(lengths[i].per_second));
  }
  return text + "]}\n";
}

}  // namespace

std::vector<Figure> FiguresOf(const Doctor& doctor) {
  std::vector<Figure> figures;
  const auto add_mean = [&figures](std::string_view name, const MeanSum& sum,
                                   std::optional<double> expected) {
    if (sum.count == 0) return;
    figures.push_back(
        {std::string(name), sum.mean(), sum.error(), sum.count, expected, std::nullopt});
  };
  const auto add_acceptance = [&figures](std::string_view name, const AcceptanceSum& sum) {
    if (sum.num_known == 0) return;
    figures.push_back({std::string(name),
                       sum.accepted_of_known / static_cast<double>(sum.num_known), sum.error(),
                       sum.num_known, sum.expected_rate(), sum.z()});
  };
  // The sum of differences from an expectation that changes from draft to draft.
  const auto add_z = [&figures](std::string_view name, const ZSum& sum) {
    if (sum.count == 0) return;
    const auto count = static_cast<double>(sum.count);
    figures.push_back({std::string(name), sum.difference / count, std::sqrt(sum.variance) / count,
                       sum.count, 0.0, sum.z()});
  };
  const RoundTests& rounds = doctor.round_tests();
  add_acceptance("passed their coin", rounds.passed());
  add_acceptance("accepted, by the method", doctor.all());
  add_acceptance("accepted, by recorded sums of min(p, q)", doctor.overlaps());
  add_mean("p/q at drafts, q whole", rounds.whole_ratio(), 1);
  add_mean("1/residual mass, at most 1", rounds.residuals(), std::nullopt);
  const RowTests* const rows = doctor.row_tests();
  if (rows == nullptr) return figures;
  add_acceptance("accepted, by the sum of min(p, q)", rows->accepted());
  add_z("min(1, p/q) less the sum of min(p, q)", rows->shares());
  add_z("ln q of drafts less its expectation", rows->draws().log_q());
  constexpr std::string_view kRepeats[] = {"coin of the place before",
                                           "coin of the sequence before",
                                           "coin of the round before", "coin that accepts"};
  for (size_t which = 0; which < kNumCoinRepeats; ++which) {
    add_z(kRepeats[which], rows->repeats(static_cast<CoinRepeat>(which)));
  }
  constexpr std::string_view kSwaps[] = {"gain by swapped target rows, places",
                                         "gain by swapped target rows, sequences"};
  for (size_t which = 0; which < kNumNeighbours; ++which) {
    add_mean(kSwaps[which], rows->swaps(static_cast<Neighbours>(which)).overlap, std::nullopt);
  }
  add_mean("the sum of min(p, q): a drawn draft", rows->overlap(), std::nullopt);
  add_mean("p of q's best id: an argmax draft", rows->best(), std::nullopt);
  add_mean("the best id and one of the rest", rows->mixed(), std::nullopt);
  add_mean("p of an n-gram's id", doctor.ngram(), std::nullopt);
  add_mean("p outside the draft row", rows->outside(), std::nullopt);
  return figures;
}

absl::StatusOr<int> RunDoctor(const CommandOptions& options) {
  if (!options.format.empty() && options.format != "table" && options.format != "json") {
    return absl::InvalidArgumentError(
        fmt::format("format = {} is neither table nor json", options.format));
  }
  absl::StatusOr<TokenText> text = TokenText::Load(options.tokenizer);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::unique_ptr<Backend>> made = MakeNamedBackend(options.backend);
  if (!made.ok()) return made.status();
  ReplayBackend backend(*std::move(made), options.threads);
  Doctor doctor(&backend, *std::move(text), options.filter);
  TraceReader reader(options.paths);
  TraceItem item;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&item);
    if (!more.ok()) return more.status();
    if (!*more) break;
    const auto* const round = std::get_if<TraceRound>(&item.record);
    const RowFileReader* rows = nullptr;
    if (round != nullptr && round->level == TraceLevel::kRows) {
      const absl::StatusOr<const RowFileReader*> opened = reader.Rows();
      if (opened.ok()) rows = *opened;
    }
    if (absl::Status status = doctor.Take(item, rows); !status.ok()) return status;
  }
  PrintWarnings(reader);
  if (doctor.all().count == 0) {
    return absl::NotFoundError("no draft was judged in these rounds, so there is nothing to say");
  }
  const Costs costs = {.draft_ms = options.draft_ms, .target_ms = options.target_ms};
  const std::vector<Finding> findings = FindingsOf(doctor, costs);
  const std::vector<LengthGain> lengths = doctor.lengths().Gains(costs.draft_ms, costs.target_ms);
  const bool has_fault = !findings.empty() && findings.front().is_fault;
  if (options.format == "json") {
    absl::Status status = WriteText(options.output, Json(doctor, findings, lengths));
    if (!status.ok()) return status;
    return has_fault ? kExitDifferent : kExitOk;
  }
  PrintFindings(findings, doctor, options.paint);
  fmt::print("\n");
  std::fflush(stdout);
  PrintFigures(FiguresOf(doctor), options.paint);
  for (const NamedGroups& named : GroupsOf(doctor)) PrintGroups(named, options.paint);
  PrintCauses(doctor, options.paint);
  PrintLengths(lengths, options.paint);
  return has_fault ? kExitDifferent : kExitOk;
}

}  // namespace specd::replay
