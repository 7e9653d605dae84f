// OpeningBuilder builds the sequences of openings, for SessionSequences.
//
// It does the long part of an opening without the session's lock: checks, token rules, a compile of
// the constraint, the prompt's history, and the event that the text side will get. Constant after
// construction: any thread, at any time.
//
//   PreparedSequences prepared;
//   absl::Status status = builder.Prepare(request_id, params, history, &prepared);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/opening_checks.h"
#include "daemon/session/session_state.h"
#include "daemon/session/text_tail.h"

namespace specd {

// What ends a text, as the request has it.
struct Stops {
  std::vector<std::string> strings;
  std::vector<std::string> regex;
};

// A sequence as the text side knows it.
struct SequenceStream {
  bool include_stop = false;
  bool skip_special_tokens = true;
  bool has_logprobs = false;
  bool settled = false;    // nothing moves its end; true at once unless the text side may find a
                           // stop string
  bool is_inline = false;  // rounds find the stop strings
  uint64_t id = 0;         // 0: it has not begun
  int64_t opened_ns = 0;
  uint64_t rounds = 0;  // that kept tokens or ended it
  uint64_t accepted = 0;
  std::string request_id = {};
  // Shared by samples and forks; null: none.
  std::shared_ptr<const Stops> stops = nullptr;
  std::shared_ptr<const std::string> params = nullptr;  // DescribeParams, for an operator
};

// A sequence that has no slot yet, and the bytes that it may use.
struct BuiltSequence {
  MemoryShare memory;
  Sequence sequence;
};

// The same sequence, as it will be announced.
struct AnnouncedSequence {
  SequenceStream stream;
  std::shared_ptr<TokenEvent> event = nullptr;    // null: the session has no events
  std::unique_ptr<TraceOpening> trace = nullptr;  // null: the session has no trace
};

// Sequences of one or more openings, each in every list.
struct PreparedSequences {
  size_t size() const { return names.size(); }
  void Reserve(size_t num_sequences) {
    built.reserve(num_sequences);
    names.reserve(num_sequences);
    openings.reserve(num_sequences);
  }

  std::vector<BuiltSequence> built;
  std::vector<std::string> names;
  std::vector<AnnouncedSequence> openings;
};

class OpeningBuilder {
 public:
  // The state outlives this object.
  explicit OpeningBuilder(const SessionState* state) : state_(*state), checks_(&state->options) {}

  // Appends the params.n sequences of an opening. Child i has seed + i and, from 1 on, the request
  // id "ID#i".
  absl::Status Prepare(const std::string& request_id, const SequenceParams& params,
                       const SequenceHistory& history, PreparedSequences* to) const;
  // Appends the same sequences, pending: they have names and seeds. Gives *params its seed. Refuses
  // what needs no long work to be found.
  absl::Status PreparePending(const std::string& request_id, const SequenceHistory& history,
                              SequenceParams* params, PreparedSequences* to) const;
  // Appends a pending sequence that will fail: it has a handle, and neither a name nor a stream.
  absl::Status PrepareRefused(const SequenceHistory& history, uint64_t seed,
                              PreparedSequences* to) const;
  AnnouncedSequence MakeOpening(const SequenceStream& stream, const Sequence& sequence) const;
  const OpeningChecks& checks() const { return checks_; }

 private:
  // An error if the session has ended, or has no text side yet that a resumed sequence needs.
  absl::Status CheckTurn(const SequenceParams& params, const SequenceHistory& history) const;
  absl::StatusOr<std::vector<BuiltSequence>> Build(const SequenceParams& params,
                                                   const SequenceHistory& history) const;
  // Gives the sequences the text that rounds make.
  absl::Status BeginText(const SequenceParams& params, const TextTail& tail,
                         std::vector<BuiltSequence>* built) const;
  // Gives the event of an opening the earlier ids that its text depends on.
  absl::Status AddTail(const TextTail& tail, std::shared_ptr<TokenEvent>* event) const;

  const SessionState& state_;
  const OpeningChecks checks_;
};

}  // namespace specd
