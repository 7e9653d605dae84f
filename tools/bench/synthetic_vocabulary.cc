#include "tools/bench/synthetic_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

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

// A word of some letters of another script.
std::string DrawForeign(std::mt19937* random) {
  struct Script {
    uint32_t first;
    uint32_t num_letters;
    uint32_t length_max;
  };
  constexpr Script kScripts[] = {
      {0x430, 32, 8}, {0x3B1, 24, 8}, {0x3042, 80, 4}, {0x4E00, 2000, 3}};
  const Script& script = kScripts[(*random)() % std::size(kScripts)];
  std::string word = (*random)() % 2 == 0 ? " " : "";
  const uint32_t length = 2 + static_cast<uint32_t>((*random)()) % (script.length_max - 1);
  for (uint32_t i = 0; i < length; ++i) {
    word += Utf8(script.first + static_cast<uint32_t>((*random)()) % script.num_letters);
  }
  return word;
}

// GPT-2's spelling of bytes as characters, for the strings of a JSON file.
std::string Spelled(std::string_view bytes) {
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<uint8_t>(each);
    const bool is_itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    uint32_t code = byte;
    if (!is_itself) {
      code = byte <= 0x20 ? 0x100 + byte : byte <= 0xA0 ? 0x121 + (byte - 0x7Fu) : 0x143;
    }
    if (code == '"' || code == '\\') text += '\\';
    grammar::AppendUtf8(code, &text);
  }
  return text;
}

}  // namespace

std::string TokenizerJson(const Vocabulary& vocabulary) {
  std::vector<std::string> added;
  std::vector<std::string> pieces;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view bytes = vocabulary.Bytes(id);
    if (vocabulary.IsSpecial(id)) {
      added.push_back(fmt::format(R"({{"id":{},"content":"{}","special":true,"normalized":false}})",
                                  id, bytes));
    } else {
      pieces.push_back(fmt::format("\"{}\":{}", Spelled(bytes), id));
    }
  }
  return fmt::format(R"({{"version":"1.0","added_tokens":[{}],"decoder":{{"type":"ByteLevel"}},)"
                     R"("model":{{"type":"BPE","vocab":{{{}}},"merges":[]}}}})",
                     fmt::join(added, ","), fmt::join(pieces, ","));
}

SyntheticVocabulary::SyntheticVocabulary(int32_t size) {
  SPECD_CHECK(size >= kSizeMin && size <= kVocabSizeMax);
  eos_id_ = size - std::min(size / 16, kSpecialsMax);
  AddCommon();
  AddDrawn();
  for (TokenId id = eos_id_; id < size; ++id) {
    builder_.Set(id, id == eos_id_ ? "<|end|>" : fmt::format("<|special_{}|>", id - eos_id_),
                 {.added = true, .special = true});
  }
  vocabulary_ = std::move(builder_).Build();
}

void SyntheticVocabulary::Add(const std::string& piece) {
  const auto id = static_cast<TokenId>(ids_.size());
  if (IsFull() || !ids_.try_emplace(piece, id).second) return;
  builder_.Set(id, piece, {});
  longest_ = std::max(longest_, piece.size());
}

void SyntheticVocabulary::AddWord(const std::string& word) {
  std::string capital = word;
  if (capital[0] >= 'a' && capital[0] <= 'z') capital[0] = static_cast<char>(capital[0] - 32);
  Add(" " + word);
  Add(word);
  Add(" " + capital);
  Add(capital);
}

void SyntheticVocabulary::AddCommon() {
  for (int byte = 0; byte < 256; ++byte) Add(std::string(1, static_cast<char>(byte)));
  for (const std::string_view run : kRuns) Add(std::string(run));
  for (const std::string& word : Split(kWords)) AddWord(word);
  for (int number = 0; number < 1000; ++number) {
    Add(fmt::format("{}", number));
    if (number < 100) Add(fmt::format("{:02}", number));
    Add(fmt::format("{:03}", number));
  }
  for (size_t length = 2; length <= 64; ++length) {
    Add(std::string(length, ' '));
    if (length > 16) continue;
    Add(std::string(length, '\n'));
    Add(std::string(length, '\t'));
    Add("\n" + std::string(length, ' '));
  }
  for (const char first : kPunctuation) {
    Add({' ', first});
    for (const char second : kPunctuation) {
      Add({first, second});
      Add({' ', first, second});
    }
  }
  // Parts of characters: two of three bytes.
  for (uint32_t character = 0x3000; character < 0xA000; character += 64) {
    Add(Utf8(character).substr(0, 2));
  }
  for (uint32_t character = 0xA1; character < 0x530; ++character) Add(Utf8(character));
  for (uint32_t character = 0x4E00; character < 0x5E00; ++character) Add(Utf8(character));
  for (uint32_t character = 0x1F300; character < 0x1F600; ++character) Add(Utf8(character));
}

void SyntheticVocabulary::AddDrawn() {
  const std::vector<std::string> syllables = Split(kSyllables);
  std::mt19937 random(15);  // any number: the same pieces every time
  while (!IsFull()) {
    if (random() % kForeignEvery == 0) {
      Add(DrawForeign(&random));
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
      Add("_.\""[kind] + word);
    } else {
      AddWord(word);
    }
  }
}

std::vector<TokenId> SyntheticVocabulary::Tokenize(std::string_view text) const {
  std::vector<TokenId> ids;
  while (!text.empty()) {
    size_t length = std::min(longest_, text.size());
    const auto find = [&] { return ids_.find(absl::string_view(text.data(), length)); };
    auto found = find();
    for (; found == ids_.end(); found = find()) --length;
    ids.push_back(found->second);
    text.remove_prefix(length);
  }
  return ids;
}

}  // namespace specd::bench
