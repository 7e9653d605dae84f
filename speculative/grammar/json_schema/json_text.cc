#include "speculative/grammar/json_schema/json_text.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/decimal.h"
#include "speculative/grammar/base/hash_tables.h"

namespace specd::grammar {
namespace {

constexpr uint32_t kControlMax = 0x1F;

// The letter of the short escape of a byte; 0 if it has none.
char ShortEscape(uint32_t byte) {
  switch (byte) {
    case '"':
    case '\\':
      return static_cast<char>(byte);
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

bool NeedsEscape(uint32_t byte) { return byte <= kControlMax || byte == '"' || byte == '\\'; }

ByteSet BytesOf(std::string_view digits) {
  ByteSet set;
  for (const char digit : digits) set.Add(static_cast<uint8_t>(digit));
  return set;
}

// Follows the escapes of one state of EscapeStrings; the helper states come after the others. Equal
// helper states are one.
class EscapeBuilder {
 public:
  explicit EscapeBuilder(ByteDfa* dfa) : dfa_(*dfa) {}

  // Bytes after `state` in the order of their values, each with its state.
  void AddRaw(uint32_t state, uint8_t first, uint8_t last, uint32_t target) {
    dfa_.states[state].edges.push_back({first, last, target});
  }
  // All escapes of `state`: pairs of a byte and its target, sorted by byte.
  uint32_t AddEscapes(const List<std::pair<uint8_t, uint32_t>>& escaped) {
    std::array<uint32_t, 256> letters;
    letters.fill(ByteDfa::kDead);
    std::array<uint32_t, 32> codes;
    codes.fill(ByteDfa::kDead);
    bool has_codes = false;
    for (const auto& [byte, target] : escaped) {
      if (const char letter = ShortEscape(byte); letter != 0) {
        letters[static_cast<uint8_t>(letter)] = target;
      } else {
        codes[byte] = target;
        has_codes = true;
      }
    }
    if (has_codes) letters['u'] = AddCodes(codes);
    return AddState(letters);
  }

 private:
  // After \u: 00, then the two digits of a control character.
  uint32_t AddCodes(const std::array<uint32_t, 32>& codes) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::array<uint32_t, 256> high;
    high.fill(ByteDfa::kDead);
    for (uint32_t row = 0; row < 2; ++row) {
      std::array<uint32_t, 256> low;
      low.fill(ByteDfa::kDead);
      bool is_used = false;
      for (uint32_t digit = 0; digit < 16; ++digit) {
        const uint32_t target = codes[row * 16 + digit];
        if (target == ByteDfa::kDead) continue;
        low[static_cast<uint8_t>(kHex[digit])] = target;
        is_used = true;
      }
      if (is_used) high[static_cast<uint8_t>('0' + row)] = AddState(low);
    }
    std::array<uint32_t, 256> zero;
    zero.fill(ByteDfa::kDead);
    zero['0'] = AddState(high);
    zero['0'] = AddState(zero);
    return AddState(zero);
  }
  uint32_t AddState(const std::array<uint32_t, 256>& targets) {
    List<ByteDfa::Edge> edges;
    for (uint32_t byte = 0; byte < targets.size(); ++byte) {
      if (targets[byte] == ByteDfa::kDead) continue;
      edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), targets[byte]});
    }
    const auto [known, is_new] =
        helpers_.try_emplace(std::move(edges), static_cast<uint32_t>(dfa_.states.size()));
    if (is_new) dfa_.states.push_back({.edges = known->first});
    return known->second;
  }

  ByteDfa& dfa_;
  HashMap<List<ByteDfa::Edge>, uint32_t> helpers_;
};

}  // namespace

std::string QuoteJson(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const uint8_t byte = c;
    if (!NeedsEscape(byte)) {
      quoted += c;
    } else if (const char letter = ShortEscape(byte); letter != 0) {
      quoted += {'\\', letter};
    } else {
      quoted += fmt::format("\\u{:04x}", byte);
    }
  }
  return quoted + '"';
}

std::string CanonicalNumber(std::string_view text) {
  constexpr size_t kPlainSizeMax = 40;
  const Decimal value = Decimal::Parse(text);
  if (!value.IsPlain()) return std::string(text);
  std::string plain = value.ToPlainText();
  return plain.size() <= kPlainSizeMax ? plain : std::string(text);
}

ByteDfa EscapeStrings(const ByteDfa& values) {
  ByteDfa dfa;
  dfa.states.resize(values.states.size());
  EscapeBuilder builder(&dfa);
  for (uint32_t state = 0; state < values.states.size(); ++state) {
    dfa.states[state].accepting = values.states[state].accepting;
    List<std::pair<uint8_t, uint32_t>> escaped;
    // Where the edge of the backslash goes, so that the edges stay sorted.
    List<ByteDfa::Edge> raw;
    for (const ByteDfa::Edge& edge : values.states[state].edges) {
      uint32_t first = edge.first;
      for (uint32_t byte = edge.first; byte <= edge.last; ++byte) {
        if (byte > '\\') break;
        if (!NeedsEscape(byte)) continue;
        if (first < byte) {
          raw.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(byte - 1), edge.target});
        }
        escaped.emplace_back(static_cast<uint8_t>(byte), edge.target);
        first = byte + 1;
      }
      if (first <= edge.last) raw.push_back({static_cast<uint8_t>(first), edge.last, edge.target});
    }
    const uint32_t backslash = escaped.empty() ? ByteDfa::kDead : builder.AddEscapes(escaped);
    bool is_added = escaped.empty();
    for (const ByteDfa::Edge& edge : raw) {
      if (!is_added && edge.first > '\\') {
        builder.AddRaw(state, '\\', '\\', backslash);
        is_added = true;
      }
      builder.AddRaw(state, edge.first, edge.last, edge.target);
    }
    if (!is_added) builder.AddRaw(state, '\\', '\\', backslash);
  }
  return dfa;
}

ExprId JsonText::Rule(std::string_view name, ExprId body) {
  const RuleId rule = rules_.AddRule(std::string(name));
  rules_.Define(rule, body);
  return rules_.Call(rule);
}

ExprId JsonText::Space() {
  if (whitespace_ == Whitespace::kCompact) return rules_.Empty();
  if (space_ == kNotBuilt) {
    // An automaton stays a rule of its own; copied into every place it would fill the network.
    ByteDfa spaces;
    for (uint32_t count = 0; count <= kWhitespaceMax; ++count) {
      ByteDfa::State& state = spaces.states.emplace_back();
      state.accepting = true;
      if (count == kWhitespaceMax) break;
      state.edges = {{'\t', '\n', count + 1}, {'\r', '\r', count + 1}, {' ', ' ', count + 1}};
    }
    space_ = Rule("JSON space", rules_.Automaton(std::move(spaces)));
  }
  return space_;
}

ExprId JsonText::Open(char bracket) {
  return rules_.Sequence({rules_.Literal({&bracket, 1}), Space()});
}

ExprId JsonText::Close(char bracket) {
  return rules_.Sequence({Space(), rules_.Literal({&bracket, 1})});
}

ExprId JsonText::Comma() {
  if (comma_ == kNotBuilt) comma_ = rules_.Sequence({Space(), rules_.Literal(","), Space()});
  return comma_;
}

ExprId JsonText::Colon() { return rules_.Sequence({Space(), rules_.Literal(":"), Space()}); }

ExprId JsonText::Boolean() {
  return rules_.AnyOf({rules_.Literal("true"), rules_.Literal("false")});
}

ExprId JsonText::Digits(uint32_t min, uint32_t max) {
  return rules_.Repeat(rules_.Bytes(ByteSet::Range('0', '9')), min, max);
}

ExprId JsonText::Integer() {
  if (integer_ != kNotBuilt) return integer_;
  const ExprId positive =
      rules_.Sequence({rules_.Bytes(ByteSet::Range('1', '9')), Digits(0, kUnbounded)});
  integer_ = rules_.AnyOf(
      {rules_.Literal("0"), rules_.Sequence({rules_.Optional(rules_.Literal("-")), positive})});
  return integer_;
}

ExprId JsonText::ZeroFraction() {
  if (zero_fraction_ != kNotBuilt) return zero_fraction_;
  const ExprId zeros = rules_.Repeat(rules_.Literal("0"), 1, kZeroDigitsMax);
  zero_fraction_ = rules_.Optional(rules_.Sequence({rules_.Literal("."), zeros}));
  return zero_fraction_;
}

ExprId JsonText::Number() {
  if (number_ != kNotBuilt) return number_;
  const ExprId whole = rules_.AnyOf(
      {rules_.Literal("0"),
       rules_.Sequence({rules_.Bytes(ByteSet::Range('1', '9')), Digits(0, kUnbounded)})});
  const ExprId fraction = rules_.Sequence({rules_.Literal("."), Digits(1, kUnbounded)});
  const ExprId exponent =
      rules_.Sequence({rules_.Bytes(BytesOf("eE")), rules_.Optional(rules_.Bytes(BytesOf("+-"))),
                       Digits(1, kUnbounded)});
  number_ = rules_.Sequence({rules_.Optional(rules_.Literal("-")), whole, rules_.Optional(fraction),
                             rules_.Optional(exponent)});
  return number_;
}

ExprId JsonText::Character() {
  if (character_ != kNotBuilt) return character_;
  CharSet raw = CharSet::Range(kControlMax + 1, kCharMax);
  raw = raw.Without(CharSet::One('"')).Without(CharSet::One('\\'));
  const ExprId hex = rules_.Bytes(BytesOf("0123456789abcdefABCDEF"));
  const ExprId hex2 = rules_.Sequence({hex, hex});
  // Surrogates come in pairs: a code that begins with D8 to DB, then one with DC to DF.
  const ExprId d = rules_.Bytes(BytesOf("dD"));
  const ExprId plain_code =
      rules_.AnyOf({rules_.Sequence({rules_.Bytes(BytesOf("0123456789abcefABCEF")), hex, hex2}),
                    rules_.Sequence({d, rules_.Bytes(BytesOf("01234567")), hex2})});
  const ExprId pair =
      rules_.Sequence({d, rules_.Bytes(BytesOf("89abAB")), hex2, rules_.Literal("\\u"), d,
                       rules_.Bytes(BytesOf("cdefCDEF")), hex2});
  const ExprId code = rules_.Sequence({rules_.Literal("u"), rules_.AnyOf({plain_code, pair})});
  const ExprId escape = rules_.Sequence(
      {rules_.Literal("\\"), rules_.AnyOf({rules_.Bytes(BytesOf("\"\\/bfnrt")), code})});
  character_ = rules_.AnyOf({rules_.Chars(raw), escape});
  return character_;
}

ExprId JsonText::String() {
  if (string_ == kNotBuilt) string_ = Rule("JSON string", String(0, kUnbounded));
  return string_;
}

ExprId JsonText::String(uint32_t min, uint32_t max) {
  const ExprId quote = rules_.Literal("\"");
  return rules_.Sequence({quote, rules_.Repeat(Character(), min, max), quote});
}

ExprId JsonText::String(const ByteDfa& values) {
  const ExprId quote = rules_.Literal("\"");
  return rules_.Sequence({quote, rules_.Automaton(EscapeStrings(values)), quote});
}

void JsonText::BuildValue() {
  const RuleId value = rules_.AddRule("JSON value");
  value_ = rules_.Call(value);
  const ExprId items = rules_.Sequence({value_, rules_.Star(rules_.Sequence({Comma(), value_}))});
  array_ = Rule("JSON array",
                rules_.Sequence({Open('['), rules_.Optional(rules_.Sequence({items, Space()})),
                                 rules_.Literal("]")}));
  const ExprId member = rules_.Sequence({String(), Colon(), value_});
  const ExprId members = rules_.Sequence({member, rules_.Star(rules_.Sequence({Comma(), member}))});
  object_ = Rule("JSON object",
                 rules_.Sequence({Open('{'), rules_.Optional(rules_.Sequence({members, Space()})),
                                  rules_.Literal("}")}));
  rules_.Define(value, rules_.AnyOf({Null(), Boolean(), Number(), String(), array_, object_}));
}

ExprId JsonText::Value() {
  if (value_ == kNotBuilt) BuildValue();
  return value_;
}

ExprId JsonText::Array() {
  if (value_ == kNotBuilt) BuildValue();
  return array_;
}

ExprId JsonText::Object() {
  if (value_ == kNotBuilt) BuildValue();
  return object_;
}

ExprId JsonText::Constant(const JsonValue& value) {
  switch (value.type) {
    case JsonType::kNull:
      return Null();
    case JsonType::kBoolean:
      return rules_.Literal(value.boolean ? "true" : "false");
    case JsonType::kNumber:
      return rules_.Literal(CanonicalNumber(value.text));
    case JsonType::kString:
      return rules_.Literal(QuoteJson(value.text));
    case JsonType::kArray:
    case JsonType::kObject:
      break;
  }
  // At most kJsonDepthMax levels, as ParseJson has seen to it.
  List<ExprId> parts = {Open(value.IsArray() ? '[' : '{')};
  for (size_t i = 0; i < value.values.size(); ++i) {
    if (i > 0) parts.push_back(Comma());
    if (value.IsObject()) {
      parts.push_back(rules_.Literal(QuoteJson(value.names[i])));
      parts.push_back(Colon());
    }
    parts.push_back(Constant(value.values[i]));
  }
  if (!value.values.empty()) parts.push_back(Space());
  parts.push_back(rules_.Literal(value.IsArray() ? "]" : "}"));
  return rules_.Sequence(parts);
}

}  // namespace specd::grammar
