// The counters of a daemon as `specctl stats` and `specctl top` show them.
//
// Pure functions but for the printing. Counters come from ReadCounters, so all texts are printable.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "ipc/counters/counter_snapshot.h"
#include "tools/terminal/terminal.h"

namespace specd::ctl {

// "daemon 4711 serves, up 1h 02m": the process, what it does, and for how long.
std::string Headline(const CounterSnapshot& now, uint64_t now_unix_ns);

// A line for each series that has something to say.
void PrintStats(const CounterSnapshot& now, Paint paint, std::FILE* out);

// The same as one JSON object. Durations are in nanoseconds.
std::string StatsJson(const CounterSnapshot& now);

// The numbers that changed between two looks, with their rates, and a summary of the drafts.
// REQUIRES: both are of one daemon (IsSameDaemon).
void PrintTop(const CounterSnapshot& before, const CounterSnapshot& now, double seconds,
              Paint paint, std::FILE* out);
// True if both have the same series too: any process may have written over the file.
bool IsSameDaemon(const CounterSnapshot& a, const CounterSnapshot& b);

// "12.5 us"
std::string DurationText(uint64_t ns);

}  // namespace specd::ctl
