#include "tools/replay/doctor/examination_text.h"

#include <fmt/format.h>

#include "tools/replay/doctor/doctor_members.h"
#include "tools/replay/doctor/figures.h"
#include "tools/replay/json_text.h"
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
                   {"known"},
                   {"rate of known"},
                   {"expected"},
                   {"standard error"},
                   {"sigma"}},
                  paint);
  for (const Group& group : named.groups) {
    const AcceptanceSum& sum = group.sum;
    const bool is_known = sum.num_known > 0;
    table.Add({group.label, fmt::format("{}", sum.count), fmt::format("{:.0f}", sum.accepted),
               fmt::format("{:.4f}", sum.rate()), fmt::format("{}", sum.num_known),
               is_known ? fmt::format("{:.4f}", sum.rate_of_known()) : "-",
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

}  // namespace

void PrintFindings(const Examination& examination, const Paint& paint) {
  for (const Finding& finding : examination.findings) {
    fmt::print("{}: {}\n",
               paint(finding.is_fault ? Colour::kRed : Colour::kYellow,
                     finding.is_fault ? "fault" : "advice"),
               SafeText(finding.sentence));
  }
  const Doctor& doctor = *examination.doctor;
  if (!examination.has_fault()) {
    fmt::print("no fault: {} judged drafts are as their p, q and coins say, within {:g} sigma\n",
               doctor.all().count, kSigmas);
  }
  for (const auto& reason : doctor.without_rows()) {
    fmt::print("without rows: {} drafts ({}); they have fewer figures\n", reason.second.count,
               SafeText(TextOf(reason)));
  }
}

void PrintAll(const Examination& examination, const Paint& paint) {
  const Doctor& doctor = *examination.doctor;
  PrintFindings(examination, paint);
  fmt::print("\n");
  std::fflush(stdout);
  PrintFigures(FiguresOf(doctor), paint);
  for (const NamedGroups& named : GroupsOf(doctor)) PrintGroups(named, paint);
  PrintCauses(doctor, paint);
  PrintLengths(examination.lengths, paint);
}

std::string JsonOf(const Examination& examination) {
  const Doctor& doctor = *examination.doctor;
  const std::vector<Finding>& findings = examination.findings;
  const std::vector<LengthGain>& lengths = examination.lengths;
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
      const Group& group = named.groups[i];
      text += fmt::format("{}\n  {{\"label\": {}, {}}}", i == 0 ? "" : ",", JsonString(group.label),
                          AcceptanceMembers(group.sum));
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
  return text + "]}";
}

}  // namespace specd::replay
