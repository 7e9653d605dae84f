#include "speculative/grammar/json_schema/string_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/front_ends/regex.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

absl::StatusOr<ByteDfa> Compile(std::string_view pattern) {
  GrammarRules rules;
  const absl::StatusOr<ExprId> expr = ParseRegex(pattern, {}, &rules);
  if (!expr.ok()) return expr.status();
  return Determinize(rules, *expr);
}

// Many calendars lack the year 0000.
constexpr std::string_view kYear = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";

// RFC 3339 section 5.6: full-date, with the days that each month has (appendix C).
std::string DatePattern() {
  constexpr std::string_view kLeapYear =
      "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)";
  constexpr std::string_view kDays28 = "(0[1-9]|1[0-9]|2[0-8])";
  constexpr std::string_view kMonthsWith30 = "(0[13-9]|1[0-2])";
  constexpr std::string_view kMonthsWith31 = "(0[13578]|1[02])";
  return fmt::format("({0}-(0[1-9]|1[0-2])-{1}|{0}-{2}-(29|30)|{0}-{3}-31|{4}-02-29)", kYear,
                     kDays28, kMonthsWith30, kMonthsWith31, kLeapYear);
}

constexpr std::string_view kHour = "([01][0-9]|2[0-3])";
constexpr std::string_view kFraction = "(\\.[0-9]+)?";

// RFC 3339 section 5.6: full-time, without its leap seconds.
std::string TimePattern() {
  return fmt::format("{0}:[0-5][0-9]:[0-5][0-9]{1}([Zz]|[+-]{0}:[0-5][0-9])", kHour, kFraction);
}

// A leap second ends a day of UTC (RFC 3339 section 5.7). With an offset its local time would need
// hundreds of states, so it is offered in UTC alone.
std::string LeapSecondPattern() { return fmt::format("23:59:60{}([Zz]|[+-]00:00)", kFraction); }

// Leap seconds are at the end of June and December.
std::string DateTimePattern() {
  return fmt::format("{}[Tt]{}|{}-(06-30|12-31)[Tt]{}", DatePattern(), TimePattern(), kYear,
                     LeapSecondPattern());
}

// RFC 2673 section 3.2: dotted-quad, without leading zeros.
constexpr std::string_view kIpv4Byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

std::string Ipv4Pattern() { return fmt::format("({0}\\.){{3}}{0}", kIpv4Byte); }

// RFC 3986 section 3.2.2: IPv6address, which is the text of RFC 4291 section 2.2.
std::string Ipv6Pattern() {
  constexpr std::string_view kGroup = "[0-9a-fA-F]{1,4}";
  const std::string last = fmt::format("({0}:{0}|{1})", kGroup, Ipv4Pattern());
  std::string pattern = fmt::format("({0}:){{6}}{1}", kGroup, last);
  // With ::, at most `before` groups stand before it, and exactly `after` and the last 32 bits
  // after it.
  for (int after = 5; after >= 0; --after) {
    const int before = 5 - after;
    const std::string head =
        before == 0 ? "" : fmt::format("(({0}:){{0,{1}}}{0})?", kGroup, before - 1);
    pattern += fmt::format("|{0}::({1}:){{{2}}}{3}", head, kGroup, after, last);
  }
  pattern += fmt::format("|(({0}:){{0,5}}{0})?::{0}", kGroup);
  pattern += fmt::format("|(({0}:){{0,6}}{0})?::", kGroup);
  return fmt::format("({})", pattern);
}

// RFC 1123 section 2.1. Labels with -- in their third place are names of another alphabet (RFC 5890
// section 2.3.1). They are left out: one of xn-- is right only if it decodes to letters that make a
// name (RFC 5891 section 5.4), and an automaton of those labels would be several times this one.
constexpr std::string_view kLabelPattern = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";

absl::StatusOr<ByteDfa> HostnameAutomaton() {
  absl::StatusOr<ByteDfa> labels = Compile(fmt::format("{0}(\\.{0})*", kLabelPattern));
  if (!labels.ok()) return labels;
  absl::StatusOr<ByteDfa> tagged = Compile("([a-zA-Z0-9.-]*\\.)?[a-zA-Z0-9-]{2}--[a-zA-Z0-9.-]*");
  if (!tagged.ok()) return tagged;
  absl::StatusOr<ByteDfa> untagged = Subtract(*labels, *tagged);
  if (!untagged.ok()) return untagged;
  // RFC 1035 section 2.3.4: 255 bytes with the lengths of the labels, so 253 characters.
  absl::StatusOr<ByteDfa> length = Compile("[a-zA-Z0-9.-]{1,253}");
  if (!length.ok()) return length;
  return Intersect(*untagged, *length);
}

// Letters of RFC 5892 that need no rule of their own: they are lower case where there is a case,
// combine with nothing and are written from left to right.
constexpr std::string_view kLetters =
    "a-z\\u00DF-\\u00F6\\u00F8-\\u00FF\\u03AC-\\u03CE\\u0430-\\u045F\\u3041-\\u3096\\u30A1-\\u30FA"
    "\\u4E00-\\u9FA5\\uAC00-\\uD7A3";

// RFC 5890 section 2.3.2.1: names with U-labels. Ten letters have at most 54 bytes as an A-label,
// and four of them are a short enough name.
absl::StatusOr<ByteDfa> IdnHostnameAutomaton() {
  absl::StatusOr<ByteDfa> ascii = HostnameAutomaton();
  if (!ascii.ok()) return ascii;
  absl::StatusOr<ByteDfa> letters =
      Compile(fmt::format("[{0}]{{1,10}}(\\.[{0}]{{1,10}}){{0,3}}", kLetters));
  if (!letters.ok()) return letters;
  return Unite(*ascii, *letters);
}

// RFC 5321 section 4.1.2: Local-part "@" ( Domain / address-literal ); section 4.5.3.1: 64 bytes
// before the @. Five labels of 32 keep the domain short without counting it. RFC 6531 section 3.3
// adds other letters; 16 characters of them have at most 64 bytes.
absl::StatusOr<ByteDfa> EmailAutomaton(bool is_international) {
  const std::string_view letters = is_international ? kLetters : "a-z";
  const std::string atom = fmt::format("[{}A-Z0-9!#$%&'*+/=?^_`{{|}}~-]+", letters);
  absl::StatusOr<ByteDfa> names =
      Compile(fmt::format(R"re({0}(\.{0})*|"([ !#-\[\]-~{1}]|\\[ -~])*")re", atom, letters));
  absl::StatusOr<ByteDfa> length = Compile(fmt::format("[ -~]{{1,64}}|[ -~{}]{{1,16}}", letters));
  if (!names.ok() || !length.ok()) return names.ok() ? length : names;
  absl::StatusOr<ByteDfa> local = Intersect(*names, *length);
  if (!local.ok()) return local;
  std::string domain = "([a-zA-Z0-9](([a-zA-Z0-9]|-[a-zA-Z0-9]){0,15})\\.){1,4}[a-zA-Z]{2,32}";
  domain += fmt::format("|\\[({}|IPv6:{})\\]", Ipv4Pattern(), Ipv6Pattern());
  if (is_international) {
    domain += fmt::format("|[{0}]{{1,10}}(\\.[{0}]{{1,10}}){{1,3}}", kLetters);
  }
  GrammarRules rules;
  const absl::StatusOr<ExprId> host = ParseRegex(domain, {}, &rules);
  if (!host.ok()) return host.status();
  return Determinize(
      rules, rules.Sequence({rules.Automaton(*std::move(local)), rules.Literal("@"), *host}));
}

constexpr std::string_view kEscaped = "%[0-9a-fA-F]{2}";
// RFC 3987 section 2.2: ucschar of the first four planes, and iprivate of the first.
constexpr std::string_view kUcsChars =
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{"
    "30000}-"
    "\\u{3FFFD}";
constexpr std::string_view kPrivateChars = "\\uE000-\\uF8FF";

// The rules of RFC 3986 that a URI and a relative reference share. RFC 3987 adds characters.
class UriPatterns {
 public:
  explicit UriPatterns(bool is_international)
      : letters_(is_international ? kUcsChars : ""),
        private_(is_international ? kPrivateChars : "") {}

  // A scheme, and an authority with a path or a path alone, as in mailto: and urn:.
  std::string Absolute() const {
    return fmt::format("[a-zA-Z][a-zA-Z0-9+.-]*:({}|/?({}+{})?){}", Authority(), Char(":@"), Path(),
                       Rest());
  }
  // A first segment without a colon cannot be read as a scheme.
  std::string Relative() const {
    return fmt::format("({}|/({}+{})?|({}+{})?){}", Authority(), Char(":@"), Path(), Char("@"),
                       Path(), Rest());
  }

 private:
  std::string Char(std::string_view more) const {
    return fmt::format("([a-zA-Z0-9._~!$&'()*+,;={}{}-]|{})", more, letters_, kEscaped);
  }
  std::string Path() const { return fmt::format("(/{}*)*", Char(":@")); }
  std::string Authority() const {
    return fmt::format("//({}*@)?({}*|\\[{}\\])(:[0-9]*)?{}", Char(":"), Char(""), Ipv6Pattern(),
                       Path());
  }
  std::string Rest() const {
    return fmt::format("(\\?{}*)?(#{}*)?", Char(fmt::format(":@/?{}", private_)), Char(":@/?"));
  }

  const std::string_view letters_;
  const std::string_view private_;
};

std::string UriPattern(bool is_international, bool is_reference) {
  const UriPatterns patterns(is_international);
  return is_reference ? fmt::format("{}|{}", patterns.Absolute(), patterns.Relative())
                      : patterns.Absolute();
}

// RFC 6570 section 2, without the operators that it reserves.
std::string UriTemplatePattern() {
  const std::string character = fmt::format("([a-zA-Z0-9_]|{})", kEscaped);
  const std::string variable = fmt::format("{0}(\\.?{0})*(:[1-9][0-9]{{0,3}}|\\*)?", character);
  return fmt::format("([!#$&(-;=?-\\[\\]_a-z~{}{}]|{}|\\{{[+#./;?&]?{}(,{})*\\}})*", kUcsChars,
                     kPrivateChars, kEscaped, variable, variable);
}

// RFC 6901 section 3.
constexpr std::string_view kJsonPointerPattern = "(/([^/~]|~[01])*)*";

// Expressions of ECMA-262 that every dialect reads alike, with groups at most `depth` levels deep.
std::string RegexPattern(int depth) {
  constexpr std::string_view kCount = "(([*+?]|\\{[0-9]{1,3},?\\})\\?{0,1}){0,1}";
  constexpr std::string_view kEscape = R"(\\[dDwWsSnrtfv^$\\.*+?()\[\]{}|/])";
  const std::string char_class =
      fmt::format(R"(\[\^?(a-z|A-Z|0-9|[a-zA-Z0-9_ .,:;@!#%*+=<>'"/$?]|{})+\])", kEscape);
  std::string item = fmt::format(R"(([^\\^$.*+?()\[\]{{}}|\u0000-\u001F]|\.|{}|{}){}|[$^])",
                                 kEscape, char_class, kCount);
  if (depth > 0) {
    const std::string inside = RegexPattern(depth - 1);
    item += fmt::format(R"(|\((\?:)?{0}\){1}|\(\?[=!]{0}\))", inside, kCount);
  }
  return fmt::format("({0})*(\\|({0})*)*", item);
}

// RFC 3339 appendix A.
constexpr std::string_view kDurationPattern =
    "P([0-9]+W|({0})|(([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)({0})?))";
constexpr std::string_view kDurationTime =
    "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";

constexpr std::string_view kUuidPattern =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";

struct FormatRow {
  std::string_view name;
  absl::StatusOr<ByteDfa> (*make)();
};

constexpr FormatRow kFormats[] = {
    {"date-time", [] { return Compile(DateTimePattern()); }},
    {"date", [] { return Compile(DatePattern()); }},
    {"time", [] { return Compile(fmt::format("{}|{}", TimePattern(), LeapSecondPattern())); }},
    {"duration",
     [] { return Compile(fmt::format(fmt::runtime(kDurationPattern), kDurationTime)); }},
    {"email", [] { return EmailAutomaton(false); }},
    {"idn-email", [] { return EmailAutomaton(true); }},
    {"hostname", [] { return HostnameAutomaton(); }},
    {"idn-hostname", [] { return IdnHostnameAutomaton(); }},
    {"ipv4", [] { return Compile(Ipv4Pattern()); }},
    {"ipv6", [] { return Compile(Ipv6Pattern()); }},
    {"uri", [] { return Compile(UriPattern(false, false)); }},
    {"uri-reference", [] { return Compile(UriPattern(false, true)); }},
    {"iri", [] { return Compile(UriPattern(true, false)); }},
    {"iri-reference", [] { return Compile(UriPattern(true, true)); }},
    {"uuid", [] { return Compile(kUuidPattern); }},
    {"uri-template", [] { return Compile(UriTemplatePattern()); }},
    {"json-pointer", [] { return Compile(kJsonPointerPattern); }},
    {"relative-json-pointer",
     [] { return Compile(fmt::format("(0|[1-9][0-9]*)(#|{})", kJsonPointerPattern)); }},
    {"regex", [] { return Compile(RegexPattern(2)); }},
};

const FormatRow* FindFormat(std::string_view name) {
  const auto* row = std::find_if(std::begin(kFormats), std::end(kFormats),
                                 [&](const FormatRow& one) { return one.name == name; });
  return row == std::end(kFormats) ? nullptr : row;
}

}  // namespace

bool IsStandardFormat(std::string_view name) { return FindFormat(name) != nullptr; }

absl::StatusOr<SharedDfa> FormatAutomaton(std::string_view name) {
  const FormatRow* row = FindFormat(name);
  SPECD_CHECK(row != nullptr);
  static std::array<std::atomic<const SharedDfa*>, std::size(kFormats)> all_made = {};
  std::atomic<const SharedDfa*>& made = all_made[row - std::begin(kFormats)];
  // Pairs with the exchange: who sees the automaton sees its states.
  if (const SharedDfa* known = made.load(std::memory_order_acquire); known != nullptr)
    return *known;
  absl::StatusOr<ByteDfa> dfa = row->make();
  if (!dfa.ok()) return dfa.status();
  auto kept = std::make_unique<const SharedDfa>(std::make_shared<const ByteDfa>(*std::move(dfa)));
  SharedDfa shared = *kept;
  const SharedDfa* none = nullptr;
  if (made.compare_exchange_strong(none, kept.get(), std::memory_order_acq_rel)) kept.release();
  return shared;
}

}  // namespace specd::grammar
