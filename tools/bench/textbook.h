// TextbookSampler: a sampler as a textbook has it, to see what the kernels' care is worth.
//
// One array of candidates, std::exp, std::sort: no vector instructions by hand, one thread, a pass
// for every step. It draws the tokens that specd draws. It is no library's code and stands for
// none; the costs are of the same kind as those of samplers that work on such arrays. Not
// thread-safe.
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
  // Sampling from the target with penalties and filters; no masks, scores or draft rows.
  static bool Supports(const VerifyCase& verify_case);

  // REQUIRES: Supports(set.verify_case()).
  explicit TextbookSampler(const RoundSet& set) : set_(set) {}

  void Prepare(int32_t round) override { round_ = round; }
  // The tokens of a sequence: drafts as long as they are what is drawn, then the first token that
  // is drawn otherwise, or one more.
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
