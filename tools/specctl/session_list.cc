#include "tools/specctl/session_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/specctl/sequence_list.h"
#include "tools/terminal/text_table.h"

namespace specd::ctl {
namespace {

// "3 of 16"; a bound of 0 is none.
std::string OfText(uint64_t used, uint64_t bound) {
  return bound == 0 ? std::to_string(used) : fmt::format("{} of {}", used, bound);
}

std::string MemoryText(uint64_t bytes, uint64_t bytes_max) {
  const auto mib = [](uint64_t size) { return static_cast<double>(size) / (1 << 20); };
  return bytes_max == 0 ? fmt::format("{:.1f} MiB", mib(bytes))
                        : fmt::format("{:.1f} of {:.1f} MiB", mib(bytes), mib(bytes_max));
}

std::string OpeningsText(uint64_t count, uint64_t per_second_max) {
  return per_second_max == 0 ? std::to_string(count)
                             : fmt::format("{}, at most {}/s", count, per_second_max);
}

}  // namespace

void PrintSessions(const SessionListReply& reply, Paint paint, std::FILE* out) {
  using Align = TextTable::Align;
  TextTable table({{"session"},
                   {"uid"},
                   {"pid"},
                   {"program", Align::kLeft},
                   {"client", Align::kLeft},
                   {"model", Align::kLeft},
                   {"age"},
                   {"memory"},
                   {"sequences"},
                   {"rounds"},
                   {"openings"},
                   {"refused"}},
                  paint, out);
  for (size_t i = 0; i < reply.sessions.size(); ++i) {
    table.Add({std::to_string(reply.sessions[i]),
               std::to_string(reply.uids[i]),
               std::to_string(reply.pids[i]),
               SafeText(reply.programs[i]),
               SafeText(reply.clients[i]),
               SafeText(reply.profiles[i]),
               AgeText(reply.ages_ms[i]),
               MemoryText(reply.memory_bytes[i], reply.memory_bytes_max[i]),
               OfText(reply.sequences[i], reply.sequences_max[i]),
               OfText(reply.rounds[i], reply.rounds_max[i]),
               OpeningsText(reply.openings[i], reply.openings_per_second_max[i]),
               {std::to_string(reply.refusals[i]),
                reply.refusals[i] == 0 ? Colour::kNone : Colour::kYellow}});
  }
}

std::string SessionsJson(const SessionListReply& reply) {
  std::string json = "{\"sessions\": [";
  std::string_view comma = "\n";
  for (size_t i = 0; i < reply.sessions.size(); ++i) {
    json += fmt::format(
        R"({}{{"session": {}, "uid": {}, "pid": {}, "program": {}, "client": {}, "profile": {}, )"
        R"("age_ms": {}, "memory_bytes": {}, "memory_bytes_max": {}, "sequences": {}, )"
        R"("sequences_max": {}, "rounds": {}, "rounds_max": {}, "openings": {}, )"
        R"("openings_per_second_max": {}, "refusals": {}}})",
        comma, reply.sessions[i], reply.uids[i], reply.pids[i], JsonText(reply.programs[i]),
        JsonText(reply.clients[i]), JsonText(reply.profiles[i]), reply.ages_ms[i],
        reply.memory_bytes[i], reply.memory_bytes_max[i], reply.sequences[i],
        reply.sequences_max[i], reply.rounds[i], reply.rounds_max[i], reply.openings[i],
        reply.openings_per_second_max[i], reply.refusals[i]);
    comma = ",\n";
  }
  return json + "]}\n";
}

std::vector<std::pair<std::string, std::string>> LimitsOf(const SessionListReply& reply,
                                                          uint64_t session) {
  const auto found = std::find(reply.sessions.begin(), reply.sessions.end(), session);
  if (found == reply.sessions.end()) return {};
  const size_t i = found - reply.sessions.begin();
  return {{"memory of its engine", MemoryText(reply.memory_bytes[i], reply.memory_bytes_max[i])},
          {"sequences of its engine", OfText(reply.sequences[i], reply.sequences_max[i])},
          {"rounds in flight", OfText(reply.rounds[i], reply.rounds_max[i])},
          {"openings of its engine",
           OpeningsText(reply.openings[i], reply.openings_per_second_max[i])}};
}

}  // namespace specd::ctl
