// Peer is another sampler that verifies the same rounds as specd, for comparison.
//
// Peer is a seam: the command and the build choose the peer, the textbook's or llama.cpp's. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/core/types.h"
#include "tools/bench/round_set.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

class Peer {
 public:
  virtual ~Peer() = default;

  // Prepares for a run of `round`, outside the measured time.
  virtual void Prepare(int32_t round) = 0;

  // Verifies every sequence of the round that was prepared last, and appends its tokens to
  // `tokens`.
  virtual void Run(std::vector<TokenId>* tokens) = 0;
};

// TextbookSampler samples as a textbook does, for comparison with the kernels.
//
// It uses one array of candidates, std::exp and std::sort. It has no hand-written vector
// instructions, one thread, and a pass for every step. It draws the tokens that specd draws. It is
// no library's code and stands for none. Its costs are of the same kind as those of samplers that
// work on such arrays.
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

// MakeLlamaLoop runs llama.cpp's sample-and-accept loop on the rounds of a RoundSet, as a peer for
// the benchmark.
//
// The loop does the work of common_sampler_sample_and_accept_n without a grammar. For every row it
// makes an array of (id, logit, p) and runs a chain of samplers over the array. The token goes back
// into the chain. The samplers are llama.cpp's own, from an installed libllama. A build uses
// libllama only if SPECD_LLAMA names its prefix.
//
// Samples and accepts at every place of every sequence, as if each draft token were the token that
// llama.cpp draws. A run of the same round draws the same tokens again. Null in a build without
// llama.cpp. REQUIRES: rows of fp32, TextbookSampler::Supports(set.verify_case()), and a `set` that
// outlives the peer.
std::unique_ptr<Peer> MakeLlamaLoop(const RoundSet& set);
bool IsLlamaBuiltIn();

}  // namespace specd::bench
