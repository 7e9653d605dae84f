// OpenMetrics writes counters in the text format of OpenMetrics 1.0.0, which Prometheus scrapes.
//
// A counter has the suffix _total, as the format wants it; there are no _created lines. Durations
// are in seconds. Pure functions.
#pragma once

#include <string>

#include "ipc/counters/counter_snapshot.h"

namespace specd {

inline constexpr char kOpenMetricsType[] =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

std::string OpenMetrics(const CounterSnapshot& snapshot);

// "seconds" or "bytes", which the name of such a family ends with; "" for a plain number.
std::string_view UnitOf(std::string_view name);

// "counter", "gauge", "histogram" or "info".
std::string_view TypeOf(CounterKind kind);

// 0.000128 for 128,000: the shortest decimal number of this many seconds.
std::string SecondsText(uint64_t ns);

}  // namespace specd
