#include "tools/http/health.h"

#include <fmt/format.h>

namespace specd::http {

void Health::Look(const absl::StatusOr<CounterSnapshot>& found, int64_t now_ns) {
  if (found.ok()) {
    verdict_ = Judge(*found, now_ns);
  } else {
    verdict_ = {.why = std::string(found.status().message())};
  }
}

Health::Verdict Health::Judge(const CounterSnapshot& now, int64_t now_ns) {
  if (now.epoch != epoch_) beats_.clear();
  epoch_ = now.epoch;
  if (!now.is_alive) return {.why = fmt::format("the daemon (pid {}) has ended", now.pid)};
  int64_t still_ns = 0;
  std::string who;
  for (const CounterValues& series : now.series) {
    // A thread that the daemon does not have never looks.
    if (series.name != "specd:thread_beats" || series.value() == 0) continue;
    const auto [beat, is_new] =
        beats_.try_emplace(series.labels, Beat{.count = series.value(), .moved_ns = now_ns});
    if (beat->second.count != series.value()) {
      beat->second = {.count = series.value(), .moved_ns = now_ns};
    }
    if (now_ns - beat->second.moved_ns <= still_ns) continue;
    still_ns = now_ns - beat->second.moved_ns;
    who = series.labels;
  }
  const bool is_live = still_ns < kDeadNs;
  if (still_ns >= kStillNs) {
    return {.is_live = is_live,
            .why = fmt::format("{} stands still for {:.1f} s", who,
                               static_cast<double>(still_ns) / 1e9)};
  }
  const CounterValues* const state = now.Find("specd:state");
  const uint64_t phase = state == nullptr ? 0 : state->value();
  if (phase == 0) return {.is_live = true, .why = "the daemon starts"};
  if (phase != 1) return {.is_live = true, .why = "the daemon drains"};
  const CounterValues* const failing = now.Find("specd:canary_failing");
  if (failing != nullptr && failing->value() > 0) {
    return {.is_live = true,
            .why = fmt::format("the device answers the canary wrong, {} in a row; the daemon's log "
                               "has the answer",
                               failing->value())};
  }
  return {.is_live = true, .is_ready = true, .why = "the daemon serves"};
}

}  // namespace specd::http
