#include "tools/bench/llama_loop.h"

#include <llama.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace specd::bench {
namespace {

struct FreeSampler {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using Chain = std::unique_ptr<llama_sampler, FreeSampler>;

// llama.cpp does not tell prompt from output: an id that only the prompt holds counts once.
int32_t CountOf(const TokenEdit& edit) { return std::max(static_cast<int32_t>(edit.count), 1); }

// The samplers of the case, in the default order of llama.cpp's own programs: penalties, filters on
// the model's distribution, temperature, a draw. Samplers that the case turns off are left out.
// Temperature 0 is llama.cpp's greedy sampler after its top-k of 1. Together the two take three
// quarters of the time of the greedy sampler alone.
Chain MakeChain(const VerifyCase& verify_case, int32_t vocab_size, int32_t history_max,
                uint32_t seed) {
  constexpr size_t kMinKeep = 0;
  Chain chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain.get(), sampler); };
  if (verify_case.num_penalised > 0) {
    const Penalties& penalties = verify_case.penalties;
    add(llama_sampler_init_penalties(vocab_size, history_max, penalties.repetition,
                                     penalties.frequency, penalties.presence));
  }
  if (verify_case.temperature == 0) {
    add(llama_sampler_init_top_k(1));
    add(llama_sampler_init_greedy());
    return chain;
  }
  if (verify_case.top_k > 0) add(llama_sampler_init_top_k(verify_case.top_k));
  const auto top_p = static_cast<float>(verify_case.top_p);
  if (top_p < 1) add(llama_sampler_init_top_p(top_p, kMinKeep));
  const auto min_p = static_cast<float>(verify_case.min_p);
  if (min_p > 0) add(llama_sampler_init_min_p(min_p, kMinKeep));
  add(llama_sampler_init_temp(static_cast<float>(verify_case.temperature)));
  add(llama_sampler_init_dist(seed));
  return chain;
}

class BuiltInLoop final : public LlamaLoop {
 public:
  explicit BuiltInLoop(const RoundSet& set) : set_(set) {
    const RoundShape& shape = set.shape();
    // RoundSet gives an id a count of 3 at most.
    const int32_t history_max =
        3 * (set.verify_case().num_penalised + shape.rows_of_sequence()) + shape.rows_of_sequence();
    for (int32_t s = 0; s < shape.batch; ++s) {
      chains_.push_back(MakeChain(set.verify_case(), set.target().vocab_size, history_max,
                                  static_cast<uint32_t>(s)));
    }
  }

  // Returns to the seed and to the history that the round begins with.
  void Prepare(int32_t round) override {
    round_ = round;
    for (int32_t s = 0; s < set_.shape().batch; ++s) {
      llama_sampler* chain = chains_[static_cast<size_t>(s)].get();
      llama_sampler_reset(chain);
      const SequenceEdits& edits = set_.task(round, s).edits;
      for (int32_t i = 0; i < edits.num_edits; ++i) {
        const TokenEdit& edit = edits.edits[i];
        for (int32_t n = 0; n < CountOf(edit); ++n) llama_sampler_accept(chain, edit.id);
      }
    }
  }

  void Run(std::vector<TokenId>* tokens) override {
    for (int32_t s = 0; s < set_.shape().batch; ++s) {
      const Draft& draft = set_.task(round_, s).draft;
      llama_sampler* chain = chains_[static_cast<size_t>(s)].get();
      for (int32_t place = 0; place <= draft.num_nodes; ++place) {
        const TokenId token = Sample(chain, RowAt(set_.target(), draft.target_rows[place]));
        llama_sampler_accept(chain, token);
        tokens->push_back(token);
      }
    }
  }

 private:
  TokenId Sample(llama_sampler* chain, const RowView& row) {
    const auto* logits = static_cast<const float*>(row.data);
    candidates_.resize(static_cast<size_t>(row.vocab_size));
    for (TokenId id = 0; id < row.vocab_size; ++id) {
      candidates_[static_cast<size_t>(id)] = llama_token_data{id, logits[id], 0};
    }
    llama_token_data_array array{candidates_.data(), candidates_.size(), -1, false};
    llama_sampler_apply(chain, &array);
    return array.data[array.selected].id;
  }

  const RoundSet& set_;
  int32_t round_ = 0;
  std::vector<Chain> chains_;  // one for each sequence of a round
  std::vector<llama_token_data> candidates_;
};

}  // namespace

bool HasLlama() { return true; }
std::unique_ptr<LlamaLoop> MakeLlamaLoop(const RoundSet& set) {
  return std::make_unique<BuiltInLoop>(set);
}

}  // namespace specd::bench
