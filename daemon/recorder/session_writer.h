// SessionWriter takes the records of one session from its ring and writes them to files.
//
// It knows the sequences that are open, so that every file begins with their openings. It keeps the
// flight recorder's rounds and checks rounds. SessionFile has the file and its losses
// (daemon/recorder/session_file.h). One thread: the recorder's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/recorder/draft_check.h"
#include "daemon/recorder/flight_log.h"
#include "daemon/recorder/session_file.h"
#include "daemon/recorder/session_trace.h"
#include "daemon/recorder/shadow_check.h"
#include "daemon/recorder/trace_file.h"
#include "daemon/recorder/trace_losses.h"
#include "daemon/recorder/trace_options.h"

namespace specd {

// The name of this machine's CPU, such as "AMD EPYC 7B13"; empty if the system does not say.
std::string ProcessorName();

class SessionWriter {
 public:
  SessionWriter(std::shared_ptr<SessionTrace> trace, const WriterParts& parts);

  // Takes records of the ring, for a bounded time. False: there was none.
  bool Drain();
  // Takes what is published by now, whatever the session adds meanwhile.
  void DrainAll() {
    const uint64_t end = trace_->ring().published();
    while (trace_->ring().popped() < end && Drain()) continue;
  }
  // Call it about every second: writes the open chunk and the drops, tries a new file after an
  // error, and logs what is to be known.
  void Tick();
  // Writes the rounds of the flight recorder, or without one what is not written yet. Without new
  // rounds it names the file of the last dump again.
  absl::StatusOr<TraceDump> Dump(TraceTrigger cause);
  // The same if the trigger is on and there are new rounds, with a line in the log.
  void DumpForSignal();
  // The session has ended, or the process ends.
  void Finish();

  SessionTrace& trace() { return *trace_; }
  // Closes the open file if it is larger than the shelf allows now.
  void KeepToBound() { file_.KeepToBound(); }

 private:
  // A sequence that is open, or that the flight recorder still names.
  struct Known {
    TraceOpening opening;
    bool is_closed = false;
  };

  void TakeRound(const RoundCopy& copy);
  void TakeOpening(std::unique_ptr<TraceOpening> opening);
  void TakeEnd(const TraceEnd& end);
  void Check(const RoundCopy& copy);
  void CheckDrafts(const RoundCopy& copy, TraceRound* round);
  void Remember(TraceRound round, std::span<const std::span<const std::byte>> rows);
  void ForgetClosed();
  void Trigger(TraceTrigger cause);
  // Writes the flight recorder's rounds if the trigger is on and there are new ones.
  void DumpIfNew(TraceTrigger cause);
  void DumpAndLog(TraceTrigger cause);
  bool is_flight() const { return options_.flight > 0; }

  // The openings of the sequences that are open, which every file begins with.
  absl::Status WriteKnown(TraceFile* file);
  absl::StatusOr<TraceDump> WriteFlight(TraceTrigger cause);

  const std::shared_ptr<SessionTrace> trace_;
  const WriterParts parts_;
  const TraceOptions& options_;

  std::map<SequenceHandle, Known> known_;
  TraceLosses losses_;
  SessionFile file_;
  FlightLog flight_;
  uint64_t num_since_dump_ = 0;  // rounds
  std::optional<TraceDump> last_dump_;

  std::unique_ptr<ShadowCheck> check_;
  std::unique_ptr<DraftCheck> draft_check_;
  uint64_t num_with_drafts_ = 0;  // rounds with rows, counted for check_drafts
  uint64_t num_with_rows_ = 0;
  uint64_t num_mismatches_ = 0;
};

}  // namespace specd
