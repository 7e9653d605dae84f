#include "daemon/session/sequence_replies.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace specd {

SequenceReply ReplyOf(std::span<const SequenceInfo> infos) {
  SequenceReply reply;
  for (const SequenceInfo& info : infos) {
    reply.sequences.push_back(info.handle);
    reply.seeds.push_back(info.seed);
    reply.verify = static_cast<uint32_t>(info.method);
  }
  // All samples of an opening have the same constraint.
  const auto& constraint = infos.front().constraint;
  if (constraint != nullptr) reply.warnings = MakeReplyWarnings(constraint->warnings());
  return reply;
}

SequencesReply ReplyOf(std::span<const SequenceInfo> infos, std::span<const uint32_t> opening_of) {
  SequencesReply reply;
  std::vector<std::string> warnings;
  for (size_t i = 0; i < infos.size(); ++i) {
    reply.sequences.push_back(infos[i].handle);
    reply.seeds.push_back(infos[i].seed);
    reply.verify.push_back(static_cast<int32_t>(infos[i].method));
    const bool is_first = i == 0 || opening_of[i] != opening_of[i - 1];
    if (!is_first || infos[i].constraint == nullptr) continue;
    for (const std::string& warning : infos[i].constraint->warnings()) {
      warnings.push_back(fmt::format("openings[{}]: {}", opening_of[i], warning));
    }
  }
  reply.warnings = MakeReplyWarnings(warnings);
  return reply;
}

SequencesReply RefusalOf(uint32_t opening, const absl::Status& status) {
  ErrorReply error = MakeErrorReply(status);
  SequencesReply reply;
  reply.code = error.code;
  reply.refused = opening;
  reply.field = std::move(error.field);
  reply.text = std::move(error.text);
  return reply;
}

}  // namespace specd
