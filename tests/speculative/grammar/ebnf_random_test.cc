// Random grammars over {a, b} against a recogniser that knows only the tree the text was made from.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "speculative/grammar/front_ends/ebnf.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

constexpr int kTextSizeMax = 6;

enum class TreeKind { kLetters, kCall, kSequence, kChoice, kRepeat };

struct Tree {
  TreeKind kind = TreeKind::kLetters;
  std::string letters = {};  // kLetters: these letters, one after another
  size_t rule = 0;           // kCall
  int min = 0;               // kRepeat
  int max = 0;               // kRepeat; -1: no bound
  std::vector<Tree> parts = {};
};

class RandomGrammar {
 public:
  explicit RandomGrammar(uint64_t seed) : random_(seed) {
    num_rules_ = 1 + Draw(3);
    for (size_t i = 0; i < num_rules_; ++i) rules_.push_back(RandomTree(3));
  }

  const std::vector<Tree>& rules() const { return rules_; }

  std::string Print() {
    std::string text;
    for (size_t i = 0; i < rules_.size(); ++i) {
      text +=
          fmt::format("{}{}::={}{}{}", Name(i), Blank(false), Blank(false),
                      Print(rules_[i], /*is_atom=*/false), Draw(3) == 0 ? " # it's \"(a\n" : "\n");
    }
    return text;
  }

 private:
  size_t Draw(size_t bound) { return random_() % bound; }

  Tree RandomTree(int depth) {
    const size_t choice = depth == 0 ? Draw(2) : Draw(6);
    if (choice == 0) {
      Tree tree;
      for (size_t i = Draw(3); i > 0; --i) tree.letters += "ab"[Draw(2)];
      return tree;
    }
    if (choice == 1) return {.kind = TreeKind::kCall, .rule = Draw(num_rules_)};
    Tree tree = {.kind = choice < 3   ? TreeKind::kSequence
                         : choice < 5 ? TreeKind::kChoice
                                      : TreeKind::kRepeat};
    const size_t num_parts = tree.kind == TreeKind::kRepeat ? 1 : 2 + Draw(2);
    for (size_t i = 0; i < num_parts; ++i) tree.parts.push_back(RandomTree(depth - 1));
    tree.min = static_cast<int>(Draw(3));
    tree.max = Draw(2) == 0 ? -1 : tree.min + static_cast<int>(Draw(3));
    return tree;
  }

  static std::string Name(size_t rule) { return rule == 0 ? "root" : fmt::format("r-{}_", rule); }

  std::string Blank(bool has_lines) {
    constexpr const char* kBlanks[] = {" ", "  ", "\t", "\n", " # x | y ::= z\n "};
    return kBlanks[Draw(has_lines ? 5 : 3)];
  }

  std::string PrintLetter(char letter) {
    switch (Draw(5)) {
      case 0:
        return fmt::format("\\u{:04x}", static_cast<int>(letter));
      case 1:
        return fmt::format("\\U{:08X}", static_cast<int>(letter));
      default:
        return std::string(1, letter);
    }
  }

  std::string Print(const Tree& tree, bool is_atom) {
    if (tree.kind == TreeKind::kCall) return Name(tree.rule);
    if (tree.kind == TreeKind::kLetters) return PrintLetters(tree.letters);
    std::string text;
    if (tree.kind == TreeKind::kRepeat) {
      text = Print(tree.parts[0], true) + PrintCount(tree.min, tree.max);
    }
    for (size_t i = 0; tree.kind != TreeKind::kRepeat && i < tree.parts.size(); ++i) {
      if (i > 0) text += Blank(true) + (tree.kind == TreeKind::kChoice ? "|" + Blank(true) : "");
      text += Print(tree.parts[i], tree.kind == TreeKind::kSequence);
    }
    return is_atom || Draw(4) == 0 ? "(" + Blank(true) + text + Blank(true) + ")" : text;
  }

  std::string PrintLetters(const std::string& letters) {
    if (letters.size() == 1 && Draw(2) == 0) {
      const std::string other = letters == "a" ? "b" : "a";
      return Draw(2) == 0 ? "[" + PrintLetter(letters[0]) + "]" : "[^" + other + "]";
    }
    std::string text;
    for (const char letter : letters) text += PrintLetter(letter);
    return "\"" + text + "\"";
  }

  std::string PrintCount(int min, int max) {
    if (min == 0 && max == -1) return "*";
    if (min == 1 && max == -1) return "+";
    if (min == 0 && max == 1) return "?";
    if (max == -1) return fmt::format("{{{},}}", min);
    if (max == min) return fmt::format("{{{}}}", min);
    return fmt::format("{{{},{}{}}}", min, Blank(true), max);
  }

  std::mt19937_64 random_;
  size_t num_rules_ = 0;
  std::vector<Tree> rules_;
};

// The parts of one text that each rule matches: the least sets that satisfy the trees.
class TreeMatcher {
 public:
  TreeMatcher(const std::vector<Tree>& rules, std::string text)
      : rules_(rules), text_(std::move(text)), size_(text_.size() + 1) {
    spans_.assign(rules.size(), Spans(size_, 0));
    for (bool is_changed = true; is_changed;) {
      is_changed = false;
      for (size_t i = 0; i < rules_.size(); ++i) {
        Spans spans = Match(rules_[i]);
        is_changed |= spans != spans_[i];
        spans_[i] = std::move(spans);
      }
    }
  }

  bool Accepts() const { return (spans_[0][0] >> text_.size() & 1) != 0; }

 private:
  // Bit j of entry i: the part from i to j matches.
  using Spans = std::vector<uint32_t>;

  static Spans Join(const Spans& a, const Spans& b) {
    Spans joined(a.size(), 0);
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = i; j < a.size(); ++j) {
        if ((a[i] >> j & 1) != 0) joined[i] |= b[j];
      }
    }
    return joined;
  }

  Spans Empty() const {
    Spans spans(size_, 0);
    for (size_t i = 0; i < size_; ++i) spans[i] = 1u << i;
    return spans;
  }

  Spans Match(const Tree& tree) const {
    Spans spans(size_, 0);
    switch (tree.kind) {
      case TreeKind::kLetters:
        for (size_t i = 0; i + tree.letters.size() < size_; ++i) {
          const bool is_match = text_.compare(i, tree.letters.size(), tree.letters) == 0;
          if (is_match) spans[i] = 1u << (i + tree.letters.size());
        }
        return spans;
      case TreeKind::kCall:
        return spans_[tree.rule];
      case TreeKind::kSequence:
        spans = Empty();
        for (const Tree& part : tree.parts) spans = Join(spans, Match(part));
        return spans;
      case TreeKind::kChoice:
        for (const Tree& part : tree.parts) {
          const Spans other = Match(part);
          for (size_t i = 0; i < size_; ++i) spans[i] |= other[i];
        }
        return spans;
      case TreeKind::kRepeat:
        return MatchRepeat(tree);
    }
    return spans;
  }

  Spans MatchRepeat(const Tree& tree) const {
    const Spans once = Match(tree.parts[0]);
    Spans times = Empty();
    Spans spans(size_, 0);
    // A text of n letters needs at most n parts that are not empty, after the least count.
    const int max = tree.max >= 0 ? tree.max : tree.min + kTextSizeMax;
    for (int count = 0; count <= max; ++count) {
      for (size_t i = 0; count >= tree.min && i < size_; ++i) spans[i] |= times[i];
      times = Join(times, once);
    }
    return spans;
  }

  const std::vector<Tree>& rules_;
  const std::string text_;
  const size_t size_;
  std::vector<Spans> spans_;
};

std::vector<std::string> AllTexts() {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == kTextSizeMax) break;
    texts.push_back(texts[i] + "a");
    texts.push_back(texts[i] + "b");
  }
  return texts;
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("ebnf: random grammars accept what their trees accept") {
    const std::vector<std::string> texts = AllTexts();
    REQUIRE(texts.size() == 127);
    size_t num_accepted = 0;
    size_t num_rejected = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      RandomGrammar grammar(seed);
      const std::string printed = grammar.Print();
      INFO("seed ", seed, "\n", printed);
      GrammarRules rules;
      const absl::StatusOr<ExprId> root = ParseEbnf(printed, {}, &rules);
      REQUIRE_MESSAGE(root.ok(), std::string(root.status().message()));
      const GrammarReference reference(rules, *root);
      for (const std::string& text : texts) {
        const bool is_accepted = TreeMatcher(grammar.rules(), text).Accepts();
        ++(is_accepted ? num_accepted : num_rejected);
        if (reference.Accepts(text) != is_accepted) FAIL_CHECK("text '", text, "'");
      }
    }
    // Neither answer is rare.
    CHECK(num_accepted > 1000);
    CHECK(num_rejected > 1000);
  }
}

}  // namespace specd::grammar
