// TextbookSampler samples as a textbook does, for comparison with the kernels.
//
// It uses one array of candidates, std::exp and std::sort. It has no hand-written vector
// instructions, one thread, and a pass for every step. It draws the tokens that specd draws. It is
// no library's code and stands for none. Its costs are of the same kind as those of samplers that
// work on such arrays. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/types.h"
#include "tools/bench/peer.h"
#include "tools/bench/round_set.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

class TextbookSampler final : public Peer {
 public:
  // True for sampling from the target with penalties and filters, without masks, scores or draft
  // rows.
  static bool Supports(const VerifyCase& verify_case);

  // REQUIRES: Supports(set.verify_case()).
  explicit TextbookSampler(const RoundSet& set) : set_(set) {}

  void Prepare(int32_t round) override { round_ = round; }
  // Appends the tokens of a sequence: draft tokens while they equal the drawn tokens, and then the
  // first drawn token that differs, or one more.
  void Run(std::vector<TokenId>* tokens) override;

 private:
  struct Candidate {
    TokenId id;
    float logit;
    float weight;
  };

  TokenId Next(const Task& task, int32_t place);
  void Penalise(const Task& task, int32_t place);
  void Filter();
  TokenId Draw(double u) const;

  const RoundSet& set_;
  int32_t round_ = 0;
  std::vector<Candidate> candidates_;
};

}  // namespace specd::bench
