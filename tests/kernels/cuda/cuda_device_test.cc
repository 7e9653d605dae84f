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
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/cuda/device_or_reason.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

std::string NameOf(const RoundCase::Options& options) {
  return fmt::format("dtype {} vocab {} batch {} drafts {} rows {}/{} scaled {} plain {} seed {}",
                     static_cast<int>(options.dtype), options.vocab_size, options.batch,
                     options.max_draft, static_cast<int>(options.target_kind),
                     static_cast<int>(options.draft_kind), options.scaled, options.plain,
                     options.seed);
}

// Two backends side by side, and their differences.
class Comparison {
 public:
  Comparison(std::unique_ptr<Backend> device, std::unique_ptr<Backend> cpu)
      : device_(std::move(device)), cpu_(std::move(cpu)) {}

  int64_t num_compared() const { return num_compared_; }

  // Prepares both backends for rounds up to these sizes.
  void Prepare(BackendLimits limits) {
    limits.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
    for (Backend* backend : {cpu_.get(), device_.get()}) {
      const absl::Status status = backend->Prepare(limits);
      REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    }
  }

  // The whole round on the CPU, then its parts on the device, in the order of `places`. Empty where
  // every answer is the same; otherwise how many differ and the first that does.
  std::string RoundDifference(RoundCase& round, const std::vector<std::vector<int32_t>>& parts) {
    const std::vector<std::string> expected = Answers(*cpu_, round, round.All());
    std::string first;
    int num_different = 0;
    for (const std::vector<int32_t>& places : parts) {
      const std::vector<std::string> answers = Answers(*device_, round, round.Some(places));
      for (size_t i = 0; i < places.size(); ++i, ++num_compared_) {
        const std::string& wanted = expected[static_cast<size_t>(places[i])];
        if (answers[i] == wanted || num_different++ > 0) continue;
        first = fmt::format("sequence {} at {} of {}\n  device: {}\n  CPU:    {}", places[i], i,
                            places.size(), answers[i], wanted);
      }
    }
    return num_different == 0 ? "" : fmt::format("{} differ, first {}", num_different, first);
  }

  // The same for transforms: every element of every output, also of bad rows.
  std::string TransformDifference(const TensorView& rows,
                                  const std::vector<RowTransform>& transforms) {
    const std::vector<std::vector<float>> expected = Outputs(*cpu_, rows, transforms);
    const std::vector<std::vector<float>> outputs = Outputs(*device_, rows, transforms);
    for (size_t i = 0; i < outputs.size(); ++i, ++num_compared_) {
      for (size_t id = 0; id < outputs[i].size(); ++id) {
        if (BitsOf(outputs[i][id]) == BitsOf(expected[i][id])) continue;
        return fmt::format("transform {}, element {}: device {:a}, CPU {:a}", i, id, outputs[i][id],
                           expected[i][id]);
      }
    }
    return "";
  }

 private:
  static std::vector<std::string> Answers(Backend& backend, RoundCase& round,
                                          const RoundBatch& batch) {
    const absl::Status status = backend.Run(batch);
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    std::vector<std::string> answers;
    for (int32_t i = 0; i < batch.num_tasks; ++i) answers.push_back(round.answer(i));
    return answers;
  }

  // Returns the output of each transform, with its status as the last element.
  static std::vector<std::vector<float>> Outputs(Backend& backend, const TensorView& rows,
                                                 std::vector<RowTransform> transforms) {
    std::vector<std::vector<float>> outputs(
        transforms.size(), std::vector<float>(static_cast<size_t>(rows.vocab_size), -5));
    std::vector<OutcomeStatus> statuses(transforms.size(), OutcomeStatus::kBadToken);
    for (size_t i = 0; i < transforms.size(); ++i) transforms[i].out = outputs[i].data();
    const absl::Status status = backend.Transform(
        {rows, transforms.data(), static_cast<int32_t>(transforms.size()), statuses.data()});
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    for (size_t i = 0; i < transforms.size(); ++i) {
      outputs[i].push_back(static_cast<float>(statuses[i]));
    }
    return outputs;
  }

  const std::unique_ptr<Backend> device_;
  const std::unique_ptr<Backend> cpu_;
  int64_t num_compared_ = 0;
};

// Runs `compare` with the device, if there is one.
void OnDevice(const std::function<void(Comparison&)>& compare) {
  std::unique_ptr<Backend> device = DeviceOrReason();
  if (device == nullptr) return;
  auto cpu = MakeBackend("cpu");
  REQUIRE(cpu.ok());
  Comparison comparison(std::move(device), std::move(*cpu));
  compare(comparison);
  CHECK(comparison.num_compared() > 0);
  MESSAGE("compared ", comparison.num_compared(), " answers");
}

// A round of random sequences, after `change`.
void CheckRound(
    Comparison& comparison, const RoundCase::Options& options,
    const std::function<void(RoundCase&)>& change = [](RoundCase&) {}) {
  comparison.Prepare({options.vocab_size, options.batch, options.max_draft});
  RoundCase round(options);
  change(round);
  const std::string difference = comparison.RoundDifference(round, {InOrder(options.batch)});
  CHECK_MESSAGE(difference.empty(), NameOf(options), ": ", difference);
}

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

std::vector<RowTransform> MixedTransforms(size_t count, uint32_t num_rows) {
  std::vector<RowTransform> transforms(count);
  for (size_t i = 0; i < count; ++i) {
    transforms[i].row = static_cast<uint32_t>(i * 3) % num_rows;
    transforms[i].scale = 1.0f + static_cast<float>(i % 3);
    if (i % 2 == 1) transforms[i].filters.top_k = 50;
    if (i % 3 == 1) transforms[i].filters.top_p = kTopPOff / 8 * 7;
    if (i % 5 == 1) transforms[i].filters.min_p = -6;
    transforms[i].as_logits = i % 4 == 3;
  }
  return transforms;
}

// Four rows; the third holds a NaN. If V is odd, no row after the first is aligned.
RowMatrix TransformRows(DType dtype, int32_t vocab_size) {
  std::mt19937_64 random(static_cast<uint64_t>(vocab_size));
  RowMatrix rows(
      {.dtype = dtype, .vocab_size = vocab_size, .num_rows = 4, .padding = 3, .offset = 1});
  for (int64_t row = 0; row < 4; ++row) {
    std::vector<double> values = RandomLogits(random, vocab_size);
    if (row == 2) values[random() % values.size()] = NAN;
    rows.Set(row, values);
  }
  return rows;
}

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
      CHECK(comparison->TransformDifference(rows.view(), MixedTransforms(2, 4)).empty() ==
            is_equal);
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
              comparison.TransformDifference(rows.view(), MixedTransforms(Quick() ? 6 : 30, 4));
          CHECK_MESSAGE(difference.empty(), "dtype ", static_cast<int>(dtype), " vocab ",
                        vocab_size, ": ", difference);
        }
      }
    });
  }
}

}  // namespace
}  // namespace specd
