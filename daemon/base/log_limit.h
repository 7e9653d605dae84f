// LogLimit decides which lines of the log are written when a peer causes many of one kind.
//
// The first kLines of a kind and peer in a window are written, the others are counted. The first
// line of a later window tells how many were not written. Safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace specd {

class LogLimit {
 public:
  static constexpr int64_t kWindowNs = 10'000'000'000;
  static constexpr int kLines = 5;
  // Kinds and peers that are told apart. Further ones share one entry, which also tells what peers
  // left out that are gone.
  static constexpr size_t kEntriesMax = 1024;

  // The lines of this kind and peer that were left out since the last written one; nothing if this
  // one is left out too. `kind` is a literal.
  std::optional<uint64_t> Take(const char* kind, uint64_t peer, int64_t now_ns);

 private:
  struct Entry {
    int64_t window_end_ns = 0;
    int num_written = 0;
    uint64_t num_left_out = 0;
  };

  using Key = std::pair<std::string_view, uint64_t>;
  static constexpr Key kShared = {"", 0};

  // Drops the entries whose window is over. Needs the lock.
  void DropEnded(int64_t now_ns);

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace specd
