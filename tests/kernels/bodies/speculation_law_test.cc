// The joint law of the first tokens of a text through everything at once: SampleDraft draws the
// draft with the keys of the contract, and its side channel goes into verification. Rounds follow
// one another. The counts are compared with the target's law (CONTRACT §10, "Statistical").
//
// vLLM's <tests/v1/spec_decode/test_rejection_sampler_utils.py> compares such counts by chi-square,
// one place at a time (test_gumbel_drafted_rejection_sample_is_unbiased: with the drafter's coins).
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/bodies/packed_steps.h"
#include "tests/support/chi_square.h"
#include "tests/support/rows.h"
#include "tools/oracle/oracle.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 64;
constexpr int32_t kDrafts = 3;
constexpr int32_t kBatch = 256;
constexpr int32_t kLength = 3;
constexpr double kTemperature = 0.8;
constexpr double kDraftTemperature = 1.1;

// First-order models: the row of a place depends on the token before it; row V is the beginning.
struct Models {
  Models(const oracle::Truncation& target_truncation, const oracle::Truncation& draft_truncation)
      : target({.dtype = DType::kBFloat16, .vocab_size = kVocabSize, .num_rows = kVocabSize + 1}),
        draft(target) {
    std::mt19937_64 random(71);
    for (int32_t row = 0; row <= kVocabSize; ++row) {
      std::vector<double> logits = RandomLogits(random, kVocabSize, 0.7);
      if (row % 3 == 0) logits[random() % kVocabSize] = -INFINITY;
      p.push_back(
          *oracle::Distribution(target.Set(row, logits), {}, kTemperature, target_truncation));
      std::normal_distribution<double> noise(0, 0.7);
      for (double& x : logits) x += noise(random);
      draft.Set(row, logits);
    }
    filters = FiltersOf(target_truncation);
    draft_filters = FiltersOf(draft_truncation);
  }
  RowMatrix target;
  RowMatrix draft;
  Filters filters;
  Filters draft_filters;
  std::vector<oracle::Probabilities> p;
};

// A sequence on its way to kLength tokens.
struct Sequence {
  uint64_t seed = 0;
  std::vector<TokenId> text;
  std::vector<TokenId> draft;
  std::vector<float> weights;
  std::vector<double> masses;
  std::vector<uint32_t> rows;

  uint32_t RowAfter() const { return text.empty() ? uint32_t{kVocabSize} : uint32_t(text.back()); }
};

class Generator {
 public:
  Generator(const Models& models, VerifyMethod method, bool one_hot, bool side_channel)
      : models_(models),
        method_(method),
        side_channel_(side_channel),
        backend_(*MakeBackend("cpu")) {
    kinds_.assign(kDrafts, one_hot ? DraftKind::kOneHot : DraftKind::kSampled);
    REQUIRE(backend_->Prepare({kVocabSize, kBatch, kDrafts}).ok());
  }

  // Follows kBatch sequences until all have kLength tokens.
  std::vector<Sequence> Run(uint64_t first_seed) {
    std::vector<Sequence> sequences(kBatch);
    for (Sequence& sequence : sequences) sequence.seed = first_seed++;
    while (Round(&sequences)) {
    }
    return sequences;
  }

  int64_t accepted() const { return accepted_; }
  int64_t rounds() const { return rounds_; }

 private:
  // One round of all that are not done; false when all are.
  bool Round(std::vector<Sequence>* sequences) {
    active_.clear();
    for (Sequence& sequence : *sequences) {
      if (sequence.text.size() < kLength) active_.push_back(&sequence);
    }
    if (active_.empty()) return false;
    for (Sequence* sequence : active_) {
      sequence->draft.clear();
      sequence->weights.clear();
      sequence->masses.clear();
      sequence->rows = {sequence->RowAfter()};
    }
    for (uint32_t i = 0; i < kDrafts; ++i) DrawDrafts(i);
    Verify();
    return true;
  }

  Task TaskOf(const Sequence& sequence) const {
    Task task;
    task.seed = sequence.seed;
    task.first_position = task.round_base = static_cast<uint32_t>(sequence.text.size());
    task.draft.target_rows = task.draft.draft_rows = sequence.rows.data();
    return task;
  }

  RoundBatch Batch() {
    RoundBatch batch;
    batch.tasks = tasks_.data();
    batch.num_tasks = static_cast<int32_t>(tasks_.size());
    outcomes_.assign(tasks_.size(), {});
    tokens_.resize(tasks_.size() * (kDrafts + 1));
    samples_.resize(tasks_.size());
    batch.outcomes = outcomes_.data();
    batch.tokens = tokens_.data();
    batch.tokens_stride = kDrafts + 1;
    batch.samples = samples_.data();
    batch.samples_stride = 1;
    return batch;
  }

  void DrawDrafts(uint32_t i) {
    tasks_.clear();
    for (const Sequence* sequence : active_) {
      Task task = TaskOf(*sequence);
      task.kind = TaskKind::kSampleDraft;
      task.draft.target_rows = &sequence->rows.back();
      task.first_position += i;
      task.first_node = i + 1;
      task.num_children = 1;
      task.target_scale = ScaleOf(kDraftTemperature);
      task.target_filters = models_.draft_filters;
      tasks_.push_back(task);
    }
    RoundBatch batch = Batch();
    batch.target = models_.draft.view();
    REQUIRE(backend_->Run(batch).ok());
    for (size_t n = 0; n < active_.size(); ++n) {
      if (outcomes_[n].num_tokens != 1) FAIL("no draft token was drawn");
      active_[n]->draft.push_back(samples_[n].id);
      active_[n]->weights.push_back(samples_[n].weight);
      active_[n]->masses.push_back(samples_[n].mass);
      active_[n]->rows.push_back(uint32_t(samples_[n].id));
    }
  }

  void Verify() {
    tasks_.clear();
    for (const Sequence* sequence : active_) {
      Task task = TaskOf(*sequence);
      task.method = method_;
      task.draft.num_nodes = kDrafts;
      task.draft.tokens = sequence->draft.data();
      task.draft.kinds = kinds_.data();
      if (side_channel_) {
        task.draft.draft_weights = sequence->weights.data();
        task.draft.draft_masses = sequence->masses.data();
      }
      task.target_scale = ScaleOf(kTemperature);
      task.draft_scale = ScaleOf(kDraftTemperature);
      task.target_filters = models_.filters;
      task.draft_filters = models_.draft_filters;
      tasks_.push_back(task);
    }
    RoundBatch batch = Batch();
    batch.target = models_.target.view();
    batch.draft = models_.draft.view();
    REQUIRE(backend_->Run(batch).ok());
    for (size_t n = 0; n < active_.size(); ++n) {
      if (outcomes_[n].status != OutcomeStatus::kOk) FAIL("a row is bad");
      const TokenId* tokens = tokens_.data() + n * (kDrafts + 1);
      active_[n]->text.insert(active_[n]->text.end(), tokens, tokens + outcomes_[n].num_tokens);
      accepted_ += outcomes_[n].num_accepted;
      ++rounds_;
    }
  }

  const Models& models_;
  const VerifyMethod method_;
  const bool side_channel_;
  const std::unique_ptr<Backend> backend_;
  std::vector<DraftKind> kinds_;
  std::vector<Sequence*> active_;
  std::vector<Task> tasks_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
  std::vector<DraftSample> samples_;
  int64_t accepted_ = 0;
  int64_t rounds_ = 0;
};

void Check(const std::string& what, const std::vector<int64_t>& counts,
           const std::vector<double>& law, double effect) {
  const ChiSquare test = TestCounts(counts, law);
  MESSAGE(what, ": chi-square ", test.statistic, " with ", test.degrees_of_freedom,
          " degrees of freedom (limit ", test.critical, "), visible effect: total variation ",
          test.visible_effect);
  CHECK(test.Fits());
  CHECK(test.visible_effect < effect);
}

// Three tokens in eight classes each, and the first two as they are.
void CheckJointLaw(const std::string& what, const Models& models, Generator& generator,
                   int num_batches) {
  constexpr int32_t kClasses = 8;
  std::vector<int64_t> classes(kClasses * kClasses * kClasses);
  std::vector<double> class_law(classes.size());
  std::vector<int64_t> pairs(kVocabSize * kVocabSize);
  std::vector<double> pair_law(pairs.size());
  const auto class_of = [](int32_t a, int32_t b, int32_t c) {
    return (a % kClasses * kClasses + b % kClasses) * kClasses + c % kClasses;
  };
  for (int32_t a = 0; a < kVocabSize; ++a) {
    for (int32_t b = 0; b < kVocabSize; ++b) {
      const double both = models.p[kVocabSize][a] * models.p[a][b];
      pair_law[a * kVocabSize + b] = both;
      for (int32_t c = 0; c < kVocabSize; ++c)
        class_law[class_of(a, b, c)] += both * models.p[b][c];
    }
  }
  for (int batch = 0; batch < num_batches; ++batch) {
    for (const Sequence& sequence : generator.Run(uint64_t(batch) * kBatch)) {
      const std::vector<TokenId>& text = sequence.text;
      ++classes[class_of(text[0], text[1], text[2])];
      ++pairs[text[0] * kVocabSize + text[1]];
    }
  }
  Check(what + ", three tokens in 8 classes", classes, class_law, 0.055);
  Check(what + ", two tokens", pairs, pair_law, 0.055);
  MESSAGE(what, ": ", double(generator.accepted()) / double(generator.rounds()),
          " of 3 drafts accepted");
}

struct Case {
  std::string name;
  VerifyMethod method;
  bool one_hot = false;
  bool side_channel = false;
};

TEST_SUITE("statistical") {
  TEST_CASE("SampleDraft and verify, real keys") {
    const Models models({}, {});
    for (const Case& c :
         {Case{"exact_match", VerifyMethod::kExactMatch}, Case{"token", VerifyMethod::kToken},
          Case{"token, one-hot", VerifyMethod::kToken, true}, Case{"block", VerifyMethod::kBlock},
          Case{"block, side channel", VerifyMethod::kBlock, false, true}}) {
      Generator generator(models, c.method, c.one_hot, c.side_channel);
      CheckJointLaw(c.name, models, generator, 400);
    }
  }

  TEST_CASE("with filters on the target and others on the drafter") {
    const Models models({.min_p = 0.02, .top_k = 30, .top_p = 0.9}, {.top_k = 20, .joint = true});
    for (const Case& c : {Case{"token, side channel", VerifyMethod::kToken, false, true},
                          Case{"block", VerifyMethod::kBlock}}) {
      Generator generator(models, c.method, c.one_hot, c.side_channel);
      CheckJointLaw(c.name, models, generator, 240);
    }
  }

  TEST_CASE(
      "the same counts do not fit the drafter's law, nor the target's at another temperature") {
    const Models models({}, {});
    Generator generator(models, VerifyMethod::kBlock, false, false);
    std::vector<int64_t> counts(kVocabSize);
    for (int batch = 0; batch < 40; ++batch) {
      for (const Sequence& sequence : generator.Run(uint64_t(batch) * kBatch)) {
        ++counts[sequence.text[0]];
      }
    }
    CHECK(TestCounts(counts, models.p[kVocabSize]).Fits());
    const std::vector<double> other = *oracle::Softmax(oracle::LogOf(models.p[kVocabSize]), 1.1);
    CHECK_FALSE(TestCounts(counts, other).Fits());
  }
}

}  // namespace
}  // namespace specd
