// The control messages here are an operator's: specctl sends them in place of a Hello.
//
// Root and the daemon's own user see and end every sequence, any other user who is served those of
// his own. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ipc/control/control_type.h"

namespace specd {

// Sequences in one SequenceListReply, so that it stays below kControlBytesMax.
inline constexpr size_t kListedMax = 96;
inline constexpr size_t kListedMaxWithParams = 16;
inline constexpr size_t kListedParamsBytesMax = 2048;

// SequenceListReply::phases.
enum class ListedPhase : int32_t {
  kRuns = 0,
  kPending = 1,
  kFailed = 2,
  kStopped = 3,  // from here on a finish reason + 2
  kLength = 4,
  kAborted = 5,
  kError = 6,
};

// Asks for sequences that are open, from this slot of this session on.
struct ListSequencesRequest {
  static constexpr ControlType kType = ControlType::kListSequences;
  uint64_t session = 0;
  uint32_t slot = 0;
  std::string request_id;  // of this request alone, unless empty
  uint64_t stream = 0;     // of this stream alone, unless 0
  bool params = false;     // the answer has parameters

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("session", self.session);
    f("slot", self.slot);
    f(OptionalKey{"request_id"}, self.request_id, 128);
    f(OptionalKey{"stream"}, self.stream);
    f(OptionalKey{"params"}, self.params);
  }
};

// Ends running sequences: that of a request or of a stream, or all.
struct AbortStreamsRequest {
  static constexpr ControlType kType = ControlType::kAbortStreams;
  std::string request_id;
  uint64_t stream = 0;
  bool all = false;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f(OptionalKey{"request_id"}, self.request_id, 128);
    f(OptionalKey{"stream"}, self.stream);
    f(OptionalKey{"all"}, self.all);
  }
};

// From now on nothing is opened, and the daemon ends with the last sequence that runs. May be asked
// again.
struct DrainRequest {
  static constexpr ControlType kType = ControlType::kDrain;
  template <class Self, class F>
  static void Fields(Self&, F&&) {}
};

// Writes the trace of the first session from this number on that the asker may see.
struct DumpSessionRequest {
  static constexpr ControlType kType = ControlType::kDumpSession;
  uint64_t session = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("session", self.session);
  }
};

// Asks for the engines that are attached.
struct ListSessionsRequest {
  static constexpr ControlType kType = ControlType::kListSessions;
  template <class Self, class F>
  static void Fields(Self&, F&&) {}
};

// The engine of each line of a list.
struct ListedEngines {
  std::vector<uint64_t> sessions;
  std::vector<int32_t> uids;
  std::vector<int32_t> pids;          // as the daemon sees the processes; 0: it does not
  std::vector<std::string> programs;  // the processes' names (comm)
  std::vector<std::string> clients;   // the names that they gave themselves

  template <class Self, class F>
  static void Fields(Self& self, F& f) {
    f("sessions", self.sessions, kListedMax);
    f("uids", self.uids, kListedMax);
    f("pids", self.pids, kListedMax);
    f("programs", self.programs, kListedMax);
    f("clients", self.clients, kListedMax);
  }
};

// Answers ListSequences. Each list has one element for each sequence.
struct SequenceListReply : ListedEngines {
  static constexpr ControlType kType = ControlType::kSequenceListReply;
  std::vector<uint64_t> streams;  // 0: the stream has not begun
  std::vector<std::string> request_ids;
  std::vector<int32_t> phases;     // ListedPhase
  std::vector<uint64_t> tokens;    // of the output, those that were given included
  std::vector<uint64_t> ages_ms;   // since the opening
  std::vector<uint64_t> rounds;    // that kept tokens or ended it
  std::vector<uint64_t> accepted;  // draft tokens
  std::vector<std::string> methods;
  std::vector<std::string> params;  // "name = value" lines; empty unless asked for
  bool more = false;                // ask again from the place below
  uint64_t next_session = 0;
  uint32_t next_slot = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    ListedEngines::Fields(self, f);
    f("streams", self.streams, kListedMax);
    f("request_ids", self.request_ids, kListedMax);
    f("phases", self.phases, kListedMax);
    f("tokens", self.tokens, kListedMax);
    f("ages_ms", self.ages_ms, kListedMax);
    f("rounds", self.rounds, kListedMax);
    f("accepted", self.accepted, kListedMax);
    f("methods", self.methods, kListedMax);
    f("params", self.params, kListedMax);
    f("more", self.more);
    f("next_session", self.next_session);
    f("next_slot", self.next_slot);
  }
};

// Answers ListSessions. Each list has one element for each session, and a bound that is 0 is none.
struct SessionListReply : ListedEngines {
  static constexpr ControlType kType = ControlType::kSessionListReply;
  std::vector<std::string> profiles;
  std::vector<uint64_t> ages_ms;  // since they attached
  std::vector<uint64_t> memory_bytes;
  std::vector<uint64_t> memory_bytes_max;
  std::vector<uint64_t> sequences;  // that are open
  std::vector<uint64_t> sequences_max;
  std::vector<uint64_t> rounds;  // in flight, calls included
  std::vector<uint64_t> rounds_max;
  std::vector<uint64_t> openings;  // of sequences, since they attached
  std::vector<uint64_t> openings_per_second_max;
  std::vector<uint64_t> refusals;  // messages that were answered with an error

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    ListedEngines::Fields(self, f);
    f("profiles", self.profiles, kListedMax);
    f("ages_ms", self.ages_ms, kListedMax);
    f("memory_bytes", self.memory_bytes, kListedMax);
    f("memory_bytes_max", self.memory_bytes_max, kListedMax);
    f("sequences", self.sequences, kListedMax);
    f("sequences_max", self.sequences_max, kListedMax);
    f("rounds", self.rounds, kListedMax);
    f("rounds_max", self.rounds_max, kListedMax);
    f("openings", self.openings, kListedMax);
    f("openings_per_second_max", self.openings_per_second_max, kListedMax);
    f("refusals", self.refusals, kListedMax);
  }
};

struct AbortedReply {
  static constexpr ControlType kType = ControlType::kAbortedReply;
  uint32_t num_ended = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("num_ended", self.num_ended);
  }
};

struct DrainReply {
  static constexpr ControlType kType = ControlType::kDrainReply;
  uint32_t num_sessions = 0;
  uint32_t num_running = 0;  // sequences, pending ones included
  uint32_t pid = 0;          // of the daemon, as it knows itself

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("num_sessions", self.num_sessions);
    f("num_running", self.num_running);
    f("pid", self.pid);
  }
};

struct SessionTraceReply {
  static constexpr ControlType kType = ControlType::kSessionTraceReply;
  uint64_t session = 0;  // 0: there is none from that number on
  std::string path;      // of the file, on the daemon's side
  uint64_t num_rounds = 0;
  uint64_t num_lost = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("session", self.session);
    f("path", self.path, 4096);
    f("num_rounds", self.num_rounds);
    f("num_lost", self.num_lost);
  }
};

}  // namespace specd
