// Modifiers are the parts of an opcode such as `ld.relaxed.gpu.u64`, each of which the decoder has
// to take: one that is left is unknown and refused.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace specd::ptx {

class Modifiers {
 public:
  explicit Modifiers(std::string_view opcode) {
    size_t begin = 0;
    while (begin <= opcode.size()) {
      const size_t end = std::min(opcode.find('.', begin), opcode.size());
      parts_.emplace_back(opcode.substr(begin, end - begin));
      begin = end + 1;
    }
    base_ = parts_.front();
    parts_.erase(parts_.begin());
    if (!parts_.empty()) type_ = parts_.back();
  }

  const std::string& base() const { return base_; }
  // The last part, which is the type where there is one.
  const std::string& type() const { return type_; }

  bool Take(std::string_view part) {
    const auto found = std::find(parts_.begin(), parts_.end(), part);
    if (found == parts_.end()) return false;
    parts_.erase(found);
    return true;
  }
  // Takes the first part that is left. Empty if none is.
  std::string TakeFirst() {
    if (parts_.empty()) return {};
    std::string part = parts_.front();
    parts_.erase(parts_.begin());
    return part;
  }
  // The parts that nobody took, with dots between them.
  std::string Rest() const {
    std::string rest;
    for (const std::string& part : parts_) rest += (rest.empty() ? "" : ".") + part;
    return rest;
  }

 private:
  std::string base_;
  std::string type_;
  std::vector<std::string> parts_;
};

}  // namespace specd::ptx
