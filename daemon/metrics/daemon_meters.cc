#include "daemon/metrics/daemon_meters.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <utility>

#include "daemon/metrics/metric_table.h"

namespace specd {
namespace {

using Meters = DaemonMeters::Meters;

// Where a group begins among the values, for the model of this index.
size_t GroupOffset(MeterGroup group, size_t model) {
  switch (group) {
    case MeterGroup::kVerify:
      return offsetof(Meters, verify);
    case MeterGroup::kCompile:
      return offsetof(Meters, compile);
    case MeterGroup::kControl:
      return offsetof(Meters, control);
    case MeterGroup::kPublisher:
      return offsetof(Meters, publisher);
    case MeterGroup::kText:
      return offsetof(Meters, text);
    case MeterGroup::kRound:
      break;
  }
  return sizeof(Meters) + model * sizeof(RoundMeters);
}

// A label with its value as an exposition wants it.
std::string Label(std::string_view name, std::string_view value) {
  std::string text = fmt::format("{}=\"", name);
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return text + '"';
}

std::string Joined(const std::vector<std::string>& labels) {
  std::string text;
  for (const std::string& label : labels) {
    if (!label.empty()) text += (text.empty() ? "" : ",") + label;
  }
  return text;
}

void AddRow(const MetricRow& row, const DaemonMeters::Options& options, size_t model,
            std::vector<CounterSeries>* series) {
  std::vector<std::string> labels = {std::string(row.labels)};
  if (row.group == MeterGroup::kRound && !options.models[model].empty()) {
    labels.push_back(Label("model", options.models[model]));
  }
  if (row.kind == CounterKind::kInfo) {
    labels.push_back(Label("version", options.version));
    labels.push_back(Label("device", options.device));
  }
  const size_t first = (GroupOffset(row.group, model) + row.offset_bytes) / sizeof(uint64_t);
  labels.emplace_back();  // of the index
  for (size_t i = 0; i < row.num_series; ++i) {
    const bool is_array = row.index_text != nullptr;
    const std::string text = is_array ? row.index_text(i) : "";
    if (is_array && text.empty()) continue;
    if (is_array) labels.back() = Label(row.index_label, text);
    series->push_back({.name = std::string(row.name),
                       .labels = Joined(labels),
                       .help = std::string(row.meaning),
                       .kind = row.kind,
                       .is_optional = is_array,
                       .first_value = first + i,
                       .num_values = row.kind == CounterKind::kTimes ? kTimesValues : 1});
  }
}

}  // namespace

CounterPlan PlanMeters(const DaemonMeters::Options& options) {
  CounterPlan plan = {
      .series = {},
      .num_values = GroupOffset(MeterGroup::kRound, options.models.size()) / sizeof(uint64_t),
      .epoch = options.epoch};
  // A family stands where its first row stands, with the meaning of that row.
  const std::span<const MetricRow> rows = MetricTable();
  for (auto first = rows.begin(); first != rows.end(); ++first) {
    const auto is_same = [first](const MetricRow& row) { return row.name == first->name; };
    if (std::find_if(rows.begin(), first, is_same) != first) continue;
    for (auto row = first; row != rows.end(); ++row) {
      if (!is_same(*row)) continue;
      MetricRow with_meaning = *row;
      with_meaning.meaning = first->meaning;
      const size_t num_models = row->group == MeterGroup::kRound ? options.models.size() : 1;
      for (size_t i = 0; i < num_models; ++i) AddRow(with_meaning, options, i, &plan.series);
    }
  }
  return plan;
}

absl::StatusOr<std::unique_ptr<DaemonMeters>> DaemonMeters::Create(const Options& options) {
  absl::StatusOr<CounterFile> file = CounterFile::Create(options.path, PlanMeters(options));
  if (!file.ok()) return file.status();
  return std::unique_ptr<DaemonMeters>(new DaemonMeters(*std::move(file), options));
}

DaemonMeters::DaemonMeters(CounterFile file, const Options& options)
    : file_(std::move(file)), meters_(new (file_.values()) Meters) {
  char* next = static_cast<char*>(file_.values()) + sizeof(Meters);
  for (const std::string& model : options.models) {
    rounds_.emplace(model, new (next) RoundMeters);
    next += sizeof(RoundMeters);
  }
  meters_->control.identity.Set(1);
  meters_->control.start_time.Set(static_cast<uint64_t>(std::time(nullptr)));
}

void DaemonMeters::CountCompile(bool is_refused, int64_t ns) {
  MutexLock lock(&compile_mutex_);
  meters_->compile.compile.Add(ns);
  if (is_refused) ++meters_->compile.refused;
}

Counters DaemonMeters::Sums() const {
  Counters sums;
  for (const auto& [model, meters] : rounds_) {
#define SPECD_COUNTER(name, metric, meaning) sums.name += meters->name.value();
#include "kernels/core/counter_list.inc"
  }
  return sums;
}

}  // namespace specd
