#include "tests/fuzz/judge/drawn_pattern.h"

namespace specd::grammar {
namespace {

// Counts of repetitions: mostly small, because nests of large ones are refused at once.
std::string DrawCount(Dice* dice) {
  constexpr const char* kLarge[] = {"9", "31", "99", "255", "1000", "2003", "16000", "65535"};
  if (dice->OneIn(25)) return dice->Pick(kLarge);
  return std::to_string(dice->Below(5));
}

std::string DrawRepetition(Dice* dice) {
  switch (dice->Below(8)) {
    case 0:
    case 1:
      return "*";
    case 2:
      return "+";
    case 3:
    case 4:
      return "?";
    case 5:
      return "{" + DrawCount(dice) + "}";
    case 6:
      return "{" + DrawCount(dice) + ",}";
    default:
      return "{" + std::to_string(dice->Below(3)) + "," + DrawCount(dice) + "}";
  }
}

// A pattern as a tree that is written while it is drawn. `parts` are what is left to draw.
class PatternDrawer {
 public:
  PatternDrawer(Dice* dice, size_t parts) : dice_(*dice), parts_(parts) {}

  std::string Alternatives(int depth) {
    std::string text = Sequence(depth);
    while (parts_ > 0 && dice_.OneIn(3)) text += "|" + Sequence(depth);
    return text;
  }

 private:
  std::string Sequence(int depth) {
    std::string text;
    do {
      if (parts_ > 0) --parts_;
      text += Atom(depth);
      if (dice_.OneIn(2)) text += DrawRepetition(&dice_);
      if (dice_.OneIn(30)) text += "?";
    } while (parts_ > 0 && !dice_.OneIn(3));
    return text;
  }

  std::string Atom(int depth) {
    constexpr const char* kAtoms[] = {"a",      "b",     "c",    "ab",      ".",      "\\d",
                                      "\\w",    "\\s",   "[ab]", "[a-z]",   "[^a]",   "\\S",
                                      "\\W",    "[0-9]", "\\.",  "\\u00e9", "é",      "[а-я]",
                                      "[^\\d]", "\\D",   "\"",   "\\\\",    "(?:a|)", "[\\s\\S]"};
    constexpr const char* kAnchors[] = {"^", "$", "\\b", "\\B"};
    constexpr const char* kGroups[] = {"(", "(", "(", "(?:", "(?:", "(?=", "(?!", "(?<=", "(?<n>"};
    if (dice_.OneIn(25)) return dice_.Pick(kAnchors);
    if (depth >= 6 || parts_ == 0 || !dice_.OneIn(3)) return dice_.Pick(kAtoms);
    // Groups that only repeat are the common ones.
    const char* open = dice_.OneIn(3) ? dice_.Pick(kGroups) : "(";
    return open + Alternatives(depth + 1) + ")";
  }

  Dice& dice_;
  size_t parts_;
};

class EbnfDrawer {
 public:
  explicit EbnfDrawer(Dice* dice)
      : dice_(*dice), num_rules_(1 + dice->Below(5)), parts_(2 + dice->Below(25)) {}

  std::string Rules() {
    std::string text;
    for (size_t rule = 0; rule < num_rules_; ++rule) {
      text += Name(rule) + " ::= " + Alternatives(0) + "\n";
    }
    return text;
  }

 private:
  static std::string Name(size_t rule) { return rule == 0 ? "root" : "r" + std::to_string(rule); }

  std::string Alternatives(int depth) {
    std::string text = Sequence(depth);
    while (dice_.OneIn(parts_ > 0 ? 2 : 4)) text += " | " + Sequence(depth);
    return text;
  }

  std::string Sequence(int depth) {
    std::string text;
    do {
      if (parts_ > 0) --parts_;
      if (!text.empty()) text += " ";
      text += Item(depth);
      if (dice_.OneIn(3)) text += DrawRepetition(&dice_);
    } while (parts_ > 0 && !dice_.OneIn(3));
    return text;
  }

  std::string Item(int depth) {
    constexpr const char* kItems[] = {
        "\"a\"",   "\"b\"", "\"ab\"", "\"\"",      "[ab]",      "[a-z]", "[^a]",   "[0-9]",
        "\"\\n\"", "\"é\"", "[а-я]",  "[^\"\\\\]", "\"{\\\"\"", "\"}\"", "\", \"", "\"x\\x41\""};
    if (dice_.OneIn(2)) return Name(dice_.Below(num_rules_));
    if (depth >= 5 || parts_ == 0 || !dice_.OneIn(4)) return dice_.Pick(kItems);
    return "(" + Alternatives(depth + 1) + ")";
  }

  Dice& dice_;
  const size_t num_rules_;
  size_t parts_;
};

}  // namespace

std::string DrawPattern(Dice* dice) {
  const size_t parts = dice->OneIn(20) ? 60 : 3 + dice->Below(12);
  return PatternDrawer(dice, parts).Alternatives(0);
}

std::string DrawShortPattern(Dice* dice) {
  constexpr const char* kPatterns[] = {"^a",   "b$",   "^k[0-9]+$", "^[a-c]+$", ".",
                                       "^.*$", "^k0$", "a{2,9}",    "^[^k]",    "^(k0|k1)",
                                       "0|1",  "^x-",  "^$",        "^k.{0,3}", "(a|b)+c",
                                       "[",    "",     "\\d{3}"};
  if (!dice->OneIn(5)) return dice->Pick(kPatterns);
  return PatternDrawer(dice, 1 + dice->Below(5)).Alternatives(0);
}

std::string DrawEbnf(Dice* dice) { return EbnfDrawer(dice).Rules(); }

}  // namespace specd::grammar
