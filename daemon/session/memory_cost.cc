#include "daemon/session/memory_cost.h"

#include <algorithm>
#include <string>

#include "ipc/events/token_event.h"
#include "ipc/segment/layout.h"
#include "speculative/round/round_scratch.h"

namespace specd {
namespace {

// Events that may wait for the publisher before the verify thread stops taking rounds. At 16
// sequences per round and 1 kHz this is about a quarter of a second. Estimate: 4 tokens for each
// event.
constexpr size_t kEventQueueSize = 4096;
constexpr size_t kTokensPerEvent = 4;
// The scores of a token take up to 193 times the room of the token, so fewer tokens with scores may
// wait. Estimate.
constexpr size_t kScoredTokens = 4096;

// Measured by tests/daemon/session/memory_cost_test.cc, and rounded up.
constexpr uint64_t kEventBytes = 128;  // header, pointer to an opening, the opening's block
constexpr uint64_t kEventTokenBytes = sizeof(TokenId);
constexpr uint64_t kSlotBytes = 512;   // beside the Sequence: stream, name, publisher's entry
constexpr uint64_t kTaskBytes = 1024;  // of a round, beside its tokens and places
constexpr uint64_t kPlaceBytes = 512;  // workspaces, copies of tokens, resolved drafts
constexpr uint64_t kWorkerBytes = 256 << 10;  // a worker's stack and workspace
constexpr uint64_t kColumnBytes = 1;          // of a workspace, for each column of a row

// An edit is 16 bytes; a list that doubles has three times as many while it is copied. History and
// n-grams take 12 more.
constexpr uint64_t kBuildIdBytes = 64;
constexpr uint64_t kSequenceBytesMin = 4096;  // names, lists of bounded length
// A stop string is in the parameters, the event and the text side, whose automaton has a node of 21
// bytes for each byte.
constexpr uint64_t kStopByteBytes = 32;

// The event of the opening, the publisher's copy, and the message.
constexpr uint64_t kTailIdBytes = 2 * sizeof(TokenId) + 5;

// A pattern's automaton has up to this many bytes (states, edges), and as much while it is made.
constexpr uint64_t kStopPatternBytes = 1 << 20;

uint64_t StopBytes(const SequenceParams& params) {
  uint64_t bytes = params.stop_regex.empty() ? 0 : kStopPatternBytes;
  for (const std::string& stop : params.stop_strings) {
    bytes += stop.size() * kStopByteBytes + 3 * sizeof(std::string);
  }
  // The session then has an automaton of its own, and text that is held back.
  return params.stops == StopSearch::kInline ? 2 * bytes : bytes;
}

}  // namespace

EventQueue::Capacity EventCapacityOf(const SessionLimits& limits) {
  const size_t rounds = size_t{4} * limits.max_batch;
  // Two of the largest rounds: one may wait for the publisher while the next one runs.
  const size_t largest = size_t{2} * limits.max_batch * limits.max_output_scores();
  return {.events = std::max(kEventQueueSize, rounds) + limits.max_sequences,
          .tokens = std::max(kEventQueueSize * kTokensPerEvent, rounds * limits.max_output()),
          .scores = std::max(kScoredTokens * limits.max_scores, largest)};
}

uint64_t SessionBytes(const SessionLimits& limits, int32_t threads) {
  const SegmentLayout layout = ComputeLayout(limits);
  const EventQueue::Capacity events = EventCapacityOf(limits);
  const uint64_t places = uint64_t{limits.max_batch} * (limits.max_draft + 1);
  const uint64_t scores = uint64_t{limits.max_batch} * limits.max_output_scores();
  return layout.segment_bytes + events.events * kEventBytes + events.tokens * kEventTokenBytes +
         events.scores * sizeof(TokenScore) +
         limits.max_sequences * (sizeof(Sequence) + kSlotBytes) +
         limits.max_batch * (kTaskBytes + layout.draft_record_bytes) +
         places * (sizeof(PlaceEdits) + kPlaceBytes) + scores * sizeof(TokenScore) +
         static_cast<uint64_t>(threads) * (kWorkerBytes + limits.vocab_size * kColumnBytes);
}

uint64_t BuildBytes(const SequenceParams& params, const SequenceHistory& history) {
  const uint64_t ids = history.prompt.size() + history.outputs.size() +
                       params.allowed_token_ids.size() + params.disallowed_token_ids.size() +
                       params.no_repeat_ngram_whitelist.size();
  return kSequenceBytesMin + ids * kBuildIdBytes + 2 * params.grammar_text.size() +
         StopBytes(params);
}

uint64_t TailBytes(size_t num_ids) {
  return num_ids <= kPromptTailMax ? 0 : num_ids * kTailIdBytes;
}

uint64_t SequenceBytes(const Sequence& sequence, const SequenceParams& params) {
  return kSequenceBytesMin + sequence.rules.size_bytes() + sequence.logprob_sum.size_bytes() +
         StopBytes(params);
}

}  // namespace specd
