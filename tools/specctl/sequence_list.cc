#include "tools/specctl/sequence_list.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "tools/terminal/text_table.h"

namespace specd::ctl {
namespace {

constexpr std::array<std::string_view, 7> kPhases = {"runs",   "pending", "failed", "stopped",
                                                     "length", "aborted", "error"};

// The pairs of "name = value" lines.
std::vector<std::pair<std::string, std::string>> PairsOf(std::string_view lines) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    const size_t middle = line.find(" = ");
    if (middle != std::string_view::npos) {
      pairs.emplace_back(line.substr(0, middle), line.substr(middle + 3));
    }
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return pairs;
}

double PerRound(const ListedSequence& sequence) {
  if (sequence.rounds == 0) return 0;
  return static_cast<double>(sequence.accepted) / static_cast<double>(sequence.rounds);
}

Colour ColourOf(int32_t phase) {
  switch (static_cast<ListedPhase>(phase)) {
    case ListedPhase::kRuns:
      return Colour::kGreen;
    case ListedPhase::kPending:
      return Colour::kYellow;
    case ListedPhase::kFailed:
    case ListedPhase::kError:
      return Colour::kRed;
    default:
      return Colour::kDim;
  }
}

std::string StreamText(uint64_t stream) { return stream == 0 ? "-" : std::to_string(stream); }

}  // namespace

absl::Status Append(const SequenceListReply& reply, std::vector<ListedSequence>* to) {
  if (absl::Status status = CheckLists(reply); !status.ok()) return status;
  for (size_t i = 0; i < reply.sessions.size(); ++i) {
    to->push_back({.session = reply.sessions[i],
                   .uid = reply.uids[i],
                   .pid = reply.pids[i],
                   .program = reply.programs[i],
                   .client = reply.clients[i],
                   .stream = reply.streams[i],
                   .request_id = reply.request_ids[i],
                   .phase = reply.phases[i],
                   .tokens = reply.tokens[i],
                   .age_ms = reply.ages_ms[i],
                   .rounds = reply.rounds[i],
                   .accepted = reply.accepted[i],
                   .method = reply.methods[i],
                   .params = reply.params[i]});
  }
  return absl::OkStatus();
}

std::string_view PhaseName(int32_t phase) {
  const size_t index = phase;
  return index < kPhases.size() ? kPhases[index] : "?";
}

std::string AgeText(uint64_t age_ms) {
  const uint64_t seconds = age_ms / 1000;
  if (seconds < 120) return fmt::format("{:.1f} s", static_cast<double>(age_ms) / 1000);
  if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

std::string JsonText(std::string_view text) {
  std::string json = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto at = [&text](size_t k) -> uint32_t {
      return k < text.size() ? static_cast<unsigned char>(text[k]) : 0;
    };
    const bool is_c1 = at(i) == 0xc2 && at(i + 1) >= 0x80 && at(i + 1) < 0xa0;
    if (is_c1) ++i;
    if (at(i) == '"' || at(i) == '\\') {
      json += '\\';
      json += text[i];
    } else if (is_c1 || at(i) < 0x20 || at(i) == 0x7f) {
      json += fmt::format("\\u{:04x}", at(i));
    } else {
      json += text[i];
    }
  }
  return json + "\"";
}

void PrintSequences(const std::vector<ListedSequence>& sequences, Paint paint, std::FILE* out) {
  using Align = TextTable::Align;
  TextTable table({{"request id", Align::kLeft},
                   {"stream"},
                   {"state", Align::kLeft},
                   {"tokens"},
                   {"accepted per round"},
                   {"age"},
                   {"session"},
                   {"uid"},
                   {"pid"},
                   {"program", Align::kLeft},
                   {"client", Align::kLeft}},
                  paint, out);
  for (const ListedSequence& each : sequences) {
    table.Add({SafeText(each.request_id),
               StreamText(each.stream),
               {std::string(PhaseName(each.phase)), ColourOf(each.phase)},
               std::to_string(each.tokens),
               fmt::format("{:.2f}", PerRound(each)),
               AgeText(each.age_ms),
               std::to_string(each.session),
               std::to_string(each.uid),
               std::to_string(each.pid),
               SafeText(each.program),
               SafeText(each.client)});
  }
}

void PrintSequence(const ListedSequence& sequence,
                   const std::vector<std::pair<std::string, std::string>>& limits, Paint paint,
                   std::FILE* out) {
  using Align = TextTable::Align;
  fmt::print(out, "{}\n", paint(Colour::kBold, SafeText(sequence.request_id)));
  TextTable table({{"what", Align::kLeft}, {"value", Align::kLeft}}, paint, out);
  const auto add = [&table](std::string name, std::string value, Colour colour = Colour::kNone) {
    table.Add({std::move(name), {std::move(value), colour}});
  };
  add("state", std::string(PhaseName(sequence.phase)), ColourOf(sequence.phase));
  add("stream", StreamText(sequence.stream));
  add("session", std::to_string(sequence.session));
  add("client", fmt::format("{} (uid {}, pid {}, {})", SafeText(sequence.client), sequence.uid,
                            sequence.pid, SafeText(sequence.program)));
  add("age", AgeText(sequence.age_ms));
  add("tokens", std::to_string(sequence.tokens));
  add("rounds with tokens", std::to_string(sequence.rounds));
  add("accepted draft tokens",
      fmt::format("{} ({:.2f} per round)", sequence.accepted, PerRound(sequence)));
  for (const auto& [name, text] : limits) add(name, text);
  add("method", sequence.method);
  for (const auto& [name, value] : PairsOf(sequence.params)) add(SafeText(name), SafeText(value));
}

std::string SequenceJson(const ListedSequence& sequence) {
  std::string json = fmt::format(
      R"({{"request_id": {}, "stream": {}, "state": "{}", "tokens": {}, "rounds": {}, )"
      R"("accepted": {}, "age_ms": {}, "session": {}, "uid": {}, "pid": {}, "program": {}, )"
      R"("client": {}, "method": {}, "params": {{)",
      JsonText(sequence.request_id), sequence.stream, PhaseName(sequence.phase), sequence.tokens,
      sequence.rounds, sequence.accepted, sequence.age_ms, sequence.session, sequence.uid,
      sequence.pid, JsonText(sequence.program), JsonText(sequence.client),
      JsonText(sequence.method));
  std::string_view comma;
  for (const auto& [name, value] : PairsOf(sequence.params)) {
    json += fmt::format("{}{}: {}", comma, JsonText(name), JsonText(value));
    comma = ", ";
  }
  return json + "}}";
}

}  // namespace specd::ctl
