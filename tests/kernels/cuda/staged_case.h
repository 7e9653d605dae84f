// StagingRig and StagedCase stage rounds on a fake device for tests; the rows of the rounds lie on
// that device.
//
//   StagingRig rig(options);
//   const auto graph = rig.Enqueue(8);
//   StagedCase round(options, &rig.imported);
//   REQUIRE_OK(rig.backend.Stage(round.batch()));
//   rig.gpu.Replay(graph);
//   REQUIRE(rig.Collect());
//   round.CheckAnswers();
//
// Not thread-safe.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/cuda/run_round.h"
#include "tests/support/decision_text.h"
#include "tests/support/imported_memory.h"
#include "tests/support/round_case.h"

namespace specd {

#define REQUIRE_OK(expression)                                       \
  do {                                                               \
    const absl::Status required = (expression);                      \
    REQUIRE_MESSAGE(required.ok(), std::string(required.message())); \
  } while (false)

// The CPU's answers for a part of such a round.
inline std::vector<std::string> CpuAnswers(RoundCase* round, const RoundCase::Options& options,
                                           const std::vector<int32_t>& places,
                                           std::vector<PlaceDecision>* decisions = nullptr) {
  CpuBackend cpu(CpuTarget::kBaseline);
  REQUIRE_OK(cpu.Prepare({options.vocab_size, options.batch, options.max_draft}));
  const auto recorded = DecisionsOf(cpu, round->Some(places), options.max_draft + 1);
  if (decisions != nullptr) *decisions = recorded;
  return AnswersOf(*round, static_cast<int32_t>(places.size()));
}
inline std::vector<std::string> CpuAnswers(const RoundCase::Options& options,
                                           const std::vector<int32_t>& places) {
  RoundCase round(options);
  return CpuAnswers(&round, options, places);
}

// Moves all memory that Stage does not copy to the device. Returns the slot outputs, which the
// batch points to.
inline std::vector<SlotOutput> MoveToDevice(const RoundCase& round, MovedMemory* memory,
                                            RoundBatch* batch) {
  batch->target = memory->Tensor(batch->target, 3);
  batch->draft = memory->Tensor(batch->draft, 5);
  batch->mask = memory->Mask(batch->mask, batch->target.vocab_size);
  std::vector<SlotOutput> arrays;
  for (int32_t i = 0; i < batch->num_slot_outputs; ++i) {
    arrays.push_back(batch->slot_outputs[i]);
    auto* const host = static_cast<TokenId*>(arrays.back().data);
    arrays.back().data = memory->Ids(host, round.slot_memory(i).size());
    arrays.back().space = MemorySpace::kDevice;
  }
  batch->slot_outputs = arrays.data();
  return arrays;
}

// The verifying sequences of a round; all memory that Stage does not copy lies on the device.
class StagedCase {
 public:
  StagedCase(const RoundCase::Options& options, MovedMemory* memory)
      : num_places_(options.max_draft + 1), round_(options) {
    for (int32_t i = 0; i < options.batch; ++i) {
      if (round_.task(i).kind == TaskKind::kVerify) places_.push_back(i);
    }
    if (places_.empty()) round_.MakeVerify(0);
    if (places_.empty()) places_.push_back(0);
    expected_ = CpuAnswers(&round_, options, places_, &expected_decisions_);
    batch_ = round_.Some(places_);
    arrays_ = MoveToDevice(round_, memory, &batch_);
  }
  StagedCase(const StagedCase&) = delete;
  StagedCase& operator=(const StagedCase&) = delete;

  RoundBatch& batch() { return batch_; }

  // Returns the number of answers.
  int CheckAnswers() const {
    const std::vector<std::string> answers = AnswersOf(round_, batch_.num_tasks);
    for (size_t i = 0; i < answers.size(); ++i) {
      CAPTURE(i);
      REQUIRE(answers[i] == expected_[i]);
    }
    return static_cast<int>(answers.size());
  }

  // Call before Stage: the round asks for decisions.
  void Record() { decisions_.emplace(&batch_, num_places_); }
  // Without records, everything is as the round began.
  void CheckDecisions(bool are_recorded, DecisionCounts* counts) const {
    for (size_t i = 0; i < expected_decisions_.size(); ++i) {
      CAPTURE(i);
      const PlaceDecision wanted = are_recorded ? expected_decisions_[i] : PlaceDecision{};
      REQUIRE(DecisionText(decisions_->all[i]) == DecisionText(wanted));
    }
    for (int32_t i = 0; i < batch_.num_tasks; ++i) {
      counts->Add(batch_.tasks[i], batch_.outcomes[i],
                  std::span(decisions_->all).subspan(size_t(i * num_places_), size_t(num_places_)));
    }
  }

  // The device writes these while it runs the round; the host never does.
  void SpoilSlotOutputs() const {
    for (int32_t i = 0; i < RoundCase::kNumSlotOutputs; ++i) {
      std::fill_n(static_cast<TokenId*>(arrays_[static_cast<size_t>(i)].data),
                  round_.slot_memory(i).size(), kSpoiled);
    }
  }
  bool AreSlotOutputsSpoiled() const {
    for (int32_t i = 0; i < RoundCase::kNumSlotOutputs; ++i) {
      const std::vector<TokenId>& memory = round_.slot_memory(i);
      if (std::count(memory.begin(), memory.end(), kSpoiled) !=
          static_cast<int64_t>(memory.size())) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr TokenId kSpoiled = -77;

  const int32_t num_places_;  // of each task's decisions
  RoundCase round_;
  std::vector<int32_t> places_;
  std::vector<std::string> expected_;
  std::vector<PlaceDecision> expected_decisions_;
  std::optional<RecordedDecisions> decisions_;
  std::vector<SlotOutput> arrays_;
  RoundBatch batch_;
};

// A backend on a fake device, with the memory of an engine.
struct StagingRig {
  explicit StagingRig(const RoundCase::Options& options, uint32_t num_slots = 0,
                      bool records = false)
      : limits{.vocab_size = options.vocab_size,
               .max_batch = options.batch,
               .max_draft = options.max_draft,
               .num_slots = num_slots,
               .records_staged = records} {
    REQUIRE_OK(backend.Prepare(limits));
  }

  // The work of EnqueueStaged, as a captured graph.
  std::vector<FakeGpu::Work> Enqueue(int32_t num_tasks) {
    int stream = 0;
    REQUIRE_OK(backend.EnqueueStaged(&stream, num_tasks));
    std::vector<FakeGpu::Work> work = std::move(gpu.others_work[&stream]);
    gpu.others_work.clear();
    return work;
  }

  bool Collect() {
    const absl::StatusOr<bool> collected = backend.Collect();
    REQUIRE_OK(collected.status());
    return *collected;
  }

  FakeGpu gpu;
  ImportedMemory imported{&gpu};
  BackendLimits limits;
  CudaBackend backend{std::make_unique<FakeGpuDriver>(&gpu), kPlenty};
};

}  // namespace specd
