#include "daemon/base/log_limit.h"

namespace specd {

std::optional<uint64_t> LogLimit::Take(const char* kind, uint64_t peer, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  std::pair<std::string_view, uint64_t> key(kind, peer);
  if (!entries_.contains(key) && entries_.size() >= kEntriesMax) {
    // Entries whose window is over and that left nothing out say nothing any more.
    std::erase_if(entries_, [now_ns](const auto& entry) {
      return entry.second.window_end_ns <= now_ns && entry.second.num_left_out == 0;
    });
    if (entries_.size() >= kEntriesMax) key = {"", 0};
  }
  Entry& entry = entries_[key];
  if (now_ns >= entry.window_end_ns) {
    entry.window_end_ns = now_ns + kWindowNs;
    entry.num_written = 0;
  }
  if (entry.num_written == kLines) {
    ++entry.num_left_out;
    return std::nullopt;
  }
  ++entry.num_written;
  return std::exchange(entry.num_left_out, 0);
}

}  // namespace specd
