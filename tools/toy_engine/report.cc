#include "tools/toy_engine/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "tools/toy_engine/json_string.h"
#include "tools/toy_engine/utf8.h"

namespace specd::toy {
namespace {

constexpr size_t kLabelWidth = 24;

// The numbers of one line of the table.
struct Line {
  std::string label;
  uint64_t tokens = 0;
  uint64_t rounds = 0;
  uint64_t drafts = 0;
  uint64_t accepted = 0;
  double seconds = 0.0;
  uint64_t verify_ns = 0;
  uint64_t total_ns = 0;
  std::string finish;

  // Per round of a sequence: a bigger batch must not look like a better drafter.
  double accepted_per_round = 0.0;
  double tokens_per_second = 0.0;
};

void FillRates(uint64_t sequence_rounds, Line* line) {
  if (sequence_rounds > 0) {
    line->accepted_per_round =
        static_cast<double>(line->accepted) / static_cast<double>(sequence_rounds);
  }
  if (line->seconds > 0) {
    line->tokens_per_second = static_cast<double>(line->tokens) / line->seconds;
  }
}

Line LineOf(const StreamReport& stream) {
  Line line = {.label = stream.request_id,
               .tokens = stream.tokens.size(),
               .rounds = stream.verify_ns.size(),
               .drafts = stream.num_drafts,
               .accepted = stream.num_accepted,
               .seconds = stream.seconds,
               .verify_ns = Median(stream.verify_ns),
               .total_ns = Median(stream.total_ns),
               .finish = stream.finish};
  FillRates(line.rounds, &line);
  return line;
}

Line TotalOf(const RunReport& report) {
  Line total = {.label = "total",
                .rounds = report.verify_ns.size(),
                .seconds = report.seconds,
                .verify_ns = Median(report.verify_ns),
                .total_ns = Median(report.total_ns),
                .finish = ""};
  uint64_t sequence_rounds = 0;
  for (const StreamReport& stream : report.streams) {
    total.tokens += stream.tokens.size();
    total.drafts += stream.num_drafts;
    total.accepted += stream.num_accepted;
    sequence_rounds += stream.verify_ns.size();
  }
  FillRates(sequence_rounds, &total);
  return total;
}

const StreamReport& BestOf(const RunReport& report) {
  return *std::max_element(report.streams.begin(), report.streams.end(),
                           [](const StreamReport& a, const StreamReport& b) {
                             return a.best.path.size() < b.best.path.size();
                           });
}

// Pads by characters, because fmt counts the width of some characters as two.
std::string PadLabel(std::string_view label) {
  std::string padded;
  size_t width = 0;
  for (size_t i = 0; i < label.size() && width < kLabelWidth; ++width) {
    const size_t size = DecodeUtf8(label, i).size_bytes;
    padded += label.substr(i, size);
    i += size;
  }
  return padded.append(kLabelWidth - width, ' ');
}

std::string FormatRow(const Line& line) {
  const std::string finish = line.finish.empty() ? "" : "  " + line.finish;
  return fmt::format("{} {:>7} {:>7} {:>15.2f} {:>9.0f} {:>11.1f} {:>10.1f}{}\n",
                     PadLabel(line.label), line.tokens, line.rounds, line.accepted_per_round,
                     line.tokens_per_second, static_cast<double>(line.verify_ns) / 1e3,
                     static_cast<double>(line.total_ns) / 1e3, finish);
}

std::string FormatObject(const Line& line) {
  return fmt::format(
      "{{\"name\": {}, \"tokens\": {}, \"rounds\": {}, \"drafts\": {}, \"accepted\": {}, "
      "\"accepted_per_round\": {:.4f}, \"tokens_per_second\": {:.1f}, \"verify_ns\": {}, "
      "\"total_ns\": {}, \"finish\": {}}}",
      QuoteJson(line.label), line.tokens, line.rounds, line.drafts, line.accepted,
      line.accepted_per_round, line.tokens_per_second, line.verify_ns, line.total_ns,
      QuoteJson(line.finish));
}

}  // namespace

uint64_t Median(std::vector<uint64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string FormatTable(const RunReport& report) {
  std::string table =
      fmt::format("{} {:>7} {:>7} {:>15} {:>9} {:>11} {:>10}  {}\n", PadLabel("prompt"), "tokens",
                  "rounds", "accepted/round", "tokens/s", "verify us", "specd us", "finish");
  const std::string rule(table.size() - 1, '-');
  table += rule + '\n';
  for (const StreamReport& stream : report.streams) table += FormatRow(LineOf(stream));
  table += rule + '\n' + FormatRow(TotalOf(report));
  return table +
         "accepted/round: accepted draft tokens of one sequence in one round, mean\n"
         "verify us:      median from the moment specd took a round to its completion\n"
         "specd us:       median from specd_submit to its completion\n";
}

std::string FormatComparison(const std::vector<WayReport>& ways,
                             const std::function<std::string(int32_t)>& text_of) {
  std::string text = fmt::format("{} {:>7} {:>7} {:>13} {:>15}\n", PadLabel("drafts"), "tokens",
                                 "rounds", "draft tokens", "accepted/round");
  text += std::string(text.size() - 1, '-') + '\n';
  for (const WayReport& way : ways) {
    const Line total = TotalOf(way.report);
    text += fmt::format("{} {:>7} {:>7} {:>13} {:>15.2f}\n", PadLabel(way.name), total.tokens,
                        total.rounds, way.nodes, total.accepted_per_round);
  }
  for (const WayReport& way : ways) {
    const StreamReport& stream = BestOf(way.report);
    text += fmt::format("\n{}: the best round of {}, {} accepted\n", way.name,
                        QuoteJson(stream.request_id), stream.best.path.size());
    text += DrawRound(stream.best, text_of);
  }
  return text;
}

std::string FormatJson(const RunReport& report) {
  std::string streams;
  for (const StreamReport& stream : report.streams) {
    if (!streams.empty()) streams += ", ";
    streams += FormatObject(LineOf(stream));
  }
  return fmt::format("{{\"streams\": [{}], \"total\": {}}}\n", streams,
                     FormatObject(TotalOf(report)));
}

}  // namespace specd::toy
