// Slot outputs of random rounds: the rows that the confirmed tokens make, in every array that is
// bound, wherever it lies, and nothing beside them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

using Memory = std::vector<TokenId>;

// The row that an answer makes, computed from its tokens alone: drafts are chains.
std::vector<int64_t> ExpectedRow(const SlotOutput& output, const RoundCase& round, int32_t i,
                                 const Task& task) {
  const std::vector<TokenId> tokens = round.tokens(i);
  const auto num_accepted = static_cast<size_t>(round.outcome(i).num_accepted);
  std::vector<int64_t> row;
  switch (output.field) {
    case SlotField::kNextToken:
      row = {tokens.back()};
      break;
    case SlotField::kKeptTokens:
    case SlotField::kPredicts:
      row.assign(tokens.begin(), tokens.end());
      break;
    case SlotField::kNumKept:
      row = {static_cast<int64_t>(tokens.size())};
      break;
    case SlotField::kNumAccepted:
      row = {static_cast<int64_t>(num_accepted)};
      break;
    case SlotField::kTotalKept:
      row = {task.first_position + static_cast<int64_t>(tokens.size())};
      break;
    case SlotField::kAcceptedPath:
      for (size_t node = 0; node < num_accepted; ++node) row.push_back(static_cast<int64_t>(node));
      break;
    case SlotField::kAcceptIndex:
      for (size_t node = 0; node <= num_accepted; ++node) {
        row.push_back(task.slot * int64_t{output.num_nodes} + static_cast<int64_t>(node));
      }
      break;
  }
  row.resize(static_cast<size_t>(output.row_length), -1);
  return row;
}

void Put(const std::vector<int64_t>& row, const SlotOutput& output, uint32_t slot, Memory* memory) {
  size_t word = slot * static_cast<size_t>(output.row_stride) * (output.is_wide ? 2 : 1);
  for (const int64_t element : row) {
    if (output.is_wide) {
      std::memcpy(&memory->at(word), &element, sizeof(element));
      word += 2;
    } else {
      memory->at(word++) = static_cast<TokenId>(element);
    }
  }
}

// Compares every word of every slot output with what the answers make.
void CheckAll(const RoundBatch& batch, const RoundCase& round) {
  int num_written = 0;
  for (int32_t output = 0; output < RoundCase::kNumSlotOutputs; ++output) {
    CAPTURE(output);
    Memory expected(round.slot_memory(output).size(), RoundCase::kUnwritten);
    for (int32_t i = 0; i < batch.num_tasks; ++i) {
      if (round.tokens(i).empty()) continue;
      const SlotOutput& of = batch.slot_outputs[output];
      Put(ExpectedRow(of, round, i, batch.tasks[i]), of, batch.tasks[i].slot, &expected);
      ++num_written;
    }
    CHECK(round.slot_memory(output) == expected);
  }
  CHECK(num_written > 10 * RoundCase::kNumSlotOutputs);
  CHECK(num_written < batch.num_tasks * RoundCase::kNumSlotOutputs);
}

// Puts output i in space i % 3, as a fake device sees it.
void Spread(const RoundCase& round, FakeGpu* gpu, std::vector<SlotOutput>* outputs) {
  const auto is_in = [&round, outputs](MemorySpace space) {
    return [&round, outputs, space](const void* address) {
      for (size_t i = 0; i < outputs->size(); ++i) {
        const Memory& memory = round.slot_memory(static_cast<int32_t>(i));
        if ((*outputs)[i].space != space) continue;
        if (address >= memory.data() && address < memory.data() + memory.size()) return true;
      }
      return false;
    };
  };
  constexpr MemorySpace kSpaces[] = {MemorySpace::kHost, MemorySpace::kDevice,
                                     MemorySpace::kOtherDevice};
  for (size_t i = 0; i < outputs->size(); ++i) (*outputs)[i].space = kSpaces[i % 3];
  gpu->is_imported = is_in(MemorySpace::kDevice);
  gpu->is_on_other_device = is_in(MemorySpace::kOtherDevice);
}

// Plain samples over eight ids: task i has the slot slots[i], and its row is won by that id.
class SlotSamples {
 public:
  explicit SlotSamples(const std::vector<uint32_t>& slots)
      : rows_({.vocab_size = 8, .num_rows = 8}),
        slots_(slots),
        tasks_(slots.size()),
        outcomes_(slots.size()),
        tokens_(slots.size()) {
    for (int row = 0; row < 8; ++row) {
      std::vector<double> values(8, 0.0);
      values[static_cast<size_t>(row)] = 5.0;
      rows_.Set(row, values);
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      tasks_[i].slot = slots_[i];
      tasks_[i].draft.target_rows = &slots_[i];
    }
  }

  RoundBatch Batch(const SlotOutput* output) {
    RoundBatch batch;
    batch.target = rows_.view();
    batch.tasks = tasks_.data();
    batch.num_tasks = static_cast<int32_t>(tasks_.size());
    batch.outcomes = outcomes_.data();
    batch.tokens = tokens_.data();
    batch.tokens_stride = 1;
    batch.slot_outputs = output;
    batch.num_slot_outputs = 1;
    return batch;
  }

 private:
  RowMatrix rows_;
  std::vector<uint32_t> slots_;
  std::vector<Task> tasks_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
};

// A backend over a device to which `next` belongs, or which another device has.
struct SlotDevice {
  SlotDevice() {
    REQUIRE(cuda.Prepare({8, 8, 0}).ok());
    const auto is_next = [this](const void* address) {
      return address >= next.data() && address < next.data() + next.size();
    };
    gpu.is_imported = [=, this](const void* address) { return !is_other && is_next(address); };
    gpu.is_on_other_device = [=, this](const void* address) {
      return is_other && is_next(address);
    };
  }

  FakeGpu gpu;
  CudaBackend cuda{std::make_unique<FakeGpuDriver>(&gpu), 1 << 20};
  Memory next = Memory(8, -9);
  bool is_other = false;
};

TEST_SUITE("unit") {
  TEST_CASE("next tokens that the host must not write are the kernels' alone") {
    // If a kernel wrote host memory, the fake device would say so. To notice a write by the host,
    // the test overwrites the kernel's token before any answer comes back.
    SlotSamples round({6});
    SlotDevice device;
    bool is_launched = false;
    device.gpu.after_round = [&](const RoundBatch&) {
      is_launched = std::exchange(device.next[6], -5) == 6;
    };
    const SlotOutput output{device.next.data(), MemorySpace::kDevice};
    REQUIRE(device.cuda.Run(round.Batch(&output)).ok());
    CHECK(is_launched);
    CHECK(device.next[6] == -5);
  }

  TEST_CASE("next tokens on another device are copied there, because no kernel reaches them") {
    SlotSamples round({5, 2, 7, 3});
    SlotDevice device;
    device.is_other = true;
    const Memory& next = device.next;
    const SlotOutput output{device.next.data(), MemorySpace::kOtherDevice};
    REQUIRE(device.cuda.Run(round.Batch(&output)).ok());
    CHECK(next == Memory{-9, -9, 2, 3, -9, 5, -9, 7});
    // Neighbours go together.
    CHECK(device.gpu.copied_to_other_device == std::set<const void*>{&next[2], &next[5], &next[7]});
  }

  TEST_CASE("next tokens that a device does not take are its failure") {
    for (const char* const call : {"ToDevice", "Synchronize"}) {
      CAPTURE(call);
      SlotSamples round({0});
      SlotDevice device;
      const SlotOutput output{device.next.data(), MemorySpace::kDevice};
      const RoundBatch batch = round.Batch(&output);
      RoundBatch without = batch;
      without.num_slot_outputs = 0;
      REQUIRE(device.cuda.Run(without).ok());
      device.gpu.failing_call = call;
      const absl::Status status = device.cuda.WriteSlotOutputs(batch);
      CHECK(status.code() == absl::StatusCode::kInternal);
      CHECK(status.message().find(call) != std::string::npos);
    }
  }
}

TEST_SUITE("invariance") {
  TEST_CASE("slot outputs of random rounds are what the answers make, and nothing else changes") {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      CAPTURE(seed);
      const RoundCase::Options options{
          .vocab_size = 700, .batch = 40, .max_draft = 3, .seed = 500 + seed};
      RoundCase round(options);
      // The smallest upload makes a piece of each task.
      const int64_t upload_bytes = seed % 3 == 0 ? 1 : int64_t{1} << 24;
      FakeGpu gpu;
      CpuBackend cpu(BestCpuTarget());
      CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), upload_bytes);
      for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&cuda)}) {
        REQUIRE(backend->Prepare({700, 40, 3}).ok());
        RoundBatch batch = round.All();
        std::vector<SlotOutput> outputs(batch.slot_outputs,
                                        batch.slot_outputs + batch.num_slot_outputs);
        if (backend == &cuda) Spread(round, &gpu, &outputs);
        batch.slot_outputs = outputs.data();
        RoundBatch first = batch;
        const bool is_held_back = seed % 2 == 1;
        if (is_held_back) first.num_slot_outputs = 0;
        absl::Status status = backend->Run(first);
        REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
        if (is_held_back) {
          const Memory& kept = round.slot_memory(2);
          const auto untouched = std::count(kept.begin(), kept.end(), RoundCase::kUnwritten);
          CHECK(untouched == static_cast<int64_t>(kept.size()));
          status = backend->WriteSlotOutputs(batch);
          REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
        }
        CheckAll(batch, round);
      }
    }
  }
}

}  // namespace
}  // namespace specd
