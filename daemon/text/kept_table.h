// KeptTable keeps what readers may still ask for of each stream, within a time and a number of
// bytes, for KeptStreams and KeptTexts.
//
// A stream that has ended stays for `ended_ns`. If all items together take more than `bytes_max`,
// the streams that ended first go first. One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

namespace specd {

struct KeepLimits {
  size_t bytes_max = size_t{64} << 20;
  int64_t ended_ns = 60'000'000'000;
};

template <class Item>
class KeptTable {
 public:
  explicit KeptTable(const KeepLimits& limits) : limits_(limits) {}

  Item* Find(uint64_t stream) {
    const auto found = items_.find(stream);
    return found == items_.end() ? nullptr : &found->second.item;
  }
  const Item* Find(uint64_t stream) const { return const_cast<KeptTable*>(this)->Find(stream); }

  // REQUIRES: the stream is not there.
  Item* Add(uint64_t stream) { return &items_[stream].item; }

  void Erase(uint64_t stream) {
    const auto found = items_.find(stream);
    if (found == items_.end()) return;
    bytes_ -= found->second.bytes;
    items_.erase(found);
  }

  // The item takes so many bytes from now on. Streams that have ended make room for it. False if
  // there is none, and the caller has to make the item smaller.
  bool Resize(uint64_t stream, size_t bytes) {
    Entry& entry = items_.at(stream);
    bytes_ += bytes - std::exchange(entry.bytes, bytes);
    while (bytes_ > limits_.bytes_max && !ended_.empty() && ended_.front().stream != stream) {
      DropOldest();
    }
    return bytes_ <= limits_.bytes_max;
  }

  void End(uint64_t stream, int64_t now_ns) { ended_.push_back({stream, now_ns}); }
  void Expire(int64_t now_ns) {
    while (!ended_.empty() && now_ns - ended_.front().ended_at_ns >= limits_.ended_ns) DropOldest();
  }

  // Calls visit(stream, item) from this stream on, in the order of their numbers, until it returns
  // false.
  template <class Visit>
  void VisitFrom(uint64_t first, Visit visit) const {
    for (auto at = items_.lower_bound(first); at != items_.end(); ++at) {
      if (!visit(at->first, at->second.item)) return;
    }
  }

  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Item item;
    size_t bytes = 0;
  };
  struct Ended {
    uint64_t stream = 0;
    int64_t ended_at_ns = 0;
  };

  void DropOldest() {
    Erase(ended_.front().stream);
    ended_.pop_front();
  }

  KeepLimits limits_;
  std::map<uint64_t, Entry> items_;
  std::deque<Ended> ended_;  // oldest first
  size_t bytes_ = 0;
};

}  // namespace specd
