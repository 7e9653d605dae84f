// Writes a trace of a toy engine with many kinds of sequences, for the tests of specd-replay.
//
//   specd_make_trace OUT [NAME=VALUE...]
//
// vocab, rounds, seed, level (1 rounds, 3 rows); bias (an id that gets +3 in every sequence),
// outside (1: each draft of the sequences after the first ends with an id outside the vocabulary),
// worse_from (from this round on the drafter is worse), nan_round (a target row of it is NaN),
// request (a prefix of the request ids), recorder (a directory: the daemon's recorder writes there,
// and OUT is not written), trees (1: every sequence drafts trees, with the methods of trees).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/recorder/trace_opening.h"
#include "daemon/recorder/trace_recorder.h"
#include "kernels/backend.h"
#include "speculative/verifier.h"
#include "tests/support/trace_maker.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;
using Options = std::map<std::string, std::string>;

constexpr int32_t kDraft = 4;
constexpr int32_t kPlaces = kDraft + 1;
constexpr int32_t kTreePlaces = 14;

int64_t NumberOf(const Options& options, const std::string& name, int64_t by_default) {
  const auto found = options.find(name);
  return found == options.end() ? by_default : std::atoll(found->second.c_str());
}

struct Scene {
  std::string name;
  SequenceParams params;
  bool sampled = false;  // its draft tokens are drawn from draft rows
  bool side_channel = false;
  bool masked = false;
  DraftKind kind = DraftKind::kOneHot;  // of a tree: the way of its drawn siblings
};

std::vector<Scene> Scenes(TokenId bias, bool trees) {
  std::vector<Scene> scenes;
  const auto add = [&](const char* name, VerifyMethod method, bool sampled) -> Scene& {
    Scene scene;
    scene.name = name;
    scene.params.verify = method;
    scene.params.has_seed = true;
    scene.params.seed = 100 + scenes.size();
    scene.params.max_tokens = 60;
    scene.sampled = sampled;
    if (bias >= 0) scene.params.logit_bias = {{bias, 3.0f}};
    scenes.push_back(scene);
    return scenes.back();
  };
  if (trees) {
    const auto add_tree = [&](const char* name, VerifyMethod method, DraftKind kind) -> Scene& {
      Scene& scene = add(name, method, kind != DraftKind::kOneHot);
      scene.kind = kind, scene.params.ignore_eos = true;
      return scene;
    };
    add_tree("greedy", VerifyMethod::kAuto, DraftKind::kOneHot).params.temperature = 0;
    add_tree("exact", VerifyMethod::kExactMatch, DraftKind::kOneHot).params.top_k = 20;
    add_tree("with", VerifyMethod::kTree, DraftKind::kSampled).params.temperature = 0.8;
    Scene& rest = add_tree("rest", VerifyMethod::kTree, DraftKind::kSampledRest);
    rest.params.top_p = 0.95, rest.params.logprobs = 2;
    add_tree("traversal", VerifyMethod::kTraversal, DraftKind::kSampledRest);
    Scene& masked = add_tree("masked", VerifyMethod::kTraversal, DraftKind::kSampled);
    masked.masked = true, masked.params.min_tokens = 30;
    masked.params.frequency_penalty = 0.5;
    add_tree("target-only", VerifyMethod::kTargetOnly, DraftKind::kOneHot).params.min_p = 0.02;
    return scenes;
  }
  add("greedy", VerifyMethod::kAuto, false).params.temperature = 0;
  add("exact", VerifyMethod::kExactMatch, false).params.top_k = 20;
  add("token", VerifyMethod::kToken, true).params.temperature = 0.8;
  Scene& block = add("block", VerifyMethod::kBlock, true);
  block.params.top_p = 0.95;
  block.params.logprobs = 2;
  Scene& one_hot = add("one-hot", VerifyMethod::kToken, false);
  one_hot.params.min_p = 0.02;
  one_hot.params.frequency_penalty = 0.5;
  one_hot.params.min_tokens = 30;
  Scene& masked = add("masked", VerifyMethod::kBlock, false);
  masked.masked = true;
  add("side", VerifyMethod::kToken, true).side_channel = true;
  return scenes;
}

class Engine {
 public:
  Engine(const std::string& path, const Options& options)
      : vocab_(static_cast<int32_t>(NumberOf(options, "vocab", 64))),
        options_(options),
        has_trees_(NumberOf(options, "trees", 0) != 0),
        places_(has_trees_ ? kTreePlaces : kPlaces),
        scenes_(Scenes(static_cast<TokenId>(NumberOf(options, "bias", -1)), has_trees_)),
        random_(static_cast<uint32_t>(NumberOf(options, "seed", 1))) {
    VerifierOptions verifier;
    verifier.limits = {vocab_, static_cast<int32_t>(scenes_.size()), places_ - 1};
    verifier.max_sequences = 16;
    verifier.eos_token_ids = {0};
    verifier_ = *Verifier::Create(verifier, *MakeBackend("cpu"));
    const auto num_rows = static_cast<int32_t>(scenes_.size()) * places_;
    target_.resize(static_cast<size_t>(num_rows * vocab_));
    draft_ = target_;
    mask_.resize(static_cast<size_t>(num_rows) * MaskWords());
    SPECD_CHECK(verifier_->BindTarget(View(target_, num_rows)).ok());
    SPECD_CHECK(verifier_->BindDraft(View(draft_, num_rows)).ok());
    verifier_->BindMask({.words = mask_.data(),
                         .num_rows = num_rows,
                         .row_stride = static_cast<int64_t>(MaskWords())});
    if (const auto directory = options.find("recorder"); directory != options.end()) {
      Attach(directory->second, verifier);
    } else {
      maker_.emplace(path, static_cast<TraceLevel>(NumberOf(options, "level", 3)), Info());
      verifier_->Observe(&*maker_);
    }
    for (const Scene& scene : scenes_) Open(scene);
  }

  void Run() {
    const int64_t rounds = NumberOf(options_, "rounds", 12);
    for (int64_t round = 1; round <= rounds; ++round) Round(round);
    if (trace_ != nullptr) {
      trace_->Ended(handles_[0], FinishReason::kAbort, 3);
      trace_->EndSession();
      recorder_->Stop();
      return;
    }
    maker_->Ended(
        {.time_ns = 1, .sequence = handles_[0], .reason = FinishReason::kAbort, .kept_tokens = 3});
    maker_->Finish();
  }

 private:
  size_t MaskWords() const { return static_cast<size_t>(vocab_ + 31) / 32; }
  TensorView View(const std::vector<float>& rows, int32_t num_rows) const {
    TensorView view;
    view.data = rows.data();
    view.num_rows = num_rows;
    view.row_stride = vocab_;
    view.vocab_size = vocab_;
    return view;
  }
  TraceInfo Info() const {
    TraceInfo info;
    info.specd_version = "0.1.0";
    info.backend = "cpu";
    info.processor = "test";
    info.vocab_size = static_cast<uint32_t>(vocab_);
    info.session = 7;
    info.start_ns = 1000;
    info.start_unix_ns = 1'700'000'000'000'000'000;
    info.eos_token_ids = {0};
    return info;
  }

  // The daemon's recorder, as a session has it.
  void Attach(const std::string& directory, const VerifierOptions& verifier) {
    const bool all_places = NumberOf(options_, "all_places", 1) != 0;
    auto trace = ParseTraceOptions(directory, all_places ? "level=rows,places=all" : "level=rows");
    SPECD_CHECK(trace.ok());
    auto recorder = TraceRecorder::Start(
        {.trace = *trace,
         .process = {.specd_version = "0.1.0", .build = "", .processor = "test", .tokenizer = ""},
         .clock = Clock::Real(),
         .log = nullptr});
    SPECD_CHECK(recorder.ok());
    recorder_ = *std::move(recorder);
    trace_ = recorder_->Attach({.session_id = 7,
                                .backend = "cpu",
                                .limits = verifier.limits,
                                .max_sequences = verifier.max_sequences,
                                .eos_token_ids = verifier.eos_token_ids});
    verifier_->Observe(trace_.get());
  }

  void Open(const Scene& scene) {
    const Ids prompt = {1, 2, 3};
    const auto info = verifier_->Open(scene.params, {.prompt = prompt, .outputs = {}});
    SPECD_CHECK(info.ok());
    handles_.push_back(info->handle);
    texts_.push_back({1, 2, 3});
    const auto prefix = options_.find("request");
    const bool has_prefix = trace_ == nullptr && prefix != options_.end();
    auto opening = DescribeOpening((has_prefix ? prefix->second : "") + scene.name, scene.params,
                                   {.prompt = prompt, .outputs = {}});
    opening->time_ns = trace_ != nullptr ? Clock::Real()->NowNs() : 2000;
    opening->sequence = info->handle;
    opening->method = info->method;
    opening->seed = info->seed;
    if (trace_ != nullptr) return trace_->Opened(std::move(opening));
    maker_->Opened(*opening);
  }

  // What a model might say after these tokens: a function of the tokens alone.
  void FillRow(const Ids& tokens, double disturbance, float* row) {
    uint32_t state = 12345;
    for (size_t i = tokens.size() - 2; i < tokens.size(); ++i) {
      state = state * 31 + static_cast<uint32_t>(tokens[i] + 1);
    }
    std::mt19937 random(state);
    for (int32_t v = 0; v < vocab_; ++v) {
      const double logit = double(random() % 1024) / 128.0;
      const double noise = disturbance * (double(random() % 1024) / 512.0 - 1);
      row[v] = static_cast<float>(logit + noise);
    }
  }

  TokenId Draw(const float* row) {
    std::vector<double> weights;
    for (int32_t v = 0; v < vocab_; ++v) weights.push_back(std::exp(double{row[v]}));
    return static_cast<TokenId>(
        std::discrete_distribution<int>(weights.begin(), weights.end())(random_));
  }
  TokenId Best(const float* row) {
    return static_cast<TokenId>(std::max_element(row, row + vocab_) - row);
  }

  struct Chain {
    Ids tokens;
    std::vector<int32_t> parents;  // of a tree
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    std::vector<int32_t> mask_rows;
    std::vector<float> weights;
    std::vector<double> masses;
  };

  Chain MakeChain(size_t s, int64_t round) {
    const Scene& scene = scenes_[s];
    const bool is_bad = round == NumberOf(options_, "nan_round", 0) && scene.name == "token";
    const bool is_worse = round >= NumberOf(options_, "worse_from", 1 << 30);
    Chain chain;
    Ids tokens = texts_[s];
    const size_t count = static_cast<size_t>(round + int64_t(s)) % kPlaces;
    for (size_t i = 0; i <= count; ++i) {
      const auto row = static_cast<uint32_t>(s * kPlaces + i);
      float* const target = &target_[row * static_cast<size_t>(vocab_)];
      float* const draft = &draft_[row * static_cast<size_t>(vocab_)];
      FillRow(tokens, 0, target);
      FillRow(tokens, is_worse ? 6 : 1, draft);
      chain.target_rows.push_back(row);
      if (scene.masked) FillMask(row, &chain);
      if (is_bad && i == count / 2) target[3] = NAN;
      if (i == count) break;
      const TokenId token = scene.sampled ? Draw(draft) : Best(draft);
      chain.tokens.push_back(token);
      chain.kinds.push_back(scene.sampled ? DraftKind::kSampled : DraftKind::kOneHot);
      chain.draft_rows.push_back(row);
      AddShare(draft, token, &chain);
      tokens.push_back(token);
    }
    if (s > 0 && count > 0 && NumberOf(options_, "outside", 0) != 0) {
      chain.tokens[count / 2] = vocab_ + 7;
    }
    return chain;
  }

  // Up to three children at each place, breadth first. The first one is the best id; the others are
  // drawn if the scene draws, and of two equal ids that were not drawn apart one is left out.
  Chain MakeTree(size_t s, int64_t round) {
    const Scene& scene = scenes_[s];
    const int32_t width = 1 + static_cast<int32_t>((round + int64_t(s)) % 3);
    Chain tree;
    std::vector<Ids> texts = {texts_[s]};
    for (size_t place = 0; place < texts.size(); ++place) {
      const auto row = static_cast<uint32_t>(s * static_cast<size_t>(places_) + place);
      float* const target = &target_[row * static_cast<size_t>(vocab_)];
      float* const draft = &draft_[row * static_cast<size_t>(vocab_)];
      FillRow(texts[place], 0, target);
      FillRow(texts[place], 1, draft);
      tree.target_rows.push_back(row);
      if (scene.masked) FillMask(row, &tree);
      std::vector<float> rest(draft, draft + vocab_);
      for (int32_t j = 0; j < width && static_cast<int32_t>(texts.size()) < places_; ++j) {
        const bool is_drawn = scene.sampled && (j > 0 || round % 2 == 0);
        const TokenId token = is_drawn ? Draw(rest.data()) : Best(rest.data());
        // A one-hot id may be drawn again by siblings with replacement.
        if (!is_drawn || scene.kind == DraftKind::kSampledRest) rest[token] = -INFINITY;
        if (scene.kind == DraftKind::kSampled) rest.assign(draft, draft + vocab_);
        tree.tokens.push_back(token);
        tree.parents.push_back(static_cast<int32_t>(place) - 1);
        tree.kinds.push_back(is_drawn ? scene.kind : DraftKind::kOneHot);
        tree.draft_rows.push_back(row);
        texts.push_back(texts[place]);
        texts.back().push_back(token);
      }
    }
    if (s > 0 && !tree.tokens.empty() && round % 4 == 0) tree.tokens[0] = vocab_ + 7;
    return tree;
  }

  // The engine's own q(x), as a drafter's kernel might compute it.
  void AddShare(const float* row, TokenId token, Chain* chain) const {
    double mass = 0;
    for (int32_t v = 0; v < vocab_; ++v) mass += std::exp(double{row[v]} - 8);
    chain->weights.push_back(static_cast<float>(std::exp(double{row[token]} - 8)));
    chain->masses.push_back(mass);
  }

  void FillMask(uint32_t row, Chain* chain) {
    for (size_t w = 0; w < MaskWords(); ++w) {
      mask_[row * MaskWords() + w] = static_cast<uint32_t>(random_()) | 0x11u;
    }
    chain->mask_rows.push_back(static_cast<int32_t>(row));
  }

  void Round(int64_t round) {
    std::vector<Chain> chains;
    for (size_t s = 0; s < scenes_.size(); ++s) {
      chains.push_back(has_trees_ ? MakeTree(s, round) : MakeChain(s, round));
    }
    std::vector<SequenceInput> inputs;
    for (size_t s = 0; s < scenes_.size(); ++s) {
      const Chain& chain = chains[s];
      SequenceInput input;
      input.sequence = handles_[s];
      input.draft.num_nodes = static_cast<int32_t>(chain.tokens.size());
      input.draft.tokens = chain.tokens.data();
      if (has_trees_) input.draft.parents = chain.parents.data();
      input.draft.kinds = chain.kinds.data();
      input.draft.target_rows = chain.target_rows.data();
      input.draft.draft_rows = chain.draft_rows.data();
      if (scenes_[s].side_channel) {
        input.draft.draft_weights = chain.weights.data();
        input.draft.draft_masses = chain.masses.data();
      }
      if (scenes_[s].masked) input.mask_rows = chain.mask_rows.data();
      inputs.push_back(input);
    }
    std::vector<SequenceResult> results(inputs.size());
    if (trace_ != nullptr) {
      const int64_t now_ns = Clock::Real()->NowNs();
      trace_->Taken({.round_id = static_cast<uint64_t>(round),
                     .times = {.submitted = now_ns, .taken = now_ns}});
    }
    VerifyRound(verifier_, inputs, results);
    if (trace_ != nullptr) trace_->Answered(results, Clock::Real()->NowNs());
    for (size_t s = 0; s < results.size(); ++s) {
      texts_[s].insert(texts_[s].end(), results[s].tokens, results[s].tokens + results[s].num_kept);
    }
  }

  const int32_t vocab_;
  const Options options_;
  const bool has_trees_;
  const int32_t places_;
  const std::vector<Scene> scenes_;
  std::mt19937 random_;
  std::optional<TraceMaker> maker_;
  std::unique_ptr<TraceRecorder> recorder_;
  std::shared_ptr<SessionTrace> trace_;
  std::unique_ptr<Verifier> verifier_;
  std::vector<float> target_;
  std::vector<float> draft_;
  std::vector<uint32_t> mask_;
  std::vector<SequenceHandle> handles_;
  std::vector<Ids> texts_;
};

}  // namespace
}  // namespace specd

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  specd::Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = text.find('=');
    if (equals == std::string::npos) return 2;
    options[text.substr(0, equals)] = text.substr(equals + 1);
  }
  specd::Engine(argv[1], options).Run();
  return 0;
}
