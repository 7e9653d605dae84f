#include "tests/tools/replay/doctor_engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/core/philox.h"
#include "tests/daemon/recorder/traced_session.h"

namespace specd::test {
namespace {

using Ids = std::vector<TokenId>;
using Row = std::vector<double>;

class Engine {
 public:
  Engine(const EngineKind& kind, const std::string& folder)
      : kind_(kind),
        random_(kind.seed),
        places_(kind.is_tree ? 7 : kind.num_drafts + 1),
        traced_({.trace_options = "level=rows,places=all",
                 .directory = folder,
                 .limits = {.vocab_size = static_cast<uint32_t>(kind.vocab_size),
                            .max_batch = static_cast<uint32_t>(kind.num_sequences),
                            .max_sequences = static_cast<uint32_t>(kind.num_sequences),
                            .max_draft = static_cast<uint32_t>(places_ - 1),
                            .ring_depth = 2},
                 .num_rows = static_cast<uint32_t>(kind.num_sequences * places_)}) {
    for (int32_t s = 0; s < kind.num_sequences; ++s) Open(s);
  }

  void Run(int32_t num_judged) {
    int32_t judged = 0;
    while (judged < num_judged) judged += Round();
    traced_.Finish();
  }

 private:
  size_t Vocab() const { return static_cast<size_t>(kind_.vocab_size); }

  void Open(int32_t s) {
    SequenceParams params = kind_.params;
    params.max_tokens = 1'000'000;
    params.ignore_eos = true;
    params.has_seed = true;
    params.seed = kind_.seed * 1000 + static_cast<uint64_t>(s);
    const auto own = [s](const std::vector<double>& values, auto* value) {
      if (!values.empty()) *value = values[static_cast<size_t>(s) % values.size()];
    };
    own(kind_.temperatures, &params.temperature);
    own(kind_.draft_temperatures, &params.draft.temperature);
    declared_.push_back(params.draft);
    const Ids prompt = {s + 1, 2 * s + 1};
    handles_.push_back(
        traced_.Open("r" + std::to_string(s), params, {.prompt = prompt, .outputs = {}}));
    seeds_.push_back(params.seed);
    texts_.push_back(prompt);
  }

  // Zipf-like logits in an order that the last two tokens choose; the drafter adds noise.
  void FillRows(const Ids& tokens, uint32_t row) {
    const auto last = static_cast<uint64_t>(tokens.back());
    const auto before = static_cast<uint64_t>(tokens[tokens.size() - 2]);
    std::mt19937_64 random(last * 1'000'003 + before * 7919 + kind_.seed);
    std::vector<size_t> order(Vocab());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::normal_distribution<double> normal;
    const double boost = kind_.certain_boost > 0 && random() % 2 == 0 ? kind_.certain_boost : 0;
    for (size_t rank = 0; rank < order.size(); ++rank) {
      const size_t id = order[rank];
      const double z = (rank == 0 ? boost : 0) - kind_.sharpness * std::log(double(rank + 1)) +
                       .3 * normal(random);
      traced_.TargetRow(row)[id] = static_cast<float>(z);
      const bool is_left_out = kind_.has_narrow_rows && id >= 64;
      const double y = kind_.draft_factor * (z + kind_.noise * normal(random));
      traced_.DraftRow(row)[id] = is_left_out ? -INFINITY : static_cast<float>(y);
    }
  }

  // What the drafter draws from: its row as it reads it.
  Row Weights(int32_t s, const float* row) const {
    const DraftParams& declared = declared_[size_t(s)];
    const double t = kind_.drawn_temperature > 0 ? kind_.drawn_temperature : declared.temperature;
    const auto top_k = kind_.drawn_top_k >= 0 ? int64_t{kind_.drawn_top_k} : declared.top_k;
    const double top_p = kind_.drawn_top_p >= 0 ? kind_.drawn_top_p : declared.top_p;
    Row weights(Vocab());
    for (size_t id = 0; id < Vocab(); ++id) {
      const bool may = !kind_.draws_few_ids || id % 4 == 0;
      weights[id] = may ? std::exp(double(row[id]) / t) : 0;
    }
    std::vector<size_t> order(Vocab());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return weights[a] > weights[b]; });
    const double most = weights[order[0]];
    double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (top_k > 0) {
      sum = 0;
      for (size_t k = 0; k < order.size(); ++k) {
        if (k >= static_cast<size_t>(top_k)) weights[order[k]] = 0;
        sum += weights[order[k]];
      }
    }
    double before = 0;
    for (const size_t id : order) {
      const double weight = weights[id];
      if (weight < declared.min_p * most || before >= top_p * sum) weights[id] = 0;
      before += weight;
    }
    return weights;
  }

  double Coin(int32_t s, int32_t place) {
    std::uniform_real_distribution<double> uniform;
    const double own = uniform(random_);
    switch (kind_.coins) {
      case EngineKind::Coins::kOneForDraft:
        if (place == 0) shared_ = own;
        return shared_;
      case EngineKind::Coins::kOneForRound:
        if (s == 0) coins_of_round_[place] = own;
        return coins_of_round_[place];
      case EngineKind::Coins::kAccept: {
        const auto kept = static_cast<uint32_t>(texts_[size_t(s)].size() - 2);
        const KeyedCoins coins(seeds_[size_t(s)], nullptr, 0);
        return CoinToDouble(
            coins({kept + uint32_t(place), kept, uint32_t(place) + 1, Purpose::kAccept}));
      }
      case EngineKind::Coins::kOwn:
        break;
    }
    return own;
  }

  TokenId Best(const float* row) const {
    return static_cast<TokenId>(std::max_element(row, row + Vocab()) - row);
  }

  // `without`: an id that a sibling has taken.
  TokenId Draw(int32_t s, const float* row, double coin, TokenId without = kNoToken) const {
    if (kind_.draws_best || !kind_.is_drawn) return Best(row);
    Row weights = Weights(s, row);
    if (without != kNoToken) weights[size_t(without)] = 0;
    double left = coin * std::accumulate(weights.begin(), weights.end(), 0.0);
    TokenId last = 0;
    for (size_t id = 0; id < weights.size(); ++id) {
      if (weights[id] <= 0) continue;
      last = static_cast<TokenId>(id);
      left -= weights[id];
      if (left < 0) break;
    }
    return last;
  }

  // The row that a faulty engine names in place of its own.
  uint32_t Named(int32_t s, int32_t place, int32_t shift, int32_t rotation, int32_t last) const {
    const int32_t other = (s - rotation + kind_.num_sequences) % kind_.num_sequences;
    return static_cast<uint32_t>(other * places_ + std::clamp(place + shift, 0, last));
  }

  DraftOf MakeChain(int32_t s) {
    DraftOf drafts{.sequence = handles_[size_t(s)]};
    Ids tokens = texts_[size_t(s)];
    for (int32_t place = 0; place < places_; ++place) {
      const auto row = static_cast<uint32_t>(s * places_ + place);
      FillRows(tokens, row);
      const int32_t last = places_ - 1;
      drafts.target_rows.push_back(
          Named(s, place, kind_.target_shift, kind_.target_rotation, last));
      FillMask(row, &drafts);
      if (place == last) break;
      drafts.draft_rows.push_back(
          Named(s, place, kind_.draft_shift, kind_.draft_rotation, last - 1));
      const TokenId token = Draw(s, traced_.DraftRow(row), Coin(s, place));
      drafts.tokens.push_back(token);
      drafts.kinds.push_back(kind_.is_drawn ? DraftKind::kSampled : DraftKind::kOneHot);
      tokens.push_back(token);
    }
    return drafts;
  }

  // Two siblings at each of three places: with replacement, or the best id and one of the rest.
  DraftOf MakeTree(int32_t s) {
    DraftOf drafts{.sequence = handles_[size_t(s)]};
    std::vector<Ids> texts = {texts_[size_t(s)]};
    for (int32_t place = 0; place < places_; ++place) {
      const auto row = static_cast<uint32_t>(s * places_ + place);
      FillRows(texts[size_t(place)], row);
      drafts.target_rows.push_back(row);
      FillMask(row, &drafts);
      for (int32_t sibling = 0; sibling < 2 && int32_t(drafts.tokens.size()) < places_ - 1;
           ++sibling) {
        const float* const q = traced_.DraftRow(row);
        const bool is_best = kind_.has_mixed_siblings && sibling == 0;
        const TokenId taken = kind_.has_mixed_siblings ? Best(q) : kNoToken;
        const TokenId token = is_best ? taken : Draw(s, q, Coin(s, place), taken);
        drafts.tokens.push_back(token);
        drafts.parents.push_back(place - 1);
        drafts.kinds.push_back(is_best                    ? DraftKind::kOneHot
                               : kind_.has_mixed_siblings ? DraftKind::kSampledRest
                                                          : DraftKind::kSampled);
        drafts.draft_rows.push_back(row);
        texts.push_back(texts[size_t(place)]);
        texts.back().push_back(token);
      }
    }
    return drafts;
  }

  void FillMask(uint32_t row, DraftOf* drafts) {
    if (!kind_.has_masks && !kind_.has_forced_places) return;
    const bool is_forced = kind_.has_forced_places && random_() % 3 == 0;
    // Mostly the id that the target has as its best one.
    const auto forced = static_cast<uint32_t>(random_() % 8 == 0 ? random_() % Vocab()
                                                                 : Best(traced_.TargetRow(row)));
    for (size_t w = 0; w < traced_.mask_words(); ++w) {
      uint32_t word = kind_.has_masks ? static_cast<uint32_t>(random_() | random_()) | 1u : ~0u;
      if (is_forced) word = forced / 32 == w ? 1u << forced % 32 : 0;
      traced_.MaskRow(row)[w] = word;
    }
    drafts->mask_rows.push_back(static_cast<int32_t>(row));
  }

  int32_t Round() {
    std::vector<DraftOf> drafts;
    for (int32_t s = 0; s < kind_.num_sequences; ++s) {
      drafts.push_back(kind_.is_tree ? MakeTree(s) : MakeChain(s));
    }
    const std::vector<SequenceResult> results = traced_.Round(drafts);
    int32_t judged = 0;
    for (size_t s = 0; s < results.size(); ++s) {
      SPECD_CHECK(results[s].status == RoundStatus::kOk);
      texts_[s].insert(texts_[s].end(), results[s].tokens, results[s].tokens + results[s].num_kept);
      const auto count = static_cast<uint32_t>(drafts[s].tokens.size());
      judged += static_cast<int32_t>(std::min(results[s].num_accepted + 1, count));
    }
    return judged;
  }

  const EngineKind kind_;
  std::mt19937_64 random_;
  const int32_t places_;
  TracedSession traced_;
  std::vector<SequenceHandle> handles_;
  std::vector<uint64_t> seeds_;
  std::vector<DraftParams> declared_;
  std::vector<Ids> texts_;
  double shared_ = 0;
  double coins_of_round_[8] = {};
};

}  // namespace

void RecordEngine(const EngineKind& kind, int32_t num_judged, const std::string& folder) {
  Engine(kind, folder).Run(num_judged);
}

}  // namespace specd::test
