// Random structural tags over {a, b} against a reader that follows the definition: it looks at each
// part of the text from the left, and searches it for triggers and ends.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/front_ends/structural_tag.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

constexpr size_t kTextSizeMax = 8;

using Ends = std::set<size_t>;  // offsets of a text
using Strings = std::vector<std::string>;

struct RandomTag {
  std::string begin;
  Strings constants;  // the content is one of them; empty: any text
  Strings ends;
};

struct RandomTags {
  Strings triggers;
  std::vector<RandomTag> tags;
  bool at_least_one = false;
  bool stop_after_first = false;
  Strings excludes;
  Strings outer_ends;  // of a tag around all; empty: none is
};

class TagMaker {
 public:
  explicit TagMaker(uint64_t seed) : random_(seed) {}

  RandomTags Make() {
    RandomTags made;
    // Strings of one length do not hold one another.
    const size_t size = 1 + Draw(2);
    made.triggers = {Word(size)};
    if (Draw(2) == 0) made.triggers.push_back(Word(size));
    for (const std::string& trigger : made.triggers) made.tags.push_back(MakeTag(trigger));
    made.at_least_one = Draw(3) == 0;
    made.stop_after_first = Draw(3) == 0;
    if (Draw(3) == 0) made.excludes = {Word(size + 1)};
    if (Draw(2) == 0) {
      const std::string end = Word(size);
      if (std::find(made.triggers.begin(), made.triggers.end(), end) == made.triggers.end()) {
        made.outer_ends = {end};
      }
    }
    return made;
  }

  static std::string Json(const RandomTags& made) {
    std::vector<std::string> tags;
    for (const RandomTag& tag : made.tags) {
      std::vector<std::string> constants;
      for (const std::string& text : tag.constants) {
        constants.push_back(fmt::format(R"({{"type":"const_string","value":"{}"}})", text));
      }
      const std::string content =
          constants.empty()
              ? R"({"type":"any_text"})"
              : fmt::format(R"({{"type":"or","elements":[{}]}})", fmt::join(constants, ","));
      tags.push_back(fmt::format(R"({{"begin":"{}","content":{},"end":{}}})", tag.begin, content,
                                 List(tag.ends)));
    }
    std::string format =
        fmt::format(R"({{"type":"triggered_tags","triggers":{},"tags":[{}],"at_least_one":{},)"
                    R"("stop_after_first":{},"excludes":{}}})",
                    List(made.triggers), fmt::join(tags, ","), made.at_least_one,
                    made.stop_after_first, List(made.excludes));
    if (!made.outer_ends.empty()) {
      format = fmt::format(R"({{"type":"tag","begin":"b","content":{},"end":{}}})", format,
                           List(made.outer_ends));
    }
    return fmt::format(R"({{"type":"structural_tag","format":{}}})", format);
  }

 private:
  size_t Draw(size_t bound) { return random_() % bound; }

  std::string Word(size_t size) {
    std::string word;
    for (; size > 0; --size) word += "ab"[Draw(2)];
    return word;
  }

  RandomTag MakeTag(const std::string& trigger) {
    RandomTag tag = {.begin = trigger + Word(Draw(2)), .constants = {}, .ends = {}};
    for (size_t count = Draw(3); count > 0; --count) tag.constants.push_back(Word(Draw(3)));
    for (size_t count = 1 + Draw(2); count > 0; --count) tag.ends.push_back(Word(1 + Draw(2)));
    return tag;
  }

  static std::string List(const Strings& strings) {
    return strings.empty() ? "[]" : fmt::format("[\"{}\"]", fmt::join(strings, "\",\""));
  }

  std::mt19937_64 random_;
};

class Reader {
 public:
  Reader(const RandomTags& made, std::string_view text) : made_(made), text_(text) {}

  bool Accepts() const {
    if (made_.outer_ends.empty()) return ReadAll(0).contains(text_.size());
    return text_.starts_with("b") && ReadAll(1).contains(text_.size());
  }

 private:
  bool IsAt(size_t offset, const std::string& word) const {
    return text_.substr(offset).starts_with(word);
  }

  // Where the first part of the text from `begin` ends that ends with one of the words; npos:
  // none does.
  size_t FirstEnd(size_t begin, const Strings& words) const {
    for (size_t end = begin + 1; end <= text_.size(); ++end) {
      for (const std::string& word : words) {
        if (text_.substr(begin, end - begin).ends_with(word)) return end;
      }
    }
    return std::string_view::npos;
  }

  Ends ReadTag(size_t begin) const {
    Ends ends;
    for (const RandomTag& tag : made_.tags) {
      if (!IsAt(begin, tag.begin)) continue;
      const size_t content = begin + tag.begin.size();
      if (tag.constants.empty()) {
        const size_t end = FirstEnd(content, tag.ends);
        if (end != std::string_view::npos) ends.insert(end);
      }
      for (const std::string& constant : tag.constants) {
        if (!IsAt(content, constant)) continue;
        for (const std::string& end : tag.ends) {
          const size_t offset = content + constant.size();
          if (IsAt(offset, end)) ends.insert(offset + end.size());
        }
      }
    }
    return ends;
  }

  Ends ReadOuterEnd(const Ends& begins) const {
    if (made_.outer_ends.empty()) return begins;
    Ends ends;
    for (const size_t begin : begins) {
      for (const std::string& end : made_.outer_ends) {
        if (IsAt(begin, end)) ends.insert(begin + end.size());
      }
    }
    return ends;
  }

  Ends ReadAll(size_t begin) const {
    if (!made_.at_least_one) return ReadTextAndTags(begin);
    const Ends after_tag = ReadTag(begin);
    if (made_.stop_after_first) return ReadOuterEnd(after_tag);
    Ends ends;
    for (const size_t end : after_tag) ends.merge(ReadTextAndTags(end));
    return ends;
  }

  Ends ReadTextAndTags(size_t begin) const {
    const size_t excluded = FirstEnd(begin, made_.excludes);
    const size_t trigger = FirstEnd(begin, made_.triggers);
    const size_t outer = FirstEnd(begin, made_.outer_ends);
    const size_t first = std::min({excluded, trigger, outer});
    if (first == std::string_view::npos) {
      return made_.outer_ends.empty() ? Ends{text_.size()} : Ends{};
    }
    if (first == excluded) return {};
    if (first == outer) return {outer};
    const Ends after_tag = ReadTag(trigger - made_.triggers[0].size());
    if (made_.stop_after_first) return ReadOuterEnd(after_tag);
    Ends ends;
    for (const size_t end : after_tag) ends.merge(ReadTextAndTags(end));
    return ends;
  }

  const RandomTags& made_;
  const std::string_view text_;
};

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("structural tag: random tags accept what a reader by definition accepts") {
    Strings texts = {""};
    for (size_t i = 0; i < texts.size() && texts[i].size() < kTextSizeMax; ++i) {
      texts.push_back(texts[i] + "a");
      texts.push_back(texts[i] + "b");
    }
    size_t num_compared = 0;
    size_t num_accepted = 0;
    for (uint64_t seed = 0; seed < 250; ++seed) {
      const RandomTags made = TagMaker(seed).Make();
      const std::string json = TagMaker::Json(made);
      INFO("seed ", seed, "\n", json);
      GrammarRules rules;
      std::vector<std::string> warnings;
      const absl::StatusOr<ExprId> root = BuildStructuralTag(json, {}, &rules, &warnings);
      REQUIRE_MESSAGE(root.ok(), std::string(root.status().message()));
      const GrammarReference reference(rules, *root);
      for (const std::string& text : texts) {
        const bool is_accepted = Reader(made, text).Accepts();
        ++num_compared;
        num_accepted += is_accepted ? 1 : 0;
        if (reference.Accepts(text) != is_accepted) FAIL_CHECK("text '", text, "'");
      }
    }
    CHECK(num_compared == 250 * 511);
    CHECK(num_accepted > 5000);
  }
}

}  // namespace specd::grammar
