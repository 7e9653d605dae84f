#include "speculative/grammar/schema_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/grammar/grammar_rules.h"
#include "speculative/grammar/regex.h"

namespace specd::grammar {
namespace {

absl::StatusOr<ByteDfa> Compile(std::string_view pattern) {
  GrammarRules rules;
  const absl::StatusOr<ExprId> expr = ParseRegex(pattern, {}, &rules);
  if (!expr.ok()) return expr.status();
  return Determinize(rules, *expr);
}

// RFC 3339 section 5.6: full-date, with the days that each month has (appendix C). The year 0000,
// which many calendars lack, is left out.
std::string DatePattern() {
  constexpr std::string_view kYear = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
  constexpr std::string_view kLeapYear =
      "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)";
  constexpr std::string_view kDays28 = "(0[1-9]|1[0-9]|2[0-8])";
  constexpr std::string_view kMonthsWith30 = "(0[13-9]|1[0-2])";
  constexpr std::string_view kMonthsWith31 = "(0[13578]|1[02])";
  return fmt::format("({0}-(0[1-9]|1[0-2])-{1}|{0}-{2}-(29|30)|{0}-{3}-31|{4}-02-29)", kYear,
                     kDays28, kMonthsWith30, kMonthsWith31, kLeapYear);
}

// RFC 3339 section 5.6: full-time. Seconds go to 59: a leap second is right at few instants. Nine
// digits of a second are what clocks give.
constexpr std::string_view kTimePattern =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?"
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";

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
// section 2.3.1), which need a check of their own; they are left out.
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

// RFC 5321 section 4.1.2: Dot-string "@" Domain; section 4.5.3.1: 64 bytes before the @. Five
// labels of 32 keep the domain short without counting it.
absl::StatusOr<ByteDfa> EmailAutomaton() {
  constexpr std::string_view kAtom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
  absl::StatusOr<ByteDfa> atoms = Compile(fmt::format("{0}(\\.{0})*", kAtom));
  absl::StatusOr<ByteDfa> length = Compile("[!-~]{1,64}");
  if (!atoms.ok() || !length.ok()) return atoms.ok() ? length : atoms;
  absl::StatusOr<ByteDfa> local = Intersect(*atoms, *length);
  if (!local.ok()) return local;
  GrammarRules rules;
  const absl::StatusOr<ExprId> domain = ParseRegex(
      "([a-zA-Z0-9](([a-zA-Z0-9]|-[a-zA-Z0-9]){0,15})\\.){1,4}[a-zA-Z]{2,32}", {}, &rules);
  if (!domain.ok()) return domain.status();
  return Determinize(
      rules, rules.Sequence({rules.Automaton(*std::move(local)), rules.Literal("@"), *domain}));
}

// RFC 3986: a scheme, and an authority with a path or a path alone, as in mailto: and urn:.
std::string UriPattern() {
  constexpr std::string_view kEscaped = "%[0-9a-fA-F]{2}";
  const std::string user = fmt::format("([a-zA-Z0-9._~!$&'()*+,;=:-]|{})*", kEscaped);
  const std::string name = fmt::format("([a-zA-Z0-9._~!$&'()*+,;=-]|{})*", kEscaped);
  const std::string character = fmt::format("([a-zA-Z0-9._~!$&'()*+,;=:@-]|{})", kEscaped);
  const std::string path = fmt::format("(/{}*)*", character);
  const std::string host = fmt::format("({}|\\[{}\\])", name, Ipv6Pattern());
  const std::string authority = fmt::format("//({}@)?{}(:[0-9]*)?{}", user, host, path);
  const std::string other = fmt::format("/?({}+{})?", character, path);
  const std::string rest = fmt::format("([a-zA-Z0-9._~!$&'()*+,;=:@/?-]|{})*", kEscaped);
  return fmt::format("[a-zA-Z][a-zA-Z0-9+.-]*:({}|{})(\\?{})?(#{})?", authority, other, rest, rest);
}

// RFC 3339 appendix A.
constexpr std::string_view kDurationPattern =
    "P([0-9]+W|({0})|(([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)({0})?))";
constexpr std::string_view kDurationTime =
    "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";

constexpr std::string_view kUuidPattern =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";

}  // namespace

std::span<const std::string_view> EnforcedFormats() {
  static constexpr std::string_view kFormats[] = {"date-time", "date", "time", "duration", "email",
                                                  "hostname",  "ipv4", "ipv6", "uri",      "uuid"};
  return kFormats;
}

bool IsEnforcedFormat(std::string_view name) {
  const std::span<const std::string_view> formats = EnforcedFormats();
  return std::find(formats.begin(), formats.end(), name) != formats.end();
}

absl::StatusOr<ByteDfa> FormatAutomaton(std::string_view name) {
  SPECD_CHECK(IsEnforcedFormat(name));
  if (name == "date-time") return Compile(fmt::format("{}T{}", DatePattern(), kTimePattern));
  if (name == "date") return Compile(DatePattern());
  if (name == "time") return Compile(kTimePattern);
  if (name == "duration")
    return Compile(fmt::format(fmt::runtime(kDurationPattern), kDurationTime));
  if (name == "email") return EmailAutomaton();
  if (name == "hostname") return HostnameAutomaton();
  if (name == "ipv4") return Compile(Ipv4Pattern());
  if (name == "ipv6") return Compile(Ipv6Pattern());
  if (name == "uri") return Compile(UriPattern());
  return Compile(kUuidPattern);
}

}  // namespace specd::grammar
