// VerifySuite measures rounds on a backend for `specd-bench verify`, beside a read of the same
// rows, chains over them, or a peer.
//
// For every combination that was asked for, the suite makes the rows and lets the backend run every
// round once. It compares the tokens with the reference. Then it times floor and case in turn until
// the time is used. A round whose answer differs from its first answer is an error. The suite runs
// on the calling thread.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "tools/bench/cells.h"

namespace specd::bench {

// Takes the cases of HasPeer on rows of fp32.
inline constexpr std::string_view kLlama = "llama";

class VerifySuite {
 public:
  VerifySuite(const VerifyOptions& options, const Machine& machine, RoundHooks hooks)
      : options_(options),
        machine_(machine),
        hooks_(std::move(hooks)),
        pools_(options.shape, options.rows_path) {}

  absl::Status Run();

 private:
  int32_t NumRounds(const Cell& cell) const;
  std::string_view BaseOf(const VerifyCase& verify_case) const;
  absl::Status RunCell(const Cell& cell);
  absl::Status Time(const Cell& cell, AnsweredCell* answered);

  VerifyOptions options_;
  Machine machine_;
  RoundHooks hooks_;
  PoolCache pools_;
};

}  // namespace specd::bench
