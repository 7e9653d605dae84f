// KeptTable keeps what readers may still ask for of each stream, within a time and a number of
// bytes, for KeptStreams and KeptTexts.
//
// A stream that has ended stays for `ended_ns`. If all items together take more than `bytes_max`,
// the streams that ended first go first. An ask costs what its answer holds, however many streams
// there are. One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "daemon/text/stream_names.h"

namespace specd {

struct KeepLimits {
  size_t bytes_max = size_t{64} << 20;
  int64_t ended_ns = 60'000'000'000;
};

template <class Item>
class KeptTable {
 public:
  explicit KeptTable(const KeepLimits& limits) : limits_(limits) {}
  // Not copied: entries name places in the list.
  KeptTable(KeptTable&&) = default;
  KeptTable& operator=(KeptTable&&) = default;

  Item* Find(uint64_t stream) {
    Entry* const entry = EntryOf(stream);
    return entry == nullptr ? nullptr : &entry->item;
  }
  const Item* Find(uint64_t stream) const { return const_cast<KeptTable*>(this)->Find(stream); }

  // REQUIRES: the stream is not there.
  Item* Add(uint64_t stream, const std::string& name) {
    names_.Add(name, stream);
    Entry& entry = running_[stream];
    entry.name = name;
    return &entry.item;
  }

  void Erase(uint64_t stream) {
    if (const auto found = ended_.find(stream); found != ended_.end()) {
      ends_.erase(found->second.end);
      Forget(found, &ended_);
    } else if (const auto running = running_.find(stream); running != running_.end()) {
      Forget(running, &running_);
    }
  }

  // The item holds so many bytes beside itself from now on. Streams that have ended make room for
  // it. False if there is none, and the caller has to make the item smaller.
  bool Resize(uint64_t stream, size_t held_bytes) {
    Entry& entry = *EntryOf(stream);
    const size_t bytes = kEntryBytes + 2 * entry.name.size() + held_bytes;
    bytes_ += bytes - std::exchange(entry.bytes, bytes);
    while (bytes_ > limits_.bytes_max && !ends_.empty() && ends_.front().stream != stream) {
      Erase(ends_.front().stream);
    }
    return bytes_ <= limits_.bytes_max;
  }

  // The stream has ended. Its item stays where it is.
  void End(uint64_t stream, int64_t now_ns) {
    auto node = running_.extract(stream);
    node.mapped().end = ends_.insert(ends_.end(), {stream, now_ns});
    ended_.insert(std::move(node));
  }
  void Expire(int64_t now_ns) {
    while (!ends_.empty() && now_ns - ends_.front().ended_at_ns >= limits_.ended_ns) {
      Erase(ends_.front().stream);
    }
  }

  // Calls visit(stream, item) for the streams that run, or for those that have ended, from this one
  // on, in the order of their numbers, until it returns false. With a name only for its streams.
  template <class Visit>
  void VisitFrom(uint64_t first, bool has_ended, const std::string& name, Visit visit) const {
    const Items& items = has_ended ? ended_ : running_;
    if (name.empty()) {
      for (auto at = items.lower_bound(first); at != items.end(); ++at) {
        if (!visit(at->first, at->second.item)) return;
      }
      return;
    }
    names_.VisitFrom(name, first, [&](uint64_t stream) {
      const auto found = items.find(stream);
      return found == items.end() || visit(stream, found->second.item);
    });
  }

  size_t bytes() const { return bytes_; }

 private:
  struct Ended {
    uint64_t stream = 0;
    int64_t ended_at_ns = 0;
  };
  struct Entry {
    Item item;
    std::string name;
    size_t bytes = 0;
    typename std::list<Ended>::iterator end = {};  // of a stream that has ended
  };
  using Items = std::map<uint64_t, Entry>;

  // With the nodes of the map, the list and the index of names.
  static constexpr size_t kEntryBytes = sizeof(Entry) + 256;

  // An event looks for its stream several times.
  Entry* EntryOf(uint64_t stream) {
    if (last_ != nullptr && last_stream_ == stream) return last_;
    for (Items* items : {&running_, &ended_}) {
      if (const auto found = items->find(stream); found != items->end()) {
        last_stream_ = stream;
        last_ = &found->second;
        return last_;
      }
    }
    return nullptr;
  }

  void Forget(typename Items::iterator at, Items* items) {
    if (last_ == &at->second) last_ = nullptr;
    bytes_ -= at->second.bytes;
    names_.Erase(at->second.name, at->first);
    items->erase(at);
  }

  KeepLimits limits_;
  Items running_;
  Items ended_;
  std::list<Ended> ends_;  // oldest first
  StreamNames names_;
  size_t bytes_ = 0;
  // The entry that was found last; null: none.
  uint64_t last_stream_ = 0;
  Entry* last_ = nullptr;
};

}  // namespace specd
