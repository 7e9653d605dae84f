// ReportData makes the JSON object of the report page from the records of a trace
// (tools/replay/report/DATA.md).
//
// Give it every record in order, then ask for the text. It holds the whole object, so `full` tells
// when a report becomes too large for a browser. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/replay/draft_tree.h"
#include "tools/replay/json_table.h"
#include "tools/replay/place_rows.h"
#include "tools/replay/place_view.h"
#include "tools/replay/rejection_cause.h"
#include "tools/replay/replay_backend.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/token_text.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {

class ReportData {
 public:
  struct Options {
    TraceFilter filter;
    int32_t num_candidates = 8;
    uint64_t tokens_max = 200'000;
  };
  ReportData(Options options, TokenText text, ReplayBackend* backend)
      : options_(std::move(options)),
        text_(std::move(text)),
        backend_(backend),
        place_rows_(backend) {}

  // `rows` may be null. `start_ns`: TraceReader::start_ns.
  absl::Status Take(const TraceItem& item, const RowFileReader* rows, int64_t start_ns);
  // `doctor`: members of `trace` that the doctor found (DoctorMembers).
  std::string Json(const std::string& file_name, std::vector<std::string> warnings,
                   std::string_view doctor) const;
  // The answers that the filter takes.
  // Later rounds are left out, because the page has as many tokens as it takes.
  bool is_full() const { return full_at_.has_value(); }
  uint64_t num_steps() const { return steps_.count(); }

 private:
  struct Step;

  absl::Status TakeRound(const TraceRound& round, const RowFileReader* rows);
  void AddStep(const TraceRound& round, const TraceAnswer& answer, const TraceTask* task);
  absl::Status AddPlaces(const TraceRound& round, const TraceAnswer& answer, const TraceTask& task,
                         const RoundRebuilder& rebuilder, std::optional<size_t> in_batch);
  void AddDecision(const PlaceView& view);
  absl::Status AddRows(const TraceRound& round, const PlaceView& view,
                       const RoundRebuilder& rebuilder, std::optional<size_t> in_batch);
  void AddTokens(const TraceTask& task, size_t num_kept, const std::vector<std::string>& decisions,
                 const std::vector<PlaceView>& views);
  void AddRejected(const TraceTask& task, size_t num_kept,
                   const std::vector<std::string>& decisions, const std::vector<PlaceView>& views);
  absl::Status AddTree(const TraceTask& task, size_t num_kept,
                       const std::vector<std::string>& decisions, const RoundRebuilder& rebuilder,
                       std::optional<size_t> in_batch);
  void AddRejectedToken(int32_t place, TokenId token, int fate, const std::string& decision,
                        const RejectionCause& cause);
  void Count(const TraceRound& round);
  std::string Sequences() const;
  std::string Facts(const std::string& file_name, std::vector<std::string> warnings,
                    std::string_view doctor) const;

  std::string Text(std::string_view text) {
    return text.empty() ? "null" : std::to_string(strings_.IndexOf(text));
  }
  std::string IdJson(TokenId id) const;
  std::string IdText(TokenId id);

  Options options_;
  TokenText text_;
  ReplayBackend* backend_;
  PlaceRows place_rows_;
  std::optional<TraceInfo> info_;
  int64_t start_ns_ = 0;
  SequenceBook book_;
  mutable StringTable strings_;
  JsonTable steps_{{"sequence", "round", "time_ms", "verify_us", "base", "method", "drafted",
                    "reached", "accepted", "judged_accepted", "kept", "status", "finish"}};
  JsonTable tokens_{{"step", "id", "text", "kind", "decision"}};
  JsonTable rejected_{{"step", "place", "id", "text", "fate", "decision", "cause", "cause_kind"}};
  JsonTable decisions_{
      {"step",      "place",        "draft_id", "draft_text", "draft_kind",    "p",
       "q",         "accept_coin",  "verdict",  "token",      "token_text",    "token_p",
       "draw_coin", "draw_purpose", "draw_low", "draw_high",  "residual_mass", "prefix",
       "bound",     "why"}};
  JsonTable candidates_{{"decision", "id", "text", "p", "q", "forbidden", "free_p"}};
  JsonTable nodes_{{"step", "node", "parent", "rejected", "id", "text", "kind", "fate", "p", "q",
                    "d", "bound", "coin"}};
  JsonTable grammar_{{"decision", "state", "mask", "allowed"}};
  std::optional<uint64_t> full_at_;  // the first round that is left out
  TraceLevel level_ = TraceLevel::kOff;
  uint64_t num_rounds_ = 0;
  uint64_t num_kept_ = 0;
  uint64_t num_drafted_ = 0;
  uint64_t num_accepted_ = 0;
  std::map<size_t, uint64_t> dropped_;  // rounds, by file
};

}  // namespace specd::replay
