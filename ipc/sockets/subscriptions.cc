#include "ipc/sockets/subscriptions.h"

#include <algorithm>

namespace specd {

bool Subscriptions::Admits(std::string_view prefix, const Subscriber& subscriber) const {
  return prefix.size() <= kTopicBytesMax && subscriber.prefixes.size() < rules_.prefixes_max &&
         rules_.admits(prefix);
}

void Subscriptions::Add(std::string_view prefix, Subscriber* subscriber) {
  subscriber->prefixes.emplace(prefix);
  std::vector<Subscriber*>& subscribers = by_prefix_[std::string(prefix)];
  if (subscribers.empty()) ++num_of_length_[prefix.size()];
  subscribers.push_back(subscriber);
}

void Subscriptions::Remove(std::string_view prefix, Subscriber* subscriber) {
  subscriber->prefixes.erase(subscriber->prefixes.find(prefix));
  Forget(prefix, subscriber);
}

void Subscriptions::RemoveAll(Subscriber* subscriber) {
  for (const std::string& prefix : subscriber->prefixes) Forget(prefix, subscriber);
  subscriber->prefixes.clear();
}

void Subscriptions::Forget(std::string_view prefix, Subscriber* subscriber) {
  const auto found = by_prefix_.find(prefix);
  std::erase(found->second, subscriber);
  if (!found->second.empty()) return;
  --num_of_length_[prefix.size()];
  by_prefix_.erase(found);
}

void Subscriptions::Find(std::string_view topic, std::vector<Subscriber*>* found) {
  found->clear();
  ++num_lookups_;
  for (size_t length = 0; length <= std::min(topic.size(), kTopicBytesMax); ++length) {
    if (num_of_length_[length] == 0) continue;
    const auto subscribers = by_prefix_.find(topic.substr(0, length));
    if (subscribers == by_prefix_.end()) continue;
    for (Subscriber* subscriber : subscribers->second) {
      if (subscriber->matched_by == num_lookups_) continue;
      subscriber->matched_by = num_lookups_;
      found->push_back(subscriber);
    }
  }
}

}  // namespace specd
