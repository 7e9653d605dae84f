#include "tools/bench/synthetic_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "kernels/core/check.h"
#include "speculative/grammar/base/utf8_text.h"

namespace specd::bench {
namespace {

// As large vocabularies have: turns, tools, end of text.
constexpr int32_t kSpecialsMax = 256;
// One drawn piece in this many is of another script than Latin.
constexpr uint32_t kForeignEvery = 5;

constexpr std::string_view kWords =
    "the of and to in is that for it as with on by be this are from at or an was have not you "
    "which can all if but they one will more has some first time new other no after only then "
    "also name value type string number integer object array true false null id key data list "
    "item items text title label user email role admin date city unit price amount order "
    "orders line lines product number tags file path mode read write open search query limit "
    "error warning info debug server session message request response code status result "
    "return function class import const var let int float double void public static self def "
    "else while for match version summary colour root left right children node tree shape "
    "shapes circle radius width height points example com org http https www index total tax "
    "average second third account address street country currency EUR USD GBP customer company "
    "level active score";
constexpr std::string_view kSyllables =
    "a e i o u an en in on er re ti te ta st al ar or is at es it le ne ra ro li ri co de di "
    "me mo pa pe po pro con com ing ion tion ment ate ive ous ly ed s able ness un ex sub "
    "inter trans ver ter man car port form log graph";
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
// Runs that JSON and code have.
constexpr std::string_view kRuns[] = {
    "\":",  "\": ", "\": \"", "\":\"", "\",",   "\", \"", "\",\"", "{\"",   "\"}",   "\"},",
    "\"],", "[\"",  "\"]",    "[{",    "}]",    "},",     "}, {",  "}}",    "}},",   "[[",
    "]]",   "],",   "], [",   "\": {", "\": [", "\":{\"", "\":[",  "{}",    "[]",    "();",
    "() {", ");\n", "{\n",    "}\n",   ",\n",   ";\n",    ">\n",   "\"\n",  "\",\n", "},\n",
    "\n\n", "//",   "/*",     "*/",    "->",    "=>",     "==",    "!=",    "<=",    ">=",
    "::",   "...",  "</",     "/>",    "\\n",   "\\\"",   "\\u",   "\\u00", "'s",    "'t"};

std::vector<std::string> Split(std::string_view words) {
  return absl::StrSplit(absl::string_view(words.data(), words.size()), ' ');
}

std::string Utf8(uint32_t character) {
  std::string text;
  grammar::AppendUtf8(character, &text);
  return text;
}

// Collects different pieces until there are enough.
class PieceList {
 public:
  explicit PieceList(size_t size) : size_(size) {}

  bool IsFull() const { return pieces_.size() == size_; }
  void Add(std::string piece) {
    if (!IsFull() && seen_.insert(piece).second) pieces_.push_back(std::move(piece));
  }
  void AddWord(const std::string& word) {
    std::string capital = word;
    if (capital[0] >= 'a' && capital[0] <= 'z') capital[0] = static_cast<char>(capital[0] - 32);
    Add(" " + word);
    Add(word);
    Add(" " + capital);
    Add(std::move(capital));
  }
  std::vector<std::string> Take() && { return std::move(pieces_); }

 private:
  const size_t size_;
  std::vector<std::string> pieces_;
  absl::flat_hash_set<std::string> seen_;
};

// Pieces that every such vocabulary has.
void AddCommon(PieceList* pieces) {
  for (int byte = 0; byte < 256; ++byte) pieces->Add(std::string(1, static_cast<char>(byte)));
  for (const std::string_view run : kRuns) pieces->Add(std::string(run));
  for (const std::string& word : Split(kWords)) pieces->AddWord(word);
  for (int number = 0; number < 1000; ++number) {
    pieces->Add(fmt::format("{}", number));
    if (number < 100) pieces->Add(fmt::format("{:02}", number));
    pieces->Add(fmt::format("{:03}", number));
  }
  for (size_t length = 2; length <= 64; ++length) {
    pieces->Add(std::string(length, ' '));
    if (length > 16) continue;
    pieces->Add(std::string(length, '\n'));
    pieces->Add(std::string(length, '\t'));
    pieces->Add("\n" + std::string(length, ' '));
  }
  for (const char first : kPunctuation) {
    pieces->Add({' ', first});
    for (const char second : kPunctuation) {
      pieces->Add({first, second});
      pieces->Add({' ', first, second});
    }
  }
  // Parts of characters: two of three bytes.
  for (uint32_t character = 0x3000; character < 0xA000; character += 64) {
    pieces->Add(Utf8(character).substr(0, 2));
  }
  for (uint32_t character = 0xA1; character < 0x530; ++character) pieces->Add(Utf8(character));
  for (uint32_t character = 0x4E00; character < 0x5E00; ++character) pieces->Add(Utf8(character));
  for (uint32_t character = 0x1F300; character < 0x1F600; ++character) {
    pieces->Add(Utf8(character));
  }
}

// Words of the alphabet that begins at `first`, of two to eight letters.
std::string DrawForeign(std::mt19937* random) {
  struct Script {
    uint32_t first;
    uint32_t num_letters;
    uint32_t length_max;
  };
  constexpr std::array<Script, 4> kScripts = {
      {{0x430, 32, 8}, {0x3B1, 24, 8}, {0x3042, 80, 4}, {0x4E00, 2000, 3}}};
  const Script& script = kScripts[(*random)() % kScripts.size()];
  std::string word = (*random)() % 2 == 0 ? " " : "";
  const uint32_t length = 2 + static_cast<uint32_t>((*random)()) % (script.length_max - 1);
  for (uint32_t i = 0; i < length; ++i) {
    word += Utf8(script.first + static_cast<uint32_t>((*random)()) % script.num_letters);
  }
  return word;
}

std::vector<std::string> MakePieces(size_t size) {
  PieceList pieces(size);
  AddCommon(&pieces);
  const std::vector<std::string> syllables = Split(kSyllables);
  std::mt19937 random(15);  // any number: the same pieces every time
  while (!pieces.IsFull()) {
    if (random() % kForeignEvery == 0) {
      pieces.Add(DrawForeign(&random));
      continue;
    }
    std::string word;
    const size_t num_syllables = 1 + random() % 4;
    for (size_t i = 0; i < num_syllables; ++i) {
      word += syllables[random() % syllables.size()];
    }
    // One in 16 each is a name, a member and the begin of a string.
    const size_t kind = random() % 16;
    if (kind < 3) {
      pieces.Add("_.\""[kind] + word);
    } else {
      pieces.AddWord(word);
    }
  }
  return std::move(pieces).Take();
}

}  // namespace

SyntheticVocabulary::SyntheticVocabulary(int32_t size) {
  SPECD_CHECK(size >= kSizeMin && size <= kVocabSizeMax);
  const int32_t num_specials = std::min(size / 16, kSpecialsMax);
  eos_id_ = size - num_specials;
  Vocabulary::Builder builder;
  TokenId id = 0;
  for (const std::string& piece : MakePieces(static_cast<size_t>(eos_id_))) {
    builder.Set(id++, piece, {});
  }
  for (; id < size; ++id) {
    builder.Set(id, id == eos_id_ ? "<|end|>" : fmt::format("<|special_{}|>", id - eos_id_),
                {.added = true, .special = true});
  }
  vocabulary_ = std::move(builder).Build();
  for (id = 0; id < eos_id_; ++id) {
    ids_.emplace(vocabulary_.Bytes(id), id);
    longest_ = std::max(longest_, vocabulary_.Bytes(id).size());
  }
}

std::vector<TokenId> SyntheticVocabulary::Tokenize(std::string_view text) const {
  std::vector<TokenId> ids;
  while (!text.empty()) {
    size_t length = std::min(longest_, text.size());
    auto found = ids_.find(text.substr(0, length));
    while (found == ids_.end()) found = ids_.find(text.substr(0, --length));
    ids.push_back(found->second);
    text.remove_prefix(length);
  }
  return ids;
}

}  // namespace specd::bench
