#include "ipc/counters/open_metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace specd {
namespace {

// Each of the name's last part and what stands before it has to be there.
bool EndsWithUnit(std::string_view name, std::string_view unit) {
  return name.size() > unit.size() + 1 && name.ends_with(unit) &&
         name[name.size() - unit.size() - 1] == '_';
}

// A help text escapes what a label value does, and its quotes as well.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void AppendTimes(const CounterValues& series, std::string* text) {
  const auto out = std::back_inserter(*text);
  const std::string_view comma = series.labels.empty() ? "" : ",";
  uint64_t seen = 0;
  for (uint32_t i = 0; i <= kTimesBounds; ++i) {
    seen += series.values[i];
    const std::string bound = i < kTimesBounds ? SecondsText(TimesBoundNs(i)) : "+Inf";
    fmt::format_to(out, "{}_bucket{{{}{}le=\"{}\"}} {}\n", series.name, series.labels, comma, bound,
                   seen);
  }
  const std::string labels = series.labels.empty() ? "" : fmt::format("{{{}}}", series.labels);
  fmt::format_to(out, "{0}_sum{1} {2}\n{0}_count{1} {3}\n", series.name, labels,
                 SecondsText(series.sum_ns()), seen);
}

void AppendNumber(const CounterValues& series, std::string* text) {
  const std::string_view suffix = series.kind == CounterKind::kCounter ? "_total"
                                  : series.kind == CounterKind::kInfo  ? "_info"
                                                                       : "";
  const std::string labels = series.labels.empty() ? "" : fmt::format("{{{}}}", series.labels);
  fmt::format_to(std::back_inserter(*text), "{}{}{} {}\n", series.name, suffix, labels,
                 series.value());
}

}  // namespace

std::string_view UnitOf(std::string_view name) {
  for (const std::string_view unit : {"seconds", "bytes"}) {
    if (EndsWithUnit(name, unit)) return unit;
  }
  return "";
}

std::string_view TypeOf(CounterKind kind) {
  switch (kind) {
    case CounterKind::kCounter:
      return "counter";
    case CounterKind::kGauge:
      return "gauge";
    case CounterKind::kTimes:
      return "histogram";
    case CounterKind::kInfo:
      break;
  }
  return "info";
}

std::string SecondsText(uint64_t ns) {
  std::string text = fmt::format("{}.{:09}", ns / 1'000'000'000, ns % 1'000'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text + '0' : text;
}

std::string OpenMetrics(const CounterSnapshot& snapshot) {
  std::string text;
  std::string_view family;
  for (const CounterValues& series : snapshot.series) {
    if (series.name != family) {
      family = series.name;
      fmt::format_to(std::back_inserter(text), "# TYPE {} {}\n", family, TypeOf(series.kind));
      if (const std::string_view unit = UnitOf(family); !unit.empty()) {
        fmt::format_to(std::back_inserter(text), "# UNIT {} {}\n", family, unit);
      }
      fmt::format_to(std::back_inserter(text), "# HELP {} {}\n", family, Escaped(series.help));
    }
    if (series.kind == CounterKind::kTimes) {
      AppendTimes(series, &text);
    } else if (series.is_shown()) {
      AppendNumber(series, &text);
    }
  }
  return text + "# EOF\n";
}

}  // namespace specd
