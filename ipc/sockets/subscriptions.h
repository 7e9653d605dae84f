// Subscriptions finds the subscribers of a topic, for Broadcaster.
//
// A subscription is a prefix of topics. Those that no topic begins with, and those beyond a
// subscriber's bound, are refused, so what a peer can make this process keep is bounded. A lookup
// costs one search for each length that some subscription has. Not synchronized.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/sockets/subscriber.h"

namespace specd {

class Subscriptions {
 public:
  static constexpr size_t kTopicBytesMax = 256;

  struct Rules {
    // True if a topic can begin with the prefix.
    bool (*admits)(std::string_view prefix) = [](std::string_view) { return true; };
    size_t prefixes_max = 1024;  // of one subscriber
  };
  explicit Subscriptions(const Rules& rules) : rules_(rules) {}

  // True if the subscriber may have a further subscription with this prefix.
  bool Admits(std::string_view prefix, const Subscriber& subscriber) const;

  // REQUIRES: it is admitted, and not there.
  void Add(std::string_view prefix, Subscriber* subscriber);
  // REQUIRES: it is there.
  void Remove(std::string_view prefix, Subscriber* subscriber);
  void RemoveAll(Subscriber* subscriber);

  // Replaces *found by the subscribers of the topic, each once.
  void Find(std::string_view topic, std::vector<Subscriber*>* found);

 private:
  void Forget(std::string_view prefix, Subscriber* subscriber);

  const Rules rules_;
  std::map<std::string, std::vector<Subscriber*>, std::less<>> by_prefix_;
  std::array<uint32_t, kTopicBytesMax + 1> num_of_length_ = {};  // different prefixes
  uint64_t num_lookups_ = 0;
};

}  // namespace specd
