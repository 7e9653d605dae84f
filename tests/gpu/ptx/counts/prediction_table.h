// PredictionLine and LaunchLine are the lines of specd_ptx_counts: the predicted time of a round
// beside a read of its rows, and that of each of its launches. Pure functions.
#pragma once

#include "tests/gpu/ptx/counts/launch_model.h"
#include "tests/gpu/ptx/counts/round_counter.h"
#include "tools/bench/cells.h"
#include "tools/bench/output.h"

namespace specd::ptx {

// `counts` are those of the cell on this device.
bench::Line PredictionLine(const bench::Cell& cell, const RoundCounts& counts,
                           const DeviceFigures& device);

// Ends with the functions in which the longest warp is for a tenth of its time or more.
bench::Line LaunchLine(const bench::Cell& cell, const LaunchProfile& launch,
                       const DeviceFigures& device);

}  // namespace specd::ptx
