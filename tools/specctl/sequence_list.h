// The functions here print the sequences of a daemon: as a table, as request ids, or as JSON.
//
// Pure but for the file that they print into.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/control/control.h"
#include "ipc/include/specd/answers.h"
#include "tools/terminal/terminal.h"

namespace specd::ctl {

// One sequence of a SequenceListReply.
struct ListedSequence {
  uint64_t session = 0;
  int32_t uid = 0;
  int32_t pid = 0;
  std::string program = {};
  std::string client = {};
  uint64_t stream = 0;
  std::string request_id = {};
  int32_t phase = 0;
  uint64_t tokens = 0;
  uint64_t age_ms = 0;
  uint64_t rounds = 0;
  uint64_t accepted = 0;
  std::string method = {};
  std::string params = {};  // lines "name = value"
};

// INTERNAL if the lists of a reply differ in length.
template <class Reply>
absl::Status CheckLists(const Reply& reply) {
  bool is_even = true;
  const auto look = [&](const auto&, const auto& field, auto... size_max) {
    if constexpr (sizeof...(size_max) > 0) {
      is_even = is_even && field.size() == reply.sessions.size();
    }
  };
  Reply::Fields(reply, look);
  if (is_even) return absl::OkStatus();
  return MakeError(SPECD_ERROR_INTERNAL, "reply", "the lists of the reply differ in length");
}

// Appends those of a reply. INTERNAL if its lists differ in length.
absl::Status Append(const SequenceListReply& reply, std::vector<ListedSequence>* to);

// Such as "pending"; "?" for a number that has no name.
std::string_view PhaseName(int32_t phase);

// "12.3 s", "4 min", "2 h", "3 d".
std::string AgeText(uint64_t age_ms);

// A text as JSON.
std::string JsonText(std::string_view text);

void PrintSequences(const std::vector<ListedSequence>& sequences, Paint paint, std::FILE* out);
// All that is known of one, a line each; `limits` are those of its engine (session_list.h).
void PrintSequence(const ListedSequence& sequence,
                   const std::vector<std::pair<std::string, std::string>>& limits, Paint paint,
                   std::FILE* out);
std::string SequenceJson(const ListedSequence& sequence);

}  // namespace specd::ctl
