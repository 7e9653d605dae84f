// MetricTable has a row for each metric of metric_list.inc, for those who lay them out and describe
// them. Constant data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ipc/counters/counter_layout.h"

namespace specd {

// The struct of meters.h that holds the metric.
enum class MeterGroup { kRound, kVerify, kCompile, kControl, kPublisher, kText };

struct MetricRow {
  MeterGroup group;
  std::string_view name;
  std::string_view labels;   // constant ones
  std::string_view meaning;  // of the family; "" in its later rows
  CounterKind kind;
  size_t offset_bytes;  // in the struct
  // An array has a series for each index, with this label. The name of an index may be empty: such
  // a series never counts. Null: the row is one series.
  std::string_view index_label;
  std::string (*index_text)(size_t index);
  size_t num_series;
};

std::span<const MetricRow> MetricTable();

}  // namespace specd
