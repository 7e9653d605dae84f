#include "tools/specctl/metrics_doc.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "daemon/metrics/metric_table.h"
#include "ipc/counters/open_metrics.h"

namespace specd::ctl {
namespace {

constexpr std::string_view kHead = R"(# Metrics

Printed by `specctl describe` from the table, daemon/metrics/metric_list.inc. Do not edit: change the table, then
`specctl describe > docs/METRICS.md`.

A daemon keeps its counters in one file beside its socket (`--counters`), by default `/run/specd/specd.sock.counters`. `specctl` reads the
file without the daemon's help, so it answers while the daemon hangs and after it was killed; a daemon that ends by itself removes the file.

```sh
specctl stats             # a table; --json for programs
specctl top               # the same with rates, again and again
specctl metrics           # the text format of OpenMetrics
specd-http                # /metrics, /live and /ready over HTTP, on --listen=127.0.0.1:9464
```

`/ready` answers 200 while the daemon serves, and 503 before its models are loaded, while it drains, when one of its threads has stood still for
2 s, and while its device answers the [canary](OPERATIONS.md#health) wrong. `/live` answers 503 only once the daemon has ended or a thread has stood still for 30 s. `/metrics` answers 503 once the daemon has ended.

A counter has the suffix `_total` there. The names of speculation, `spec_decode_...`, and their meaning are those of vLLM: accepted / draft
tokens is the acceptance rate, and 1 + accepted / drafts the mean length of what a draft brings. Durations are in seconds, in buckets
of powers of two from 1 us to 8.4 s. The file has the totals since the start of the daemon, over sessions that run and that ended. Labels
name models, endpoints, threads and reasons, and never a request. A series with one of the labels `position`, `reason` or `code` appears with its first count.

)";

std::string Labels(const MetricRow& row) {
  std::string text(row.labels.substr(0, row.labels.find('=')));
  if (row.group == MeterGroup::kRound) text = "model";
  if (row.kind == CounterKind::kInfo) text = "version, device";
  if (!row.index_label.empty())
    text += fmt::format("{}{}", text.empty() ? "" : ", ", row.index_label);
  return text;
}

std::string_view Writer(MeterGroup group) {
  switch (group) {
    case MeterGroup::kRound:
    case MeterGroup::kVerify:
      return "verify";
    case MeterGroup::kCompile:
      return "opening";
    case MeterGroup::kControl:
      return "control";
    case MeterGroup::kPublisher:
      return "publisher";
    case MeterGroup::kText:
      break;
  }
  return "text";
}

}  // namespace

std::string MetricsDoc() {
  struct Line {
    std::vector<std::string> cells;
  };
  std::vector<Line> lines = {{{"name", "type", "labels", "thread", "meaning"}}};
  for (const MetricRow& row : MetricTable()) {
    const std::string name = fmt::format("`{}`", row.name);
    const auto known = std::find_if(lines.begin(), lines.end(),
                                    [&](const Line& line) { return line.cells[0] == name; });
    const std::string thread(Writer(row.group));
    if (known == lines.end()) {
      lines.push_back(
          {{name, std::string(TypeOf(row.kind)), Labels(row), thread, std::string(row.meaning)}});
    } else if (known->cells[3].find(thread) == std::string::npos) {
      known->cells[3] += ", " + thread;
    }
  }
  std::vector<size_t> widths(4);
  for (const Line& line : lines) {
    for (size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], line.cells[i].size());
  }
  std::string text(kHead);
  for (const Line& line : lines) {
    for (size_t i = 0; i < widths.size(); ++i) {
      text += fmt::format("| {:<{}} ", line.cells[i], widths[i]);
    }
    text += fmt::format("| {} |\n", line.cells.back());
    if (&line != &lines.front()) continue;
    for (const size_t width : widths) text += fmt::format("|{:-<{}}", "", width + 2);
    text += "|---|\n";
  }
  return text;
}

}  // namespace specd::ctl
