// The joint law of the first tokens of a text whose drafts are trees: SampleDraft draws the
// siblings in each of its ways with the keys of the contract, and the tree methods verify them. The
// counts are compared with the target's law (CONTRACT §10, "Statistical").
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

constexpr int32_t kVocabSize = 5;
constexpr int32_t kBatch = 256;
constexpr int32_t kWidth = 3;                         // children of a place
constexpr int32_t kNodes = kWidth + kWidth * kWidth;  // two levels
constexpr size_t kLength = 2;

// First-order models: the row of a place depends on the token before it; row V is the beginning.
struct Models {
  explicit Models(bool with_filters)
      : target({.vocab_size = kVocabSize, .num_rows = kVocabSize + 1}), draft(target) {
    const oracle::Truncation truncation{.top_k = with_filters ? 3 : 0};
    std::mt19937_64 random(81);
    std::normal_distribution<double> normal(0, 0.7);
    const auto logits = [&] {
      std::vector<double> row(kVocabSize);
      for (double& x : row) x = normal(random);
      return row;
    };
    for (int32_t row = 0; row <= kVocabSize; ++row) {
      p.push_back(*oracle::Distribution(target.Set(row, logits()), {}, 1, {}));
      draft.Set(row, logits());
    }
    draft_filters = FiltersOf(truncation);
  }
  RowMatrix target;
  RowMatrix draft;
  Filters draft_filters;
  std::vector<oracle::Probabilities> p;
};

uint32_t RowAfter(TokenId token) {
  return token == kNoToken ? uint32_t{kVocabSize} : uint32_t(token);
}

// A sequence and the draft of its round.
struct Sequence {
  uint64_t seed = 0;
  std::vector<TokenId> text;
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
  std::vector<DraftKind> kinds;
  std::vector<uint32_t> target_rows;
  std::vector<uint32_t> draft_rows;
  std::vector<float> weights;  // the side channel
  std::vector<double> masses;
  int32_t level_end = 0;  // the nodes of the first level
};

class Generator {
 public:
  // sorts: siblings that were drawn with replacement stand in the order of their first draws, with
  // equal ids together. That is a mistake.
  Generator(const Models& models, VerifyMethod method, DraftSampling sampling, bool sorts = false,
            bool side_channel = false)
      : models_(models),
        method_(method),
        sampling_(sampling),
        sorts_(sorts),
        side_channel_(side_channel),
        backend_(*MakeBackend("cpu")) {
    REQUIRE(backend_->Prepare({kVocabSize, kBatch * kWidth * kWidth, kNodes}).ok());
  }

  // How often each pair of first tokens came.
  std::vector<int64_t> Count(int num_batches) {
    std::vector<int64_t> counts(kVocabSize * kVocabSize);
    for (int batch = 0; batch < num_batches; ++batch) {
      std::vector<Sequence> sequences(kBatch);
      for (Sequence& sequence : sequences) sequence.seed = next_seed_++;
      while (Round(&sequences)) {
      }
      for (const Sequence& sequence : sequences) {
        ++counts[size_t(sequence.text[0] * kVocabSize + sequence.text[1])];
      }
    }
    return counts;
  }
  double accepted_per_round() const { return double(accepted_) / double(rounds_); }

 private:
  bool Round(std::vector<Sequence>* sequences) {
    active_.clear();
    for (Sequence& sequence : *sequences) {
      if (sequence.text.size() < kLength) active_.push_back(&sequence);
    }
    if (active_.empty()) return false;
    for (Sequence* sequence : active_) {
      sequence->tokens.clear();
      sequence->parents.clear();
      sequence->kinds.clear();
      sequence->draft_rows.clear();
      sequence->weights.clear();
      sequence->masses.clear();
      sequence->target_rows = {RowAfter(sequence->text.empty() ? kNoToken : sequence->text.back())};
    }
    DrawLevel(0);
    for (Sequence* sequence : active_) sequence->level_end = int32_t(sequence->tokens.size());
    DrawLevel(1);
    Verify();
    return true;
  }

  Task TaskOf(const Sequence& sequence) const {
    Task task;
    task.seed = sequence.seed;
    task.first_position = task.round_base = static_cast<uint32_t>(sequence.text.size());
    task.target_scale = task.draft_scale = ScaleOf(1);
    return task;
  }

  // Children for the root, or for each node of the first level. With replacement each child has a
  // request of its own, because an answer counts equal ids and does not tell their order.
  void DrawLevel(uint32_t depth) {
    const bool one_by_one = sampling_ == DraftSampling::kWithReplacement && !sorts_;
    std::vector<std::pair<Sequence*, int32_t>> asked;
    tasks_.clear();
    for (Sequence* sequence : active_) {
      const int32_t end = depth == 0 ? 0 : sequence->level_end - 1;
      for (int32_t parent = depth == 0 ? kRoot : 0; parent <= (depth == 0 ? kRoot : end);
           ++parent) {
        for (int32_t child = 0; child < (one_by_one ? kWidth : 1); ++child) {
          Task task = TaskOf(*sequence);
          task.kind = TaskKind::kSampleDraft;
          task.draft.target_rows = &sequence->target_rows[size_t(PlaceAfter(parent))];
          task.first_position += depth;
          task.first_node = uint32_t(1 + (parent + 1) * kWidth + child);
          task.num_children = one_by_one ? 1 : kWidth;
          task.sampling = sampling_;
          task.target_filters = models_.draft_filters;
          tasks_.push_back(task);
          asked.emplace_back(sequence, parent);
        }
      }
    }
    RoundBatch batch = Batch();
    batch.target = models_.draft.view();
    REQUIRE(backend_->Run(batch).ok());
    for (size_t n = 0; n < asked.size(); ++n) {
      for (int32_t i = 0; i < outcomes_[n].num_tokens; ++i) {
        const DraftSample& sample = samples_[n * kWidth + size_t(i)];
        for (uint32_t copy = 0; copy < sample.count; ++copy) {
          AddNode(asked[n].first, asked[n].second, sample);
        }
      }
    }
  }

  static void AddNode(Sequence* sequence, int32_t parent, const DraftSample& sample) {
    sequence->tokens.push_back(sample.id);
    sequence->parents.push_back(parent);
    sequence->kinds.push_back(sample.kind);
    sequence->weights.push_back(sample.weight);
    sequence->masses.push_back(sample.mass);
    sequence->draft_rows.push_back(sequence->target_rows[size_t(PlaceAfter(parent))]);
    sequence->target_rows.reserve(kNodes + 1);  // tasks point into it
    sequence->target_rows.push_back(RowAfter(sample.id));
  }

  RoundBatch Batch() {
    RoundBatch batch;
    batch.tasks = tasks_.data();
    batch.num_tasks = static_cast<int32_t>(tasks_.size());
    outcomes_.assign(tasks_.size(), {});
    tokens_.resize(tasks_.size() * (kNodes + 1));
    samples_.resize(tasks_.size() * kWidth);
    batch.outcomes = outcomes_.data();
    batch.tokens = tokens_.data();
    batch.tokens_stride = kNodes + 1;
    batch.samples = samples_.data();
    batch.samples_stride = kWidth;
    return batch;
  }

  void Verify() {
    tasks_.clear();
    for (const Sequence* sequence : active_) {
      Task task = TaskOf(*sequence);
      task.method = method_;
      task.draft = {.num_nodes = static_cast<int32_t>(sequence->tokens.size()),
                    .tokens = sequence->tokens.data(),
                    .parents = sequence->parents.data(),
                    .kinds = sequence->kinds.data(),
                    .target_rows = sequence->target_rows.data(),
                    .draft_rows = sequence->draft_rows.data()};
      task.draft_filters = models_.draft_filters;
      if (side_channel_) {
        task.draft.draft_weights = sequence->weights.data();
        task.draft.draft_masses = sequence->masses.data();
      }
      tasks_.push_back(task);
    }
    RoundBatch batch = Batch();
    batch.target = models_.target.view();
    batch.draft = models_.draft.view();
    REQUIRE(backend_->Run(batch).ok());
    for (size_t n = 0; n < active_.size(); ++n) {
      if (outcomes_[n].status != OutcomeStatus::kOk) FAIL("a row is bad");
      const TokenId* tokens = tokens_.data() + n * (kNodes + 1);
      active_[n]->text.insert(active_[n]->text.end(), tokens, tokens + outcomes_[n].num_tokens);
      accepted_ += outcomes_[n].num_accepted;
      ++rounds_;
    }
  }

  const Models& models_;
  const VerifyMethod method_;
  const DraftSampling sampling_;
  const bool sorts_;
  const bool side_channel_;
  const std::unique_ptr<Backend> backend_;
  std::vector<Sequence*> active_;
  std::vector<Task> tasks_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
  std::vector<DraftSample> samples_;
  uint64_t next_seed_ = 1;
  int64_t accepted_ = 0;
  int64_t rounds_ = 0;
};

ChiSquare Compare(const Models& models, Generator& generator, int num_batches) {
  std::vector<double> law;
  for (int32_t first = 0; first < kVocabSize; ++first) {
    for (int32_t second = 0; second < kVocabSize; ++second) {
      law.push_back(models.p[kVocabSize][size_t(first)] * models.p[size_t(first)][size_t(second)]);
    }
  }
  return TestCounts(generator.Count(num_batches), law);
}

TEST_SUITE("statistical") {
  TEST_CASE("siblings that SampleDraft drew in any way: the joint law is the target's") {
    const std::string names[] = {"with", "without", "top", "mixed"};
    double accepted[4] = {};
    for (const bool with_filters : {false, true}) {
      const Models models(with_filters);
      for (int32_t way = 0; way < 4; ++way) {
        for (const VerifyMethod method : {VerifyMethod::kTree, VerifyMethod::kTraversal}) {
          Generator generator(models, method, static_cast<DraftSampling>(way));
          const ChiSquare test = Compare(models, generator, 100);
          accepted[way] = generator.accepted_per_round();
          MESSAGE(names[way], ", method ", static_cast<int>(method), ": chi-square ",
                  test.statistic, " with ", test.degrees_of_freedom, " degrees of freedom (limit ",
                  test.critical, "), visible effect ", test.visible_effect, ", accepted ",
                  accepted[way]);
          CHECK(test.Fits());
          CHECK(test.visible_effect < 0.04);
        }
      }
    }
    CHECK(accepted[3] > accepted[0]);  // mixed siblings keep more than independent ones
  }

  TEST_CASE("the side channel of SampleDraft's siblings: the texts are those of the rows") {
    for (const bool with_filters : {false, true}) {
      const Models models(with_filters);
      for (int32_t way = 0; way < 4; ++way) {
        for (const VerifyMethod method : {VerifyMethod::kTree, VerifyMethod::kTraversal}) {
          CAPTURE(way);
          const auto sampling = static_cast<DraftSampling>(way);
          Generator by_rows(models, method, sampling);
          Generator by_numbers(models, method, sampling, false, true);
          CHECK(by_numbers.Count(20) == by_rows.Count(20));
          CHECK(by_numbers.accepted_per_round() == by_rows.accepted_per_round());
        }
      }
    }
  }

  TEST_CASE("equal siblings that are moved together make the law wrong") {
    const Models models(false);
    Generator generator(models, VerifyMethod::kTree, DraftSampling::kWithReplacement, true);
    CHECK_FALSE(Compare(models, generator, 400).Fits());
  }
}

}  // namespace
}  // namespace specd
