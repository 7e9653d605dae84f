// A real device against the CPU, bit for bit: suite "gpu". tools/gpu_check carries it to machines
// that have a device and runs each case as one check.
//
// Without a device a case passes and says that nothing was compared, unless SPECD_REQUIRE_GPU is
// set. SPECD_GPU_QUICK makes the rounds small enough for compute-sanitizer. A case says how much it
// compared, and of every round that differs its options and the first sequence that does.
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/cuda/device_comparison.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

// A backend that is wrong in the last bit of one number.
class WrongBackend final : public Backend {
 public:
  WrongBackend() : cpu_(std::move(*MakeBackend("cpu"))) {}
  std::string_view name() const override { return "wrong"; }
  absl::Status Prepare(const BackendLimits& limits) override { return cpu_->Prepare(limits); }
  absl::Status Run(const RoundBatch& batch) override {
    absl::Status status = cpu_->Run(batch);
    for (int32_t i = 0; i < batch.num_tasks; ++i) {
      if (batch.outcomes[i].num_tokens == 0 || !batch.tasks[i].scores.enabled) continue;
      float& value = batch.scores[i * batch.tokens_stride * batch.scores_stride].value;
      if (!std::isfinite(value)) continue;
      value = std::nextafter(value, 1e30f);
      break;
    }
    return status;
  }
  absl::Status WriteSlotOutputs(const RoundBatch& batch) override {
    return cpu_->WriteSlotOutputs(batch);
  }
  absl::Status Transform(const TransformBatch& batch) override {
    absl::Status status = cpu_->Transform(batch);
    float& last = batch.rows[batch.num_rows - 1].out[batch.source.vocab_size - 1];
    last = std::nextafter(last, 2.0f);
    return status;
  }

 private:
  const std::unique_ptr<Backend> cpu_;
};

TEST_SUITE("unit") {
  TEST_CASE("what compares a device with the CPU sees a single bit") {
    Comparison equal(std::move(*MakeBackend("cpu")), std::move(*MakeBackend("cpu")));
    Comparison wrong(std::make_unique<WrongBackend>(), std::move(*MakeBackend("cpu")));
    const RoundCase::Options options{.vocab_size = 300, .batch = 60, .max_draft = 2, .seed = 5};
    RoundCase round(options);
    const RowMatrix rows = TransformRows(DType::kFloat32, 300);
    for (Comparison* comparison : {&equal, &wrong}) {
      const bool is_equal = comparison == &equal;
      comparison->Prepare({300, 60, 2});
      const std::string difference = comparison->RoundDifference(round, {InOrder(60)});
      CHECK(difference.empty() == is_equal);
      CHECK((difference.find("1 differ") == 0) == !is_equal);
      CHECK(comparison->num_compared() == 60);
      CHECK(comparison->TransformDifference(rows.view(), MixedTransforms(2)).empty() == is_equal);
    }
  }
}

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds: every vocabulary and element type") {
    OnDevice([](Comparison& comparison) {
      const std::vector<int32_t> sizes =
          Quick() ? std::vector<int32_t>{1, 7, 255, 2049, 6000}
                  : std::vector<int32_t>{1,     2,     3,     7,      31,     255,   256,
                                         257,   2047,  2048,  2049,   4097,   20000, 32000,
                                         50257, 65537, 99991, 128256, 151936, 262144};
      uint64_t seed = 100;
      for (const DType dtype : kDTypes) {
        for (const int32_t vocab_size : sizes) {
          const int num_rounds = Quick() ? 1 : vocab_size > 5000 ? 2 : 10;
          for (int i = 0; i < num_rounds; ++i, ++seed) {
            CheckRound(comparison, {.vocab_size = vocab_size,
                                    .batch = Quick()             ? 12
                                             : vocab_size > 5000 ? 24
                                                                 : 100,
                                    .max_draft = static_cast<int32_t>(seed % 9),
                                    .dtype = dtype,
                                    .seed = seed});
          }
        }
      }
    });
  }

  TEST_CASE("CUDA rounds: batches of 1 to 256 and drafts of 0 to 8") {
    OnDevice([](Comparison& comparison) {
      const std::vector<int32_t> batches =
          Quick() ? std::vector<int32_t>{1, 9} : std::vector<int32_t>{1, 2, 5, 16, 63, 132, 256};
      const std::vector<int32_t> drafts =
          Quick() ? std::vector<int32_t>{0, 3} : std::vector<int32_t>{0, 1, 2, 3, 5, 8};
      uint64_t seed = 200;
      for (const int32_t batch : batches) {
        for (const int32_t max_draft : drafts) {
          for (const int32_t vocab_size : {100, 5001}) {
            CheckRound(comparison, {.vocab_size = vocab_size,
                                    .batch = batch,
                                    .max_draft = max_draft,
                                    .dtype = DType::kBFloat16,
                                    .seed = ++seed});
          }
        }
      }
    });
  }

  // More rows than the upload memory holds: the round is cut into pieces.
  TEST_CASE("CUDA rounds: 256 sequences with 8 drafts over a vocabulary of 128256") {
    OnDevice([](Comparison& comparison) {
      CheckRound(comparison, {.vocab_size = Quick() ? 3001 : 128256,
                              .batch = Quick() ? 8 : 256,
                              .max_draft = 8,
                              .dtype = DType::kBFloat16,
                              .seed = 301});
    });
  }

  TEST_CASE("CUDA rounds: plain verification of rows without edits") {
    OnDevice([](Comparison& comparison) {
      const std::vector<int32_t> sizes =
          Quick() ? std::vector<int32_t>{4097}
                  : std::vector<int32_t>{2049, 32000, 128256, 151936, 262144};
      uint64_t seed = 400;
      for (const DType dtype : kDTypes) {
        for (const int32_t vocab_size : sizes) {
          CheckRound(comparison, {.vocab_size = vocab_size,
                                  .batch = Quick() ? 8 : 32,
                                  .max_draft = 5,
                                  .dtype = dtype,
                                  .seed = ++seed,
                                  .plain = true});
        }
      }
    });
  }

  TEST_CASE("CUDA rounds: rows of probabilities and scaled logits") {
    OnDevice([](Comparison& comparison) {
      const std::vector<int32_t> sizes =
          Quick() ? std::vector<int32_t>{7, 2049} : std::vector<int32_t>{1, 7, 255, 2049, 32000};
      uint64_t seed = 500;
      for (const int32_t vocab_size : sizes) {
        RoundCase::Options options{
            .vocab_size = vocab_size, .batch = Quick() ? 12 : 64, .max_draft = 4};
        options.grammar_masks = true;
        for (const RowKind kind : {RowKind::kProbabilities, RowKind::kFinalProbabilities}) {
          options.target_kind = options.draft_kind = kind;
          options.seed = ++seed;
          CheckRound(comparison, options);
          options.target_kind = RowKind::kLogits;
          options.seed = ++seed;
          CheckRound(comparison, options);
        }
        options.draft_kind = RowKind::kLogits;
        options.scaled = true;
        for (const DType dtype : kDTypes) {
          options.dtype = dtype;
          options.seed = ++seed;
          CheckRound(comparison, options);
        }
      }
    });
  }

  TEST_CASE("CUDA rounds: lists of edits as long as a prompt") {
    OnDevice([](Comparison& comparison) {
      const int32_t vocab_size = Quick() ? 5000 : 151936;
      const RoundCase::Options options{
          .vocab_size = vocab_size, .batch = Quick() ? 6 : 24, .max_draft = 3, .seed = 601};
      std::vector<TokenEdit> edits;
      for (int32_t id = 3; id < vocab_size; id += 1 + id % 40) {
        edits.push_back({id, kEditSeen, static_cast<float>(id % 9) / 4 - 1, uint32_t(id) % 5});
      }
      CheckRound(comparison, options, [&](RoundCase& round) {
        for (int32_t i = 0; i < options.batch; ++i) {
          Task& task = round.task(i);
          if (task.kind == TaskKind::kScore || task.draft.target_argmax != nullptr) continue;
          task.edits.edits = edits.data();
          task.edits.num_edits = static_cast<int32_t>(edits.size());
          task.edits.penalties = {.repetition = 1.2f, .frequency = 0.3f, .presence = 0.1f};
        }
      });
    });
  }

  // Two things must not show in the answers: the state that blocks leave for the next launch, and
  // the warp that arrives last.
  TEST_CASE("CUDA rounds: again and again in any order and in parts") {
    OnDevice([](Comparison& comparison) {
      std::mt19937_64 random(701);
      for (const int32_t vocab_size : {3000, Quick() ? 700 : 40000, 50}) {
        // One Prepare for all: rounds may be narrower than the limits.
        const RoundCase::Options options{.vocab_size = vocab_size,
                                         .batch = Quick() ? 10 : 64,
                                         .max_draft = 4,
                                         .dtype = DType::kBFloat16,
                                         .seed = 700 + static_cast<uint64_t>(vocab_size)};
        if (vocab_size == 3000) comparison.Prepare({40000, options.batch, options.max_draft});
        RoundCase round(options);
        std::vector<std::vector<int32_t>> parts;
        for (int repeat = 0; repeat < (Quick() ? 2 : 60); ++repeat) {
          std::vector<int32_t> places = InOrder(options.batch);
          std::shuffle(places.begin(), places.end(), random);
          if (repeat % 3 == 2) places.resize(1 + random() % places.size());
          parts.push_back(std::move(places));
        }
        const std::string difference = comparison.RoundDifference(round, parts);
        CHECK_MESSAGE(difference.empty(), NameOf(options), ": ", difference);
      }
    });
  }

  TEST_CASE("CUDA transforms: every vocabulary and element type") {
    OnDevice([](Comparison& comparison) {
      const std::vector<int32_t> sizes =
          Quick() ? std::vector<int32_t>{1, 255, 2949}
                  : std::vector<int32_t>{1, 7, 255, 2049, 2948, 32000, 128256, 151936, 262144};
      for (const int32_t vocab_size : sizes) {
        comparison.Prepare({vocab_size, 8, 0});
        for (const DType dtype : kDTypes) {
          const RowMatrix rows = TransformRows(dtype, vocab_size);
          const std::string difference =
              comparison.TransformDifference(rows.view(), MixedTransforms(Quick() ? 6 : 30));
          CHECK_MESSAGE(difference.empty(), "dtype ", static_cast<int>(dtype), " vocab ",
                        vocab_size, ": ", difference);
        }
      }
    });
  }
}

}  // namespace
}  // namespace specd
