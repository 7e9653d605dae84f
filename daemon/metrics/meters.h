// Meters are the values of all metrics, in one struct for each thread that writes them.
//
// DaemonMeters lays them into the counters file. A struct begins on a cache line, so no two writers
// share one. Only its thread writes a struct; any thread may read it.
#pragma once

#include "daemon/metrics/meter_types.h"
#include "ipc/counters/counter_layout.h"

namespace specd {

#define SPECD_MEMBER(member, Type, name, labels, meaning) Type member;

// Rounds of one model: the verify thread.
struct alignas(kCounterLineBytes) RoundMeters {
#define SPECD_ROUND_METRIC SPECD_MEMBER
#include "daemon/metrics/metric_list.inc"

  // Adds what a session has counted since *last, and keeps its counts there.
  void Follow(const Counters& now, Counters* last) {
#define SPECD_COUNTER(name, metric, meaning) \
  if (now.name != last->name) name += now.name - last->name;
#include "kernels/core/counter_list.inc"
    *last = now;
  }
};

// The verify thread.
struct alignas(kCounterLineBytes) VerifyMeters {
#define SPECD_VERIFY_METRIC SPECD_MEMBER
#include "daemon/metrics/metric_list.inc"
};

// Threads that compile, under the lock of DaemonMeters::CountCompile.
struct alignas(kCounterLineBytes) CompileMeters {
#define SPECD_COMPILE_METRIC SPECD_MEMBER
#include "daemon/metrics/metric_list.inc"
};

// The control thread.
struct alignas(kCounterLineBytes) ControlMeters {
#define SPECD_CONTROL_METRIC SPECD_MEMBER
#include "daemon/metrics/metric_list.inc"
};

// The publisher thread.
struct alignas(kCounterLineBytes) PublisherMeters {
#define SPECD_PUBLISHER_METRIC SPECD_MEMBER
#include "daemon/metrics/metric_list.inc"
};

// The text thread writes these. specd-detok counts for itself alone: no file has its numbers.
struct alignas(kCounterLineBytes) TextMeters {
#define SPECD_TEXT_METRIC SPECD_MEMBER
#include "daemon/metrics/metric_list.inc"
};

#undef SPECD_MEMBER

}  // namespace specd
