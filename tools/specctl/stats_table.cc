#include "tools/specctl/stats_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/counters/open_metrics.h"
#include "tools/terminal/text_table.h"

namespace specd::ctl {
namespace {

using Align = TextTable::Align;

constexpr std::string_view kPhases[] = {"starts", "serves", "drains"};

std::string AgeOf(uint64_t ns) {
  const uint64_t s = ns / 1'000'000'000;
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m {:02}s", s / 60, s % 60);
  if (s < 86'400) return fmt::format("{}h {:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d {:02}h", s / 86'400, s / 3600 % 24);
}

// "mean 12.5 us, 99% within 32.0 us"
std::string TimesText(const CounterValues& times) {
  const uint64_t count = times.count();
  if (count == 0) return "";
  return fmt::format("mean {}, 50% within {}, 99% within {}", DurationText(times.sum_ns() / count),
                     DurationText(times.QuantileNs(0.5)), DurationText(times.QuantileNs(0.99)));
}

uint64_t NumberOf(const CounterValues& series) {
  return series.kind == CounterKind::kTimes ? series.count() : series.value();
}

// What a histogram or a counter has gained; a gauge as it is.
CounterValues Gained(const CounterValues& before, const CounterValues& now) {
  CounterValues gained = now;
  if (now.kind == CounterKind::kGauge || now.kind == CounterKind::kInfo) return gained;
  for (size_t i = 0; i < gained.values.size(); ++i) gained.values[i] -= before.values[i];
  return gained;
}

double Ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

bool IsSameDaemon(const CounterSnapshot& a, const CounterSnapshot& b) {
  return a.epoch == b.epoch && a.start_unix_ns == b.start_unix_ns &&
         std::equal(a.series.begin(), a.series.end(), b.series.begin(), b.series.end(),
                    [](const CounterValues& x, const CounterValues& y) {
                      return x.kind == y.kind && x.name == y.name && x.labels == y.labels &&
                             x.values.size() == y.values.size();
                    });
}

std::string DurationText(uint64_t ns) {
  const double value = ns;
  if (ns < 1'000) return fmt::format("{} ns", ns);
  if (ns < 1'000'000) return fmt::format("{:.1f} us", value / 1e3);
  if (ns < 1'000'000'000) return fmt::format("{:.1f} ms", value / 1e6);
  return fmt::format("{:.1f} s", value / 1e9);
}

std::string Headline(const CounterSnapshot& now, uint64_t now_unix_ns) {
  const CounterValues* const state = now.Find("specd:state");
  std::string_view phase = "has ended";
  if (now.is_alive) {
    phase =
        state != nullptr && state->value() < std::size(kPhases) ? kPhases[state->value()] : "runs";
  }
  const uint64_t age_ns = now_unix_ns > now.start_unix_ns ? now_unix_ns - now.start_unix_ns : 0;
  return fmt::format("daemon {} {}, started {} ago", now.pid, phase, AgeOf(age_ns));
}

void PrintStats(const CounterSnapshot& now, Paint paint, std::FILE* out) {
  TextTable table(
      {{"metric", Align::kLeft}, {"value"}, {"labels", Align::kLeft}, {"times", Align::kLeft}},
      paint, out);
  for (const CounterValues& series : now.series) {
    if (!series.is_shown()) continue;
    const bool is_times = series.kind == CounterKind::kTimes;
    const uint64_t number = NumberOf(series);
    table.Add({{series.name, number == 0 ? Colour::kDim : Colour::kNone},
               {fmt::format("{}", number), number == 0 ? Colour::kDim : Colour::kBold},
               series.labels,
               is_times ? TimesText(series) : ""});
  }
}

std::string StatsJson(const CounterSnapshot& now) {
  std::string text =
      fmt::format(R"({{"pid": {}, "epoch": {}, "alive": {}, "start_unix_ns": {}, "metrics": [)",
                  now.pid, now.epoch, now.is_alive, now.start_unix_ns);
  std::string_view comma = "\n";
  for (const CounterValues& series : now.series) {
    if (!series.is_shown()) continue;
    // A label's value is escaped as JSON escapes it, and its name needs none.
    std::string labels;
    bool is_quoted = false;
    bool is_name = true;
    for (size_t i = 0; i < series.labels.size(); ++i) {
      const char c = series.labels[i];
      if (is_name) labels += '"', is_name = false;
      if (is_quoted && c == '\\')
        labels += series.labels[i++];
      else if (c == '"')
        is_quoted = !is_quoted;
      if (!is_quoted && c == '=') {
        labels += "\": ";
      } else if (!is_quoted && c == ',') {
        labels += ", ";
        is_name = true;
      } else {
        labels += series.labels[i];
      }
    }
    fmt::format_to(std::back_inserter(text),
                   R"({}{{"name": "{}", "type": "{}", "labels": {{{}}}, )", comma, series.name,
                   TypeOf(series.kind), labels);
    comma = ",\n";
    if (series.kind != CounterKind::kTimes) {
      fmt::format_to(std::back_inserter(text), "\"value\": {}}}", series.value());
      continue;
    }
    fmt::format_to(
        std::back_inserter(text), "\"count\": {}, \"sum_ns\": {}, \"buckets\": [{}]}}",
        series.count(), series.sum_ns(),
        fmt::join(series.values.begin(), series.values.begin() + kTimesBounds + 1, ", "));
  }
  return text + "\n]}\n";
}

void PrintTop(const CounterSnapshot& before, const CounterSnapshot& now, double seconds,
              Paint paint, std::FILE* out) {
  std::vector<CounterValues> gained;
  for (size_t i = 0; i < now.series.size(); ++i) {
    gained.push_back(Gained(before.series[i], now.series[i]));
  }
  const auto sum = [](const std::vector<CounterValues>& series, std::string_view name) {
    uint64_t all = 0;
    for (const CounterValues& each : series) all += each.name == name ? each.value() : 0;
    return all;
  };
  const uint64_t drafts = sum(gained, "specd:spec_decode_num_drafts");
  const uint64_t drafted = sum(gained, "specd:spec_decode_num_draft_tokens");
  const uint64_t accepted = sum(gained, "specd:spec_decode_num_accepted_tokens");
  fmt::print(
      out, "{}\n",
      paint(Colour::kBold,
            fmt::format("{:.1f} rounds/s, {:.1f} tokens/s, {:.1f}% of draft tokens accepted, "
                        "{:.2f} tokens per draft",
                        static_cast<double>(sum(gained, "specd:rounds")) / seconds,
                        static_cast<double>(sum(gained, "specd:kept_tokens")) / seconds,
                        100 * Ratio(accepted, drafted),
                        drafts == 0 ? 0.0 : 1 + Ratio(accepted, drafts))));
  TextTable table({{"metric", Align::kLeft, 32},
                   {"value", Align::kRight, 12},
                   {"per second", Align::kRight, 12},
                   {"labels", Align::kLeft},
                   {"times", Align::kLeft}},
                  paint, out);
  for (size_t i = 0; i < now.series.size(); ++i) {
    const CounterValues& series = now.series[i];
    const uint64_t number = NumberOf(series);
    if (series.kind == CounterKind::kInfo || number == 0) continue;
    const bool is_gauge = series.kind == CounterKind::kGauge;
    const uint64_t change = NumberOf(gained[i]);
    const std::string rate =
        is_gauge ? "" : fmt::format("{:.1f}", static_cast<double>(change) / seconds);
    table.Add({series.name,
               {fmt::format("{}", number), Colour::kNone},
               {rate, change == 0 ? Colour::kDim : Colour::kGreen},
               series.labels,
               series.kind == CounterKind::kTimes ? TimesText(gained[i]) : ""});
  }
}

}  // namespace specd::ctl
