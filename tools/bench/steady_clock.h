// The clock of every measurement.
#pragma once

#include <chrono>

namespace specd::bench {

using SteadyClock = std::chrono::steady_clock;

}  // namespace specd::bench
