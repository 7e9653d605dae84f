// The clock of every measurement. Suites and scenes name it by this alias, because specd::Clock is
// the daemon's. Safe from any thread.
#pragma once

#include <chrono>

namespace specd::bench {

using SteadyClock = std::chrono::steady_clock;

}  // namespace specd::bench
