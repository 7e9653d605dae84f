#include "tests/tools/replay/doctor_engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/philox.h"
#include "speculative/verifier.h"
#include "tests/support/trace_maker.h"
#include "tests/support/verify_round.h"

namespace specd::test {
namespace {

using Ids = std::vector<TokenId>;
using Row = std::vector<double>;

class Engine {
 public:
  Engine(const EngineKind& kind, const std::string& path)
      : kind_(kind), random_(kind.seed), places_(kind.is_tree ? 7 : kind.num_drafts + 1) {
    VerifierOptions options;
    options.limits = {kind.vocab_size, kind.num_sequences, places_ - 1};
    options.max_sequences = 64;
    verifier_ = *Verifier::Create(options, *MakeBackend("cpu"));
    const auto num_rows = static_cast<size_t>(kind.num_sequences * places_);
    target_.resize(num_rows * Vocab());
    draft_.resize(num_rows * Vocab());
    mask_.resize(num_rows * MaskWords());
    SPECD_CHECK(verifier_->BindTarget(View(target_)).ok());
    SPECD_CHECK(verifier_->BindDraft(View(draft_)).ok());
    verifier_->BindMask({.words = mask_.data(),
                         .num_rows = static_cast<int32_t>(num_rows),
                         .row_stride = static_cast<int64_t>(MaskWords())});
    TraceInfo info;
    info.backend = "cpu";
    info.vocab_size = static_cast<uint32_t>(kind.vocab_size);
    maker_.emplace(path, TraceLevel::kRows, info);
    verifier_->Observe(&*maker_);
    for (int32_t s = 0; s < kind.num_sequences; ++s) Open(s);
  }

  void Run(int32_t num_judged) {
    int32_t judged = 0;
    while (judged < num_judged) judged += Round();
    maker_->Finish();
  }

 private:
  struct Drafts {
    Ids tokens;
    std::vector<int32_t> parents;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    std::vector<int32_t> mask_rows;
  };

  size_t Vocab() const { return static_cast<size_t>(kind_.vocab_size); }
  size_t MaskWords() const { return (Vocab() + 31) / 32; }
  TensorView View(const std::vector<float>& rows) const {
    TensorView view;
    view.data = rows.data();
    view.num_rows = static_cast<int64_t>(rows.size() / Vocab());
    view.row_stride = view.vocab_size = kind_.vocab_size;
    return view;
  }

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
    const auto info = verifier_->Open(params, {.prompt = prompt, .outputs = {}});
    SPECD_CHECK(info.ok());
    handles_.push_back(info->handle);
    seeds_.push_back(info->seed);
    texts_.push_back(prompt);
    TraceOpening opening;
    opening.time_ns = 1;
    opening.sequence = info->handle;
    opening.request_id = "r" + std::to_string(s);
    opening.method = info->method;
    opening.seed = info->seed;
    opening.num_prompt_ids = 2;
    maker_->Opened(opening);
  }

  // Zipf-like logits in an order that the last two tokens choose; the drafter adds noise.
  void FillRows(const Ids& tokens, size_t target, size_t draft) {
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
      target_[target * Vocab() + id] = static_cast<float>(z);
      const bool is_left_out = kind_.has_narrow_rows && id >= 64;
      const double y = kind_.draft_factor * (z + kind_.noise * normal(random));
      draft_[draft * Vocab() + id] = is_left_out ? -INFINITY : static_cast<float>(y);
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

  Drafts MakeChain(int32_t s) {
    Drafts drafts;
    Ids tokens = texts_[size_t(s)];
    for (int32_t place = 0; place < places_; ++place) {
      const auto row = static_cast<size_t>(s * places_ + place);
      FillRows(tokens, row, row);
      const int32_t last = places_ - 1;
      drafts.target_rows.push_back(
          Named(s, place, kind_.target_shift, kind_.target_rotation, last));
      FillMask(row, &drafts);
      if (place == last) break;
      drafts.draft_rows.push_back(
          Named(s, place, kind_.draft_shift, kind_.draft_rotation, last - 1));
      const TokenId token = Draw(s, &draft_[row * Vocab()], Coin(s, place));
      drafts.tokens.push_back(token);
      drafts.kinds.push_back(kind_.is_drawn ? DraftKind::kSampled : DraftKind::kOneHot);
      tokens.push_back(token);
    }
    return drafts;
  }

  // Two siblings at each of three places: with replacement, or the best id and one of the rest.
  Drafts MakeTree(int32_t s) {
    Drafts drafts;
    std::vector<Ids> texts = {texts_[size_t(s)]};
    for (int32_t place = 0; place < places_; ++place) {
      const auto row = static_cast<size_t>(s * places_ + place);
      FillRows(texts[size_t(place)], row, row);
      drafts.target_rows.push_back(static_cast<uint32_t>(row));
      FillMask(row, &drafts);
      for (int32_t sibling = 0; sibling < 2 && int32_t(drafts.tokens.size()) < places_ - 1;
           ++sibling) {
        const float* const q = &draft_[row * Vocab()];
        const bool is_best = kind_.has_mixed_siblings && sibling == 0;
        const TokenId taken = kind_.has_mixed_siblings ? Best(q) : kNoToken;
        const TokenId token = is_best ? taken : Draw(s, q, Coin(s, place), taken);
        drafts.tokens.push_back(token);
        drafts.parents.push_back(place - 1);
        drafts.kinds.push_back(is_best                    ? DraftKind::kOneHot
                               : kind_.has_mixed_siblings ? DraftKind::kSampledRest
                                                          : DraftKind::kSampled);
        drafts.draft_rows.push_back(static_cast<uint32_t>(row));
        texts.push_back(texts[size_t(place)]);
        texts.back().push_back(token);
      }
    }
    return drafts;
  }

  void FillMask(size_t row, Drafts* drafts) {
    if (!kind_.has_masks && !kind_.has_forced_places) return;
    const bool is_forced = kind_.has_forced_places && random_() % 3 == 0;
    // Mostly the id that the target has as its best one.
    const auto forced = static_cast<uint32_t>(random_() % 8 == 0 ? random_() % Vocab()
                                                                 : Best(&target_[row * Vocab()]));
    for (size_t w = 0; w < MaskWords(); ++w) {
      uint32_t word = kind_.has_masks ? static_cast<uint32_t>(random_() | random_()) | 1u : ~0u;
      if (is_forced) word = forced / 32 == w ? 1u << forced % 32 : 0;
      mask_[row * MaskWords() + w] = word;
    }
    drafts->mask_rows.push_back(static_cast<int32_t>(row));
  }

  int32_t Round() {
    std::vector<Drafts> drafts;
    for (int32_t s = 0; s < kind_.num_sequences; ++s) {
      drafts.push_back(kind_.is_tree ? MakeTree(s) : MakeChain(s));
    }
    std::vector<SequenceInput> inputs;
    for (size_t s = 0; s < drafts.size(); ++s) {
      SequenceInput input;
      input.sequence = handles_[s];
      input.draft.num_nodes = static_cast<int32_t>(drafts[s].tokens.size());
      input.draft.tokens = drafts[s].tokens.data();
      if (kind_.is_tree) input.draft.parents = drafts[s].parents.data();
      input.draft.kinds = drafts[s].kinds.data();
      input.draft.target_rows = drafts[s].target_rows.data();
      input.draft.draft_rows = drafts[s].draft_rows.data();
      if (!drafts[s].mask_rows.empty()) input.mask_rows = drafts[s].mask_rows.data();
      inputs.push_back(input);
    }
    std::vector<SequenceResult> results(inputs.size());
    VerifyRound(verifier_, inputs, results);
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
  std::unique_ptr<Verifier> verifier_;
  std::optional<TraceMaker> maker_;
  std::vector<float> target_;
  std::vector<float> draft_;
  std::vector<uint32_t> mask_;
  std::vector<SequenceHandle> handles_;
  std::vector<uint64_t> seeds_;
  std::vector<DraftParams> declared_;
  std::vector<Ids> texts_;
  double shared_ = 0;
  double coins_of_round_[8] = {};
};

}  // namespace

void RecordEngine(const EngineKind& kind, int32_t num_judged, const std::string& path) {
  Engine(kind, path).Run(num_judged);
}

}  // namespace specd::test
