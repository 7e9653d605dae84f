// Draft tokens by slot of sequences whose constraint or processors look at tokens: the verifier
// reads a private copy, and the round is the one of the same ids in the draft itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "speculative/verifier.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/speculative/verifier_fixture.h"
#include "tests/support/scripted_grammar.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

constexpr int32_t kVocab = 40;
constexpr int32_t kDraft = 4;
constexpr int32_t kBatch = 6;
constexpr int64_t kStride = kDraft + 3;
constexpr size_t kRows = kBatch * (kDraft + 1);

Vocabulary Letters() {
  Vocabulary::Builder builder;
  builder.Set(0, "</s>", {.added = true, .special = true});
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    builder.Set(letter - 'a' + 1, std::string(1, letter), {});
  }
  return std::move(builder).Build();
}

// Six sequences: two under a constraint, one with it and a processor, one with processors, and two
// that look at no tokens on the host.
class SlotEngine {
 public:
  explicit SlotEngine(std::unique_ptr<Backend> backend)
      : vocabulary_(Letters()), logits_(kRows * kVocab), ids_(kBatch * kStride, kNoToken) {
    VerifierOptions options;
    options.limits = {kVocab, kBatch, kDraft};
    options.max_sequences = kBatch;
    options.eos_token_ids = {0};
    options.grammars = std::make_shared<grammar::GrammarCompiler>(
        grammar::GrammarCompilerOptions{.vocabulary = &vocabulary_, .vocab_size = kVocab});
    verifier_ = *Verifier::Create(options, std::move(backend));
    TensorView view;
    view.data = logits_.data();
    view.num_rows = kRows;
    view.row_stride = kVocab;
    view.vocab_size = kVocab;
    REQUIRE(verifier_->BindTarget(view).ok());
    REQUIRE(verifier_->BindDraft(view).ok());
    for (int i = 0; i < kBatch; ++i) {
      SequenceParams params;
      params.seed = static_cast<uint64_t>(i);
      params.has_seed = true;
      params.max_tokens = 1000;
      params.ignore_eos = true;
      params.temperature = i % 2 == 0 ? 0.7 : 1.3;
      params.verify = i % 2 == 0 ? VerifyMethod::kToken : VerifyMethod::kExactMatch;
      params.frequency_penalty = i == 4 ? 0.5 : 0;
      if (i < 3) {
        params.grammar_kind = grammar::GrammarKind::kRegex;
        params.grammar_text = i == 0 ? "([a-m]|n[o-z])+" : "(ab|[c-z]{2})+";
      }
      if (i == 2 || i == 3) params.bad_words = {{3, 4}, {5, 6, 7}};
      const auto info = verifier_->Open(params);
      REQUIRE_MESSAGE(info.ok(), info.status().ToString());
      sequences_.push_back(info->handle);
    }
  }

  Verifier& verifier() { return *verifier_; }
  Ids& ids() { return ids_; }
  TokenId* DraftOf(size_t i) { return &ids_[SlotOf(sequences_[i]) * kStride]; }

  // Rows and drafts of the next round, the same for the same seed.
  void Fill(std::mt19937& random) {
    for (float& logit : logits_) logit = static_cast<float>(random() % 1000) / 150.0f;
    for (size_t i = 0; i < kBatch; ++i) {
      for (int32_t j = 0; j < kDraft; ++j) {
        // -1 and ids outside the vocabulary among them.
        DraftOf(i)[j] = static_cast<TokenId>(random() % (kVocab + 4)) - 2;
      }
    }
  }

  std::vector<SequenceResult> Round(bool by_slot) {
    std::vector<SequenceInput> inputs(kBatch);
    std::vector<uint32_t> rows(kRows);
    for (size_t i = 0; i < kRows; ++i) rows[i] = static_cast<uint32_t>(i);
    for (size_t i = 0; i < kBatch; ++i) {
      inputs[i].sequence = sequences_[i];
      inputs[i].drafts_by_slot = by_slot;
      inputs[i].draft = {.num_nodes = kDraft,
                         .tokens = by_slot ? nullptr : DraftOf(i),
                         .target_rows = &rows[i * (kDraft + 1)]};
    }
    std::vector<SequenceResult> results(kBatch);
    VerifyRound(verifier_, inputs, results);
    return results;
  }

 private:
  const Vocabulary vocabulary_;
  std::vector<float> logits_;
  Ids ids_;
  std::unique_ptr<Verifier> verifier_;
  std::vector<SequenceHandle> sequences_;
};

std::unique_ptr<Backend> Cpu() { return std::make_unique<CpuBackend>(CpuTarget::kBaseline); }

// An engine over the pretended device, whose draft tokens are in its memory.
struct DeviceEngine {
  explicit DeviceEngine(int64_t staging_bytes = int64_t{1} << 30)
      : driver(&gpu),
        engine(
            std::make_unique<CudaBackend>(std::make_unique<FakeGpuDriver>(&gpu), staging_bytes)) {
    void* memory = nullptr;
    REQUIRE(driver.Allocate(engine.ids().size() * sizeof(TokenId), &memory).ok());
    ids = static_cast<TokenId*>(memory);
    engine.verifier().BindDraftTokens({ids, kStride, MemorySpace::kDevice});
  }
  ~DeviceEngine() { (void)driver.Free(ids); }

  std::vector<SequenceResult> Round() {
    // The pretended device's memory is host memory.
    std::copy(engine.ids().begin(), engine.ids().end(), ids);
    return engine.Round(true);
  }

  FakeGpu gpu;
  FakeGpuDriver driver;
  SlotEngine engine;
  TokenId* ids = nullptr;
};

void CheckSame(const std::vector<SequenceResult>& found,
               const std::vector<SequenceResult>& expected) {
  for (size_t i = 0; i < kBatch; ++i) {
    CAPTURE(i);
    REQUIRE(found[i].status == expected[i].status);
    REQUIRE(found[i].num_accepted == expected[i].num_accepted);
    REQUIRE(Kept(found[i]) == Kept(expected[i]));
  }
}

TEST_SUITE("unit") {
  TEST_CASE("draft tokens by slot in host memory: the round of the same ids in the draft") {
    SlotEngine given(Cpu());
    SlotEngine by_slot(Cpu());
    by_slot.verifier().BindDraftTokens({by_slot.ids().data(), kStride, MemorySpace::kHost});
    std::mt19937 random(7);
    uint32_t num_accepted = 0;
    for (int round = 0; round < 60; ++round) {
      std::mt19937 same = random;
      given.Fill(random);
      by_slot.Fill(same);
      const std::vector<SequenceResult> expected = given.Round(false);
      CheckSame(by_slot.Round(true), expected);
      for (size_t i = 0; i < 4; ++i) {
        REQUIRE(expected[i].status == RoundStatus::kOk);
        num_accepted += expected[i].num_accepted;
      }
    }
    CHECK(num_accepted > 5);
  }

  TEST_CASE("draft tokens by slot in device memory, in one piece and in several") {
    for (const int64_t staging_bytes : {int64_t{1} << 30, int64_t{1}}) {
      SlotEngine given(Cpu());
      DeviceEngine device(staging_bytes);
      std::mt19937 random(8);
      for (int round = 0; round < 6; ++round) {
        std::mt19937 same = random;
        given.Fill(random);
        device.engine.Fill(same);
        CheckSame(device.Round(), given.Round(false));
      }
    }
  }

  TEST_CASE("the copy is private: a drafter that writes on changes nothing of the round") {
    const auto script = std::make_shared<GrammarScript>();
    VerifierFixture f;
    TokenId ids[4 * 3] = {};
    f.verifier->BindDraftTokens({ids, 3, MemorySpace::kHost});
    SequenceInput input = f.Input(f.OpenUnder(std::make_unique<ScriptedMatcher>("a", script)));
    TokenId* const draft = ids + size_t{3} * SlotOf(input.sequence);
    std::copy_n(f.drafts, 3, draft);
    input.draft.tokens = nullptr;
    input.drafts_by_slot = true;
    // The masks are built between the copy and the run.
    script->on_mask = [draft](const std::string&, const Ids&) { draft[2] = 6; };
    f.backend->inspect = [](const RoundBatch& batch) {
      const Task& task = batch.tasks[0];
      CHECK_FALSE(task.drafts_by_slot);
      CHECK(Ids(task.draft.tokens, task.draft.tokens + 3) == Ids{1, 2, 3});
      for (size_t i = 0; i < 4; ++i) CHECK(task.places[i].grammar_mask != nullptr);
    };
    f.backend->script = {Confirm(1, {1, 5})};
    CHECK(f.Round(input).status == RoundStatus::kOk);
  }

  TEST_CASE("a copy that fails is the device's error, and the round changes nothing") {
    SlotEngine given(Cpu());
    DeviceEngine device;
    std::mt19937 random(9);
    std::mt19937 same = random;
    given.Fill(random);
    device.engine.Fill(same);
    for (const std::string call : {"ToHost", "Synchronize"}) {
      CAPTURE(call);
      device.gpu.failing_call = call;
      for (const SequenceResult& result : device.Round()) {
        CHECK(result.status == RoundStatus::kDeviceError);
        CHECK(result.num_kept == 0);
      }
      CHECK_FALSE(device.engine.verifier().failure().ok());
      device.gpu.failing_call.clear();
    }
    CheckSame(device.Round(), given.Round(false));
  }

  TEST_CASE("masks that are built early do not wait for draft tokens by slot") {
    const auto script = std::make_shared<GrammarScript>();
    VerifierFixture f;
    TokenId ids[4 * 3] = {};
    f.verifier->BindDraftTokens({ids, 3, MemorySpace::kHost});
    SequenceInput input = f.Input(f.OpenUnder(std::make_unique<ScriptedMatcher>("a", script)));
    input.draft.tokens = nullptr;
    input.drafts_by_slot = true;
    std::vector<size_t> built;
    script->on_mask = [&built](const std::string&, const Ids& kept) {
      built.push_back(kept.size());
    };
    MaskWarmth warmth;
    CHECK_FALSE(f.verifier->WarmMasks({&input, 1}, &warmth));
    CHECK(built == std::vector<size_t>{0});
  }

  TEST_CASE("marked draft tokens are copied once, for sequences with a constraint alone") {
    const auto script = std::make_shared<GrammarScript>();
    // Every look at the clock is a slice of time, so each call builds the masks of one sequence.
    int64_t now_ns = 0;
    VerifierFixture f([&now_ns] { return now_ns += 10 * MaskFiller::kSliceNs; });
    TokenId ids[4 * 3];
    std::fill(std::begin(ids), std::end(ids), 1);
    f.verifier->BindDraftTokens({ids, 3, MemorySpace::kHost});
    SequenceParams with_processor;
    with_processor.bad_words = {{3, 4}};
    const SequenceHandle a = f.OpenUnder(std::make_unique<ScriptedMatcher>("a", script));
    const SequenceHandle b = f.Open(with_processor);
    const SequenceHandle c = f.OpenUnder(std::make_unique<ScriptedMatcher>("a", script));
    SequenceInput inputs[] = {f.Input(a), f.Input(b), f.Input(c)};
    for (SequenceInput& input : inputs) {
      input.draft.tokens = nullptr;
      input.drafts_by_slot = true;
    }
    std::vector<size_t> built;
    script->on_mask = [&built](const std::string&, const Ids& kept) {
      built.push_back(kept.size());
    };
    MaskWarmth warmth{.drafts = MaskWarmth::Drafts::kMarked};
    CHECK(f.verifier->WarmMasks(inputs, &warmth));
    CHECK(built == std::vector<size_t>{0, 1, 2, 3});
    CHECK_FALSE(f.verifier->WarmMasks(inputs, &warmth));
    CHECK(built == std::vector<size_t>{0, 1, 2, 3, 0, 1, 2, 3});
    REQUIRE(f.backend->early_reads.size() == 1);
    const std::vector<TokenRowRead>& reads = f.backend->early_reads[0];
    REQUIRE(reads.size() == 2);
    CHECK(reads[0].slot == SlotOf(a));
    CHECK(reads[1].slot == SlotOf(c));
    CHECK(reads[0].num_ids == 3);
    // The path of a draft token that is none ends there.
    std::fill(std::begin(ids), std::end(ids), kNoToken);
    built.clear();
    MaskWarmth short_warmth{.drafts = MaskWarmth::Drafts::kMarked};
    CHECK_FALSE(f.verifier->WarmMasks({inputs, 1}, &short_warmth));
    CHECK(built == std::vector<size_t>{0});
  }

  TEST_CASE("an early copy that fails is not tried again, and the round is as without a mark") {
    const auto script = std::make_shared<GrammarScript>();
    VerifierFixture f;
    TokenId ids[4 * 3];
    std::fill(std::begin(ids), std::end(ids), 1);
    f.verifier->BindDraftTokens({ids, 3, MemorySpace::kHost});
    SequenceInput input = f.Input(f.OpenUnder(std::make_unique<ScriptedMatcher>("a", script)));
    input.draft.tokens = nullptr;
    input.drafts_by_slot = true;
    std::vector<size_t> built;
    script->on_mask = [&built](const std::string&, const Ids& kept) {
      built.push_back(kept.size());
    };
    f.backend->early_status = absl::InternalError("no copy");
    MaskWarmth warmth{.drafts = MaskWarmth::Drafts::kMarked};
    for (int i = 0; i < 2; ++i) CHECK_FALSE(f.verifier->WarmMasks({&input, 1}, &warmth));
    CHECK(f.backend->early_reads.size() == 1);
    CHECK(built == std::vector<size_t>{0});
    f.backend->script = {Confirm(1, {1, 5})};
    CHECK(f.Round(input).status == RoundStatus::kOk);
    CHECK(f.verifier->failure().ok());
  }
}

}  // namespace
}  // namespace specd
