// An engine whose rounds run inside its graph, on a pretended device: forwards, drafts and rounds
// are launched ahead of every answer, and what is confirmed is what an engine confirms that waits
// for each answer and says every draft token itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "daemon/engine_device.h"
#include "ipc/include/specd/specd.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/borrowed_gpu_context.h"
#include "tests/support/c_drafts.h"
#include "tests/support/fake_gpu_context.h"
#include "tests/support/fake_gpu_driver.h"

namespace specd {
namespace {

FakeGpuContext* process_gpu = nullptr;
FakeGpu* process_driver = nullptr;

class BorrowedPlatform final : public GpuPlatform {
 public:
  GpuResult ListDevices(std::vector<GpuDevice>* devices) override {
    *devices = FakeGpuOptions().devices;
    return GpuResult::Ok();
  }
  GpuResult OpenContext(size_t, std::unique_ptr<GpuContext>* context) override {
    *context = std::make_unique<BorrowedGpuContext>(process_gpu);
    return GpuResult::Ok();
  }
};

constexpr uint32_t kVocab = 300;
constexpr uint32_t kMaxDraft = 3;
constexpr uint32_t kSequences = 4;
constexpr uint32_t kSlots = 6;
constexpr uint32_t kTargetRows = kSequences * (kMaxDraft + 1);
constexpr uint32_t kDraftRows = kSequences * kMaxDraft;

// What an engine's memory holds, wherever it lies. Nowhere on a round number.
struct Tensors {
  float unused[3];
  float target[kTargetRows * kVocab];
  float draft[kDraftRows * kVocab];
  int32_t next_tokens[kSlots];
  int32_t draft_tokens[kSlots * kMaxDraft];
};

// A model in which the next token depends on the last one only, and a drafter that is nearly as
// good: it also draws ids that are none, and ends its drafts early.
class Model {
 public:
  Model() : target_(kVocab * kVocab), draft_(kVocab * kVocab) {
    std::mt19937_64 random(3);
    for (size_t i = 0; i < target_.size(); ++i) {
      target_[i] = static_cast<float>(random() % 1000) / 250;
      if (i % kVocab == i / kVocab * 37 % kVocab) target_[i] += 4;  // what it likes best
      draft_[i] = target_[i] + static_cast<float>(random() % 1000) / 1000;
    }
  }

  // Reads the sequence's next token, writes its draft and all rows. `step` moves the noise of the
  // drafter, as a drafter on the device has a counter of its own.
  void Forward(uint32_t sequence, uint32_t slot, uint32_t step, Tensors* tensors) const {
    int32_t* const tokens = &tensors->draft_tokens[slot * kMaxDraft];
    int32_t last = tensors->next_tokens[slot];
    for (uint32_t i = 0; i <= kMaxDraft; ++i) {
      float* const row = &tensors->target[(sequence * (kMaxDraft + 1) + i) * kVocab];
      std::copy_n(Row(target_, last), kVocab, row);
      if (i == kMaxDraft) break;
      const float* const drawn_from = Row(draft_, last);
      std::copy_n(drawn_from, kVocab, &tensors->draft[(sequence * kMaxDraft + i) * kVocab]);
      const uint32_t noise = (step * 7 + sequence * 3 + i) * 2654435761u >> 20;
      last = static_cast<int32_t>(std::max_element(drawn_from, drawn_from + kVocab) - drawn_from);
      if (noise % 11 == 0) last = 100000;
      if (noise % 13 == 0) last = -1;
      tokens[i] = last;
    }
  }

 private:
  // Of what is no id the model says something too: its rows are never needed, but they are read.
  static const float* Row(const std::vector<float>& table, int32_t token) {
    const uint32_t row = static_cast<uint32_t>(token) % kVocab;
    return &table[row * kVocab];
  }

  std::vector<float> target_;
  std::vector<float> draft_;
};

const Model& TheModel() {
  static const Model model;
  return model;
}

// Four ways of being verified, and everything that depends on tokens only the device knows.
specd_params ParamsOf(uint32_t i, const int32_t* stop_id) {
  specd_params params;
  specd_params_init(&params);
  params.has_seed = 1;
  params.seed = 40 + i;
  params.max_tokens = i == 3 ? 17 : 60;
  const uint32_t methods[] = {SPECD_VERIFY_GREEDY, SPECD_VERIFY_EXACT_MATCH, SPECD_VERIFY_TOKEN,
                              SPECD_VERIFY_BLOCK};
  params.verify = methods[i];
  params.temperature = i == 0 ? 0 : 0.7;
  params.frequency_penalty = i == 0 ? 1.5 : 0.5;
  params.presence_penalty = i == 2 ? 1 : 0;
  params.repetition_penalty = i == 1 ? 1.5 : 1;
  if (i == 1) {
    params.min_tokens = 9;
    params.stop_token_ids = {stop_id, 1};
  }
  if (i == 2) params.top_k = 40;
  params.logprobs = i == 0 ? 1 : -1;
  return params;
}

struct Kept {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> accepted;  // in each round
  std::vector<float> logprobs;
  uint32_t finish_reason = SPECD_FINISH_NONE;

  friend bool operator==(const Kept&, const Kept&) = default;
};

// One engine with its four sequences.
class Generator {
 public:
  explicit Generator(const std::string& uri) {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_batch = kSequences;
    options.max_sequences = kSlots;
    options.max_draft = kMaxDraft;
    REQUIRE(specd_open(uri.c_str(), &options, &engine) == SPECD_OK);
  }
  ~Generator() { specd_close(engine); }

  void Bind(int role, uint32_t region, const Tensors* base, const void* at, uint64_t num_rows) {
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region;
    tensor.offset_bytes =
        static_cast<uint64_t>(static_cast<const char*>(at) - reinterpret_cast<const char*>(base));
    tensor.num_rows = num_rows;
    const int code = specd_bind(engine, role, &tensor);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
  }
  void BindAll(uint32_t region) {
    Bind(SPECD_TARGET_ROWS, region, tensors, tensors->target, kTargetRows);
    Bind(SPECD_DRAFT_ROWS, region, tensors, tensors->draft, kDraftRows);
    Bind(SPECD_NEXT_TOKEN, region, tensors, tensors->next_tokens, kSlots);
    Bind(SPECD_DRAFT_TOKENS, region, tensors, tensors->draft_tokens, kSlots);
  }

  void Open() {
    for (uint32_t i = 0; i < kSequences; ++i) OpenOne(i, ParamsOf(i, &kStopId));
  }
  void OpenOne(uint32_t i, const specd_params& params) {
    specd_sequence_info info = {};
    const std::string name = std::to_string(params.seed);
    REQUIRE(specd_open_sequence(engine, name.c_str(), &params, &info) == SPECD_OK);
    sequences[i] = info.sequence;
    kept[i] = {};
    tensors->next_tokens[SlotOf(i)] = static_cast<int32_t>(i);  // the prompt's last
  }
  uint32_t SlotOf(uint32_t i) const { return specd_sequence_slot(sequences[i]); }

  // Of a batch, in its order; each sequence counts its own.
  using Batch = std::array<specd_sequence, kSequences>;
  void Forward(const Batch& batch) {
    for (uint32_t i = 0; i < kSequences; ++i) {
      TheModel().Forward(i, specd_sequence_slot(batch[i]), num_forwards[batch[i]]++, tensors);
    }
  }

  // All sequences that are not known to have finished, their tokens by slot or said.
  std::vector<specd_draft> Drafts(bool by_slot) const {
    std::vector<specd_draft> parts;
    for (uint32_t i = 0; i < kSequences; ++i) {
      if (kept[i].finish_reason != SPECD_FINISH_NONE) continue;
      const int32_t* const tokens = &tensors->draft_tokens[SlotOf(i) * kMaxDraft];
      specd_draft part = ChainDraft(sequences[i], kMaxDraft, by_slot ? nullptr : tokens,
                                    &kRowIndices[i * (kMaxDraft + 1)]);
      part.flags = by_slot ? uint32_t{SPECD_DRAFTS_BY_SLOT} : 0;
      part.draft_rows = &kRowIndices[i * kMaxDraft];
      if (i >= 2) part.kinds = kSampled;
      parts.push_back(part);
    }
    return parts;
  }

  // Takes an answer; rounds of sequences that had finished say nothing.
  bool Poll(uint64_t round_id, int timeout_ms = 20000) {
    specd_completion done = {};
    if (specd_poll(engine, &done, timeout_ms) != SPECD_OK) return false;
    CHECK(done.round_id == round_id);
    for (uint32_t j = 0; j < done.num_results; ++j) {
      const specd_result& result = done.results[j];
      const auto at = std::find(sequences.begin(), sequences.end(), result.sequence);
      if (at == sequences.end()) {
        CHECK(result.status == SPECD_STATUS_UNKNOWN_SEQUENCE);
        continue;
      }
      Kept& of = kept[at - sequences.begin()];
      if (of.finish_reason != SPECD_FINISH_NONE) {
        CHECK(result.status == SPECD_STATUS_FINISHED);
        continue;
      }
      REQUIRE(result.status == SPECD_STATUS_OK);
      of.tokens.insert(of.tokens.end(), result.tokens, result.tokens + result.num_kept);
      of.accepted.push_back(result.num_accepted);
      for (uint32_t t = 0; t < result.num_kept * result.scores_per_token; ++t) {
        of.logprobs.push_back(result.scores[t].value);
      }
      of.finish_reason = result.finish_reason;
      CHECK(result.total_kept == of.tokens.size());
    }
    return true;
  }

  static constexpr int32_t kStopId = 17;
  static constexpr uint8_t kSampled[kMaxDraft] = {SPECD_SAMPLED, SPECD_SAMPLED, SPECD_SAMPLED};
  static constexpr uint32_t kRowIndices[kTargetRows] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                        8, 9, 10, 11, 12, 13, 14, 15};
  specd_engine* engine = nullptr;
  Tensors* tensors = nullptr;
  Batch sequences = {};
  std::map<specd_sequence, uint32_t> num_forwards;
  Kept kept[kSequences];
};

constexpr uint32_t kSteps = 30;

specd_params LaterParams() {
  specd_params params = ParamsOf(1, &Generator::kStopId);
  params.seed = 77;
  params.max_tokens = 25;
  return params;
}

// Each answer is waited for, each draft token said. Where `later` is not null, another sequence
// takes the place of the last one when that has finished, and that one's tokens come there.
void RunStepByStep(Kept* kept, Kept* later = nullptr) {
  Generator g("embedded:cpu");
  specd_region region = {};
  REQUIRE(specd_alloc(g.engine, sizeof(Tensors), &region) == SPECD_OK);
  g.tensors = static_cast<Tensors*>(region.data);
  g.BindAll(region.id);
  g.Open();
  for (uint32_t step = 0; step < kSteps; ++step) {
    g.Forward(g.sequences);
    const std::vector<specd_draft> parts = g.Drafts(false);
    if (parts.empty()) break;
    REQUIRE(specd_submit(g.engine, step, parts.data(), static_cast<uint32_t>(parts.size())) ==
            SPECD_OK);
    REQUIRE(g.Poll(step));
    if (later != nullptr && kept[3].tokens.empty() && g.kept[3].finish_reason != 0) {
      kept[3] = g.kept[3];
      REQUIRE(specd_close_sequence(g.engine, g.sequences[3]) == SPECD_OK);
      g.OpenOne(3, LaterParams());
    }
  }
  if (later != nullptr) *later = g.kept[3];
  std::copy_n(g.kept, later != nullptr ? kSequences - 1 : kSequences, kept);
}

// An engine in this process on a pretended device of this process.
struct GraphFixture {
  explicit GraphFixture() {
    process_gpu = &gpu;
    process_driver = &driver;
    driver.is_imported = [this](const void* place) {
      GpuAllocation allocation;
      return gpu.Describe(reinterpret_cast<GpuAddress>(place), &allocation).ok();
    };
    g = std::make_unique<Generator>("embedded:cuda");
    REQUIRE(gpu.Allocate(uint64_t{2} << 20, &address).ok());
    g->tensors = reinterpret_cast<Tensors*>(address);
  }
  ~GraphFixture() {
    g.reset();
    CHECK(gpu.Free(address).ok());
  }

  void BindAll() {
    specd_region region = {};
    const int code = specd_import_device(g->engine, address, sizeof(Tensors), &region);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    g->BindAll(region.id);
  }
  int Stage(uint64_t round_id) { return Stage(round_id, g->Drafts(true)); }
  int Stage(uint64_t round_id, const std::vector<specd_draft>& parts) {
    const int code =
        specd_stage_round(g->engine, round_id, parts.data(), static_cast<uint32_t>(parts.size()));
    if (code == SPECD_OK) batches.push_back(g->sequences);
    return code;
  }
  // The engine's graph: a forward of the batch that was staged for it, then what was captured.
  void Replay() {
    if (!batches.empty()) {
      g->Forward(batches.front());
      batches.pop_front();
    }
    driver.Replay(driver.others_work[&stream]);
    REQUIRE(driver.fault.ok());
  }

  FakeGpuContext gpu{FakeGpuOptions(), 0};
  FakeGpu driver;
  GpuAddress address = 0;
  int stream = 0;  // only its address is of use
  std::unique_ptr<Generator> g;
  std::deque<Generator::Batch> batches;  // staged and not launched
};

TEST_SUITE("unit") {
  TEST_CASE("a graph that runs rounds ahead of every answer confirms what a patient engine does") {
    Kept expected[kSequences];
    RunStepByStep(expected);
    for (uint32_t i = 0; i < kSequences; ++i) {
      CAPTURE(i);
      REQUIRE(expected[i].tokens.size() > 10);
      // Drafts are accepted in some rounds, and rejected in others.
      CHECK(*std::max_element(expected[i].accepted.begin(), expected[i].accepted.end()) > 0);
      CHECK(*std::min_element(expected[i].accepted.begin(), expected[i].accepted.end()) <
            kMaxDraft);
    }
    CHECK(expected[3].finish_reason == SPECD_FINISH_LENGTH);

    for (const uint32_t ahead : {0u, 1u, 3u}) {
      CAPTURE(ahead);
      GraphFixture f;
      f.BindAll();
      f.g->Open();
      REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
      uint32_t staged = 0;
      for (uint32_t step = 0; step < kSteps; ++step) {
        for (; staged <= std::min(step + ahead, kSteps - 1); ++staged) {
          REQUIRE(f.Stage(staged) == SPECD_OK);
        }
        CHECK_FALSE(f.g->Poll(step, 0));  // not run yet
        f.Replay();
        REQUIRE(f.g->Poll(step));
      }
      for (uint32_t i = 0; i < kSequences; ++i) {
        CAPTURE(i);
        CHECK(f.g->kept[i].tokens == expected[i].tokens);
        CHECK(f.g->kept[i] == expected[i]);
        if (f.g->kept[i].finish_reason != SPECD_FINISH_NONE) continue;
        CHECK(f.g->tensors->next_tokens[f.g->SlotOf(i)] == expected[i].tokens.back());
      }
    }
  }

  TEST_CASE("sequences come and go while rounds of those before them are under way") {
    Kept expected[kSequences];
    Kept expected_later;
    RunStepByStep(expected, &expected_later);
    REQUIRE(expected_later.tokens.size() > 10);

    GraphFixture f;
    f.BindAll();
    f.g->Open();
    REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
    Kept last;
    const uint32_t slot = f.g->SlotOf(3);
    uint32_t staged = 0;
    for (uint32_t step = 0; step < kSteps; ++step) {
      for (; staged <= std::min(step + 2, kSteps - 1); ++staged) {
        REQUIRE(f.Stage(staged) == SPECD_OK);
      }
      f.Replay();
      REQUIRE(f.g->Poll(step));
      if (last.tokens.empty() && f.g->kept[3].finish_reason != SPECD_FINISH_NONE) {
        last = f.g->kept[3];
        REQUIRE(specd_close_sequence(f.g->engine, f.g->sequences[3]) == SPECD_OK);
        f.g->OpenOne(3, LaterParams());
        // Two rounds of the old one are under way, and will write at its slot.
        CHECK(f.g->SlotOf(3) != slot);
      }
    }
    CHECK(last == expected[3]);
    for (uint32_t i = 0; i < 3; ++i) CHECK(f.g->kept[i] == expected[i]);
    // It began some rounds later than with an engine that waits, and has come less far.
    const Kept& later = f.g->kept[3];
    REQUIRE(later.tokens.size() > 5);
    REQUIRE(later.tokens.size() <= expected_later.tokens.size());
    CHECK(std::equal(later.tokens.begin(), later.tokens.end(), expected_later.tokens.begin()));
  }

  TEST_CASE("a round whose sequences are all refused or discarded has its turn like any") {
    Kept expected[kSequences];
    RunStepByStep(expected);
    GraphFixture f;
    f.BindAll();
    f.g->Open();
    REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
    REQUIRE(f.Stage(0) == SPECD_OK);
    std::vector<specd_draft> parts = f.g->Drafts(true);
    for (specd_draft& part : parts) part.flags = SPECD_DISCARD;
    parts[0].sequence += uint64_t{9} << 32;
    REQUIRE(f.Stage(1, parts) == SPECD_OK);
    REQUIRE(f.Stage(2) == SPECD_OK);
    f.Replay();
    REQUIRE(f.g->Poll(0));
    f.batches.pop_front();  // its forward is of others
    f.driver.Replay(f.driver.others_work[&f.stream]);
    specd_completion done = {};
    REQUIRE(specd_poll(f.g->engine, &done, 20000) == SPECD_OK);
    CHECK(done.results[0].status == SPECD_STATUS_UNKNOWN_SEQUENCE);
    for (uint32_t i = 1; i < kSequences; ++i) {
      CHECK(done.results[i].status == SPECD_STATUS_OK);
      CHECK(done.results[i].num_kept == 0);
      CHECK(done.results[i].total_kept == f.g->kept[i].tokens.size());
    }
    f.Replay();
    REQUIRE(f.g->Poll(2));
    for (uint32_t i = 0; i < kSequences; ++i) {
      const std::vector<int32_t>& tokens = f.g->kept[i].tokens;
      REQUIRE(f.g->kept[i].accepted.size() == 2);
      CHECK(std::equal(tokens.begin(), tokens.end(), expected[i].tokens.begin()));
    }
  }

  TEST_CASE("a graph that runs with nothing staged does nothing, and loses no later round") {
    GraphFixture f;
    f.BindAll();
    f.g->Open();
    REQUIRE(specd_enqueue_staged(f.g->engine, 1, &f.stream) == SPECD_OK);
    f.g->tensors->next_tokens[0] = 5;
    f.Replay();
    CHECK(f.g->tensors->next_tokens[0] == 5);
    REQUIRE(f.Stage(8) == SPECD_OK);
    f.Replay();
    f.Replay();
    CHECK(f.g->Poll(8));
    CHECK(f.g->kept[0].accepted.size() == 1);
  }

  TEST_CASE("four rounds may be staged, and none beside those of specd_submit") {
    GraphFixture f;
    f.BindAll();
    f.g->Open();
    REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
    for (uint64_t round = 0; round < 4; ++round) REQUIRE(f.Stage(round) == SPECD_OK);
    CHECK(f.Stage(4) == SPECD_FULL);
    const std::vector<specd_draft> parts = f.g->Drafts(false);
    const auto count = static_cast<uint32_t>(parts.size());
    CHECK(specd_submit(f.g->engine, 9, parts.data(), count) == SPECD_ERROR_STATE);
    for (uint64_t round = 0; round < 4; ++round) {
      f.Replay();
      CHECK(f.g->Poll(round));
    }
    // And the other way about.
    REQUIRE(specd_submit(f.g->engine, 9, parts.data(), count) == SPECD_OK);
    CHECK(f.Stage(10) == SPECD_ERROR_STATE);
    CHECK(f.g->Poll(9));
    REQUIRE(f.Stage(10) == SPECD_OK);
    f.Replay();
    CHECK(f.g->Poll(10));
  }

  TEST_CASE("what a graph cannot read is refused before anything is staged") {
    GraphFixture f;
    f.BindAll();
    f.g->Open();
    specd_region region = {};
    REQUIRE(specd_alloc(f.g->engine, sizeof(Tensors), &region) == SPECD_OK);
    f.g->Bind(SPECD_NEXT_TOKEN, region.id, f.g->tensors, f.g->tensors->next_tokens, kSlots);
    CHECK(f.Stage(1) == SPECD_ERROR_STATE);
    CHECK(std::string(specd_last_error()).find("SPECD_NEXT_TOKEN") != std::string::npos);
    CHECK(specd_enqueue_staged(f.g->engine, 1, &f.stream) == SPECD_ERROR_STATE);
    f.BindAll();
    CHECK(specd_enqueue_staged(f.g->engine, 0, &f.stream) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_enqueue_staged(f.g->engine, kSequences + 1, &f.stream) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_enqueue_staged(f.g->engine, 1, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(f.driver.others_work.empty());
  }

  TEST_CASE("a device that fails is said of every staged round") {
    GraphFixture f;
    f.BindAll();
    f.g->Open();
    REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
    REQUIRE(f.Stage(1) == SPECD_OK);
    REQUIRE(f.Stage(2) == SPECD_OK);
    f.driver.fault = GpuResult::Error("an illegal address");
    for (uint64_t round = 1; round <= 2; ++round) {
      specd_completion done = {};
      REQUIRE(specd_poll(f.g->engine, &done, 20000) == SPECD_OK);
      CHECK(done.round_id == round);
      REQUIRE(done.num_results == kSequences);
      CHECK(done.results[0].status == SPECD_STATUS_DEVICE_ERROR);
    }
    f.driver.fault = GpuResult::Ok();
  }
}

}  // namespace

std::unique_ptr<GpuPlatform> MakeEnginePlatform() { return std::make_unique<BorrowedPlatform>(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeEngineBackend(std::string_view name,
                                                           const BackendOptions&) {
  if (name != "cuda") return MakeBackend(name);
  return MakeCudaBackend(std::make_unique<FakeGpuDriver>(process_driver));
}

}  // namespace specd
