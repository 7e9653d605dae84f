// RowTests sums what only recorded rows tell: whether drafts were drawn from the declared q,
// whether p and q belong together, and what other drafts would have been accepted.
//
// Every sum is over draft tokens that were drawn. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "daemon/trace/draw_evidence.h"
#include "tools/replay/doctor/judged_draft.h"
#include "tools/replay/doctor/round_rows.h"
#include "tools/replay/doctor/sums.h"

namespace specd::replay {

// Two places whose target rows may have been taken for each other's: places in a row of a draft, or
// the same place of sequences in a row of a round.
enum class Neighbours : uint32_t { kPlaces, kSequences };
inline constexpr size_t kNumNeighbours = 2;

// What the drafts of two places would gain if they had each other's target rows. The same p and the
// same q are on both sides of the difference, so that flat rows gain nothing by being flat. One
// number for each round.
struct SwapSum {
  MeanSum overlap;    // of the sum of min(p, q), for each place
  MeanSum agreement;  // of places where p and q have the same best id, which no temperature moves
  // The second place's q has the best id of the first place's p, and the other way round.
  uint64_t num_before = 0;
  uint64_t num_after = 0;
};

// The uses of a coin that may repeat: at the place before, for the sequence before in the round, in
// the round before, and as the ACCEPT coin.
enum class CoinRepeat : uint32_t { kPlace, kSequence, kRound, kAccept };
inline constexpr size_t kNumCoinRepeats = 4;

class RowTests {
 public:
  RowTests(ReplayBackend* backend, int32_t vocab_size)
      : rows_(backend), draws_(vocab_size), gains_(DrawEvidence::Temperatures().size()) {
    acceptances_.resize(gains_.size());
    log_gains_.resize(gains_.size());
  }

  // Starts a round. REQUIRES: the rebuilder's batch has run.
  absl::Status Begin(const RoundRebuilder& rebuilder);
  // Task i of the batch, with its judged drafts, and all nodes if it is a tree. `sequence` numbers
  // the sequences of the trace. Returns the sum of min(p, q) at each judged draft; below 0: no
  // rows.
  absl::StatusOr<std::vector<double>> Take(const RoundRebuilder& rebuilder, size_t i,
                                           const TraceTask& record, size_t sequence,
                                           const std::vector<JudgedDraft>& judged);
  void EndRound();
  std::span<const double> Residuals(size_t i) const { return round_.Residuals(i); }
  std::span<const float> P(size_t i, int32_t place) const {
    return round_.P(static_cast<int64_t>(i), place);
  }
  PlaceRows* place_rows() { return &rows_; }

  const DrawEvidence& draws() const { return draws_; }
  // min(1, p / q) of the drafted id against the sum of min(p, q).
  const ZSum& shares() const { return shares_; }
  // `token`: what was accepted, against the sum of min(p, q).
  const AcceptanceSum& accepted() const { return accepted_; }
  const ZSum& repeats(CoinRepeat which) const { return repeats_[static_cast<size_t>(which)]; }
  const SwapSum& swaps(Neighbours which) const { return swaps_[static_cast<size_t>(which)]; }

  const MeanSum& overlap() const { return overlap_; }
  const MeanSum& best() const { return best_; }    // p of q's best id
  const MeanSum& mixed() const { return mixed_; }  // the best id and one drawn from the rest
  const MeanSum& best_gain() const { return best_gain_; }  // over the drawn draft
  const MeanSum& mixed_gain() const { return mixed_gain_; }
  const MeanSum& outside() const { return outside_; }  // p where the draft row has no mass
  // By number of temperature: acceptance, its gain, and the gain in the likelihood of p.
  const std::vector<MeanSum>& acceptances() const { return acceptances_; }
  const std::vector<MeanSum>& gains() const { return gains_; }
  const std::vector<MeanSum>& log_gains() const { return log_gains_; }

 private:
  struct Rank {  // of a drawn id in q: where a coin must have been that draws it in order
    double middle = 0;
    double variance = 0;
  };
  absl::Status AddDraw(const RoundRebuilder& rebuilder, size_t i, int32_t node, int32_t place,
                       TokenId id, std::span<const TokenId> without);
  void AddPair(std::span<const float> p, std::span<const float> q, TokenId id);
  void AddTemperatures(std::span<const float> p);
  void AddSwap(Neighbours which, size_t i, int32_t place, size_t other, int32_t other_place);
  void AddRepeats(size_t i, size_t sequence, const JudgedDraft& draft);
  absl::Status TakeTree(const RoundRebuilder& rebuilder, size_t i, const TraceTask& record);

  PlaceRows rows_;
  RoundRows round_;
  DrawEvidence draws_;
  ZSum shares_;
  AcceptanceSum accepted_;
  std::array<ZSum, kNumCoinRepeats> repeats_;
  struct RoundSwap {
    double overlap = 0;
    double agreement = 0;
    uint64_t count = 0;
  };
  std::array<SwapSum, kNumNeighbours> swaps_;
  std::array<RoundSwap, kNumNeighbours> swaps_of_round_;
  MeanSum overlap_, best_, mixed_, best_gain_, mixed_gain_, outside_;
  std::vector<MeanSum> gains_, acceptances_, log_gains_;
  std::unordered_map<uint64_t, Rank> ranks_;       // of this round, by task and place
  std::unordered_map<uint64_t, Rank> last_ranks_;  // by sequence and place
};

}  // namespace specd::replay
