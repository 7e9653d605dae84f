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
#include "tools/bench/round_set.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

class TextbookSampler {
 public:
  // Sampling from the target with penalties and filters; no masks, scores or draft rows.
  static bool Supports(const VerifyCase& verify_case);

  // REQUIRES: Supports(set.verify_case()).
  explicit TextbookSampler(const RoundSet& set) : set_(set) {}

  // Verifies every sequence of a round, appending its tokens to `tokens`: drafts as long as they
  // are what is drawn, then the first token that is drawn otherwise, or one more.
  void Run(int32_t round, std::vector<TokenId>* tokens);

 private:
  struct Candidate {
    TokenId id;
    float logit;
    float weight;
  };

  TokenId Next(const ChainTask& task, int32_t place);
  void Penalise(const ChainTask& task, int32_t place);
  void Filter();
  TokenId Draw(double u) const;

  const RoundSet& set_;
  std::vector<Candidate> candidates_;
};

}  // namespace specd::bench
