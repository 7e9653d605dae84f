#include "tools/toy_engine/round_drawing.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "tools/toy_engine/json_string.h"

namespace specd::toy {
namespace {

class Drawing {
 public:
  Drawing(const DrawnRound& round, const std::function<std::string(int32_t)>& text_of)
      : round_(round), text_of_(text_of) {}

  // Draws what follows `node`; every line begins with `indent`.
  void Draw(int32_t node, const std::string& indent) {
    std::vector<int32_t> children;
    for (size_t i = 0; i < round_.tokens.size(); ++i) {
      const int32_t parent =
          round_.parents.empty() ? static_cast<int32_t>(i) - 1 : round_.parents[i];
      if (parent == node) children.push_back(static_cast<int32_t>(i));
    }
    const int32_t last_accepted = round_.path.empty() ? -1 : round_.path.back();
    const bool has_last = node == last_accepted && round_.last_token >= 0;
    for (size_t i = 0; i < children.size(); ++i) {
      const bool is_end = i + 1 == children.size() && !has_last;
      const int32_t child = children[i];
      const std::string text = TextOf(round_.tokens[child]);
      const bool is_kept = std::count(round_.path.begin(), round_.path.end(), child) > 0;
      lines += indent + (is_end ? "`- " : "+- ") + (is_kept ? "[" + text + "]" : text) + "\n";
      Draw(child, indent + (is_end ? "   " : "|  "));
    }
    if (has_last) lines += indent + "`-> " + TextOf(round_.last_token) + "\n";
  }

  std::string lines;

 private:
  std::string TextOf(int32_t token) const { return QuoteJson(text_of_(token)); }

  const DrawnRound& round_;
  const std::function<std::string(int32_t)>& text_of_;
};

}  // namespace

std::string DrawRound(const DrawnRound& round, const std::function<std::string(int32_t)>& text_of) {
  Drawing drawing(round, text_of);
  drawing.Draw(-1, "");
  return std::move(drawing.lines);
}

}  // namespace specd::toy
