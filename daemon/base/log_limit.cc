#include "daemon/base/log_limit.h"

namespace specd {

std::optional<uint64_t> LogLimit::Take(const char* kind, uint64_t peer, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  Key key(kind, peer);
  if (!entries_.contains(key) && entries_.size() >= kEntriesMax) {
    DropEnded(now_ns);
    if (entries_.size() >= kEntriesMax) key = kShared;
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

void LogLimit::DropEnded(int64_t now_ns) {
  uint64_t num_left_out = 0;
  std::erase_if(entries_, [&](const auto& entry) {
    if (entry.first == kShared || entry.second.window_end_ns > now_ns) return false;
    num_left_out += entry.second.num_left_out;
    return true;
  });
  if (num_left_out > 0) entries_[kShared].num_left_out += num_left_out;
}

}  // namespace specd
