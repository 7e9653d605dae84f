// RunReport keeps the result of each prompt, and FormatTable makes the table at the end of a run.
//
// Plain data and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/toy_engine/round_drawing.h"

namespace specd::toy {

struct StreamReport {
  std::string request_id;
  std::vector<int32_t> tokens;  // kept, in order
  std::string finish = "none";  // stop, length, abort, error; none while it runs
  uint64_t num_drafts = 0;
  uint64_t num_accepted = 0;
  double seconds = 0.0;             // from its first round to its last
  std::vector<uint64_t> verify_ns;  // per round it took part in: specd_completion.verify_ns
  std::vector<uint64_t> total_ns;   // and .total_ns
  DrawnRound best = {};             // the first of the rounds that kept most draft tokens
};

struct RunReport {
  std::vector<StreamReport> streams;  // in the order of the prompts
  double seconds = 0.0;
  std::vector<uint64_t> verify_ns;  // per round of the whole batch
  std::vector<uint64_t> total_ns;
};

// An aligned table with a line per stream and one for the whole run.
std::string FormatTable(const RunReport& report);

// The same numbers as one line of JSON: {"streams": [...], "total": {...}}.
std::string FormatJson(const RunReport& report);

// The runs of one engine in several ways.
struct WayReport {
  std::string name;
  uint32_t nodes = 0;  // draft tokens of a round, at most
  RunReport report;
};

// A line for each way with its accepted draft tokens, and below them the best round of each, drawn.
std::string FormatComparison(const std::vector<WayReport>& ways,
                             const std::function<std::string(int32_t)>& text_of);

// The median; with two values in the middle, the lower; 0 if there are no values.
uint64_t Median(std::vector<uint64_t> values);

}  // namespace specd::toy
