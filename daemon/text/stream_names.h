// StreamNames finds the streams of a request id for KeptTable and Publisher.
//
// Several streams may have one request id, one after another or in several sessions. One thread
// uses it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace specd {

class StreamNames {
 public:
  void Add(const std::string& name, uint64_t stream) { streams_.emplace(name, stream); }
  void Erase(const std::string& name, uint64_t stream) { streams_.erase({name, stream}); }

  // Calls visit(stream) for the streams of the name from this one on, in the order of their
  // numbers, until it returns false.
  template <class Visit>
  void VisitFrom(const std::string& name, uint64_t first, Visit visit) const {
    for (auto at = streams_.lower_bound({name, first}); at != streams_.end(); ++at) {
      if (at->first != name || !visit(at->second)) return;
    }
  }

 private:
  std::set<std::pair<std::string, uint64_t>> streams_;
};

}  // namespace specd
