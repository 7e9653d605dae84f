// AnswerBook checks what each engine was told, for verify: status, finish reason, counts, stop
// token and the form of the scores, against the confirmed tokens and the answers before.
//
// The backend's decisions are checked elsewhere (answer_check.h, scalar_check.h). The finish rules
// are those of CONTRACT §7, walked again over the confirmed tokens. Give it every record in order.
// What the trace does not know, such as the parameters of a sequence without an opening, is not
// checked. It keeps some words for each open sequence. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/trace/trace_record.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {

class AnswerBook {
 public:
  // A round is taken with Check, answer by answer.
  void Take(const TraceRecord& record);

  // Compares the answer with the task that it is of; null: nothing was verified. Returns the
  // differences as sentences. REQUIRES: CheckTask has passed, if there is a task.
  std::vector<std::string> Check(const TraceRound& round, const TraceAnswer& answer,
                                 const TraceTask* task);
  // The record of the task is of no use, so the next answer has nothing to follow.
  void Forget(SequenceHandle sequence);

 private:
  // The parameters that end a sequence.
  struct Rules {
    std::vector<TokenId> stop_token_ids;
    bool ignore_eos = false;
    int64_t min_tokens = 0;
    int64_t max_tokens = 0;
    // A constraint or a stop string may end the sequence at a token that no rule below names.
    bool may_stop_early = false;
  };
  struct State {
    std::optional<Rules> rules;
    std::optional<uint32_t> kept;         // tokens after the last answer
    std::optional<uint32_t> kept_at_end;  // an abort ends a sequence without an answer
    FinishReason reason = FinishReason::kNone;
    std::optional<TokenId> stop_token;
  };
  struct Texts;

  void Open(const TraceOpening& opening);
  void CheckCounts(const TraceAnswer& answer, const TraceTask& task, Texts* texts) const;
  void CheckEnd(const TraceAnswer& answer, const TraceTask& task, Texts* texts) const;
  void CheckNothingVerified(const TraceAnswer& answer, Texts* texts) const;
  const State* Find(SequenceHandle sequence) const;

  TraceInfo info_;
  uint64_t last_number_ = 0;
  std::unordered_map<SequenceHandle, State> states_;
};

}  // namespace specd::replay
