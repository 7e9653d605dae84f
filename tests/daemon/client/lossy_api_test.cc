// Lossy methods and SGLang's generator through the C interface: the option that allows the methods,
// the refusal without it, and what results say.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "kernels/core/gumbel.h"
#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/server/server_fixture.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

constexpr uint32_t kVocab = 8;
constexpr uint32_t kDraft = 3;

// An engine with four target rows. In each, id 0 is the likeliest, 1 comes next, then 2.
class LossyEngine {
 public:
  explicit LossyEngine(uint32_t allow_lossy = 1) {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_draft = kDraft;
    options.allow_lossy = allow_lossy;
    engine_ = test::OpenEngine("embedded:cpu", options);
    specd_region region;
    REQUIRE(specd_alloc(handle(), 4 * kVocab * sizeof(float), &region) == SPECD_OK);
    rows_ = static_cast<float*>(region.data);
    for (uint32_t row = 0; row < 4; ++row) test::EmbeddedEngine::SetRow(rows_, row, {2, 1, .5f});
    for (const int role : {SPECD_TARGET_ROWS, SPECD_DRAFT_ROWS}) {
      specd_tensor tensor;
      specd_tensor_init(&tensor);
      tensor.region = region.id;
      tensor.num_rows = 4;
      REQUIRE(specd_bind(handle(), role, &tensor) == SPECD_OK);
    }
  }

  specd_engine* handle() const { return engine_.get(); }
  int TryOpen(const specd_params& params, specd_sequence* sequence) {
    specd_sequence_info info = Sized<specd_sequence_info>();
    const int code = specd_open_sequence(handle(), "r", &params, &info);
    *sequence = info.sequence;
    return code;
  }
  specd_sequence Open(const specd_params& params) {
    specd_sequence sequence = 0;
    const int code = TryOpen(params, &sequence);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    return sequence;
  }
  specd_result Round(specd_sequence sequence, const std::vector<int32_t>& draft) {
    static const uint32_t rows[] = {0, 1, 2, 3};
    const specd_draft part =
        ChainDraft(sequence, static_cast<uint32_t>(draft.size()), draft.data(), rows);
    REQUIRE(specd_submit(handle(), 1, &part, 1) == SPECD_OK);
    specd_completion done = SizedCompletion();
    REQUIRE(specd_poll(handle(), &done, 10000) == SPECD_OK);
    return done.results[0];
  }

 private:
  test::EnginePtr engine_;
  float* rows_ = nullptr;
};

specd_params With(uint32_t verify, double temperature = 1) {
  specd_params params = test::EmbeddedEngine::Params(temperature);
  params.verify = verify;
  return params;
}

TEST_SUITE("unit") {
  TEST_CASE("a lossy method is refused by name unless the engine allows it") {
    LossyEngine strict(0);
    static const float rates[] = {.5f};
    for (uint32_t method = SPECD_VERIFY_TYPICAL; method <= SPECD_VERIFY_SYNTHETIC; ++method) {
      CAPTURE(method);
      specd_params params = With(method);
      if (method == SPECD_VERIFY_SYNTHETIC) params.synthetic_rates = {rates, 1};
      specd_sequence sequence = 0;
      CHECK(strict.TryOpen(params, &sequence) == SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorHas("--allow_lossy"));
      CHECK(LastErrorHas("verify = auto, which is lossless"));
      LossyEngine lossy;
      const specd_sequence open = lossy.Open(params);
      const specd_result result = lossy.Round(open, {1});
      CHECK(result.verify == method);
      CHECK(result.lossy == 1);
    }
    LossyEngine lossy;
    const specd_result lossless = lossy.Round(lossy.Open(With(SPECD_VERIFY_AUTO)), {1});
    CHECK(lossless.lossy == 0);
  }

  TEST_CASE("allow_lossy is 0 or 1, and a daemon has its own") {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.allow_lossy = 2;
    specd_engine* engine = nullptr;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("allow_lossy = 2 must be 0 or 1"));
    options.allow_lossy = 1;
    CHECK(specd_open("unix:/nonexistent/specd.sock", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--allow_lossy=1"));
    const specd_params params = With(SPECD_VERIFY_TYPICAL);
    CHECK(specd_params_check(&params, &options) == SPECD_OK);
    options.allow_lossy = 0;
    CHECK(specd_params_check(&params, &options) == SPECD_ERROR_UNSUPPORTED);
  }

  TEST_CASE("relaxed_thinking: the rule holds inside a thought, and not after it") {
    LossyEngine engine;
    static const int32_t start[] = {5};
    static const int32_t ends[] = {6};
    specd_params params = With(SPECD_VERIFY_RELAXED, 0);
    params.thinking_start_id = 5;
    params.thinking_end_ids = {ends, 1};
    const specd_number only[] = {{"relaxed_thinking", 1}, {"relaxed_delta", 1}};
    params.numbers = {only, 2};
    const specd_sequence outside = engine.Open(params);
    CHECK(test::TokensOf(engine.Round(outside, {1, 1})) == std::vector<int32_t>{0});
    REQUIRE(specd_close_sequence(engine.handle(), outside) == SPECD_OK);
    params.prompt_ids = {start, 1};
    const specd_sequence inside = engine.Open(params);
    // The thought ends within the draft, and the places after its end are strict again.
    CHECK(test::TokensOf(engine.Round(inside, {1, 6, 1})) == std::vector<int32_t>{1, 6, 0});
    CHECK(test::TokensOf(engine.Round(inside, {1})) == std::vector<int32_t>{0});
  }

  TEST_CASE("rng = sglang: the prompt counts, and a draft of the same seed is what stands") {
    LossyEngine engine;
    const specd_number rng[] = {{"rng", 1}};
    specd_params params = With(SPECD_VERIFY_AUTO);
    params.numbers = {rng, 1};
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("prompt_ids: rng = sglang"));
    static const int32_t prompt[] = {1, 2, 3};
    params.prompt_ids = {prompt, 3};
    sequence = engine.Open(params);
    // SGLang: the position of the first token is that of the last prompt token, 2.
    std::vector<double> scores;
    for (uint32_t id = 0; id < 3; ++id) {
      scores.push_back(std::vector<double>{2, 1, .5}[id] + GumbelOf(params.seed, 2, id));
    }
    for (uint32_t id = 3; id < kVocab; ++id) scores.push_back(-10 + GumbelOf(params.seed, 2, id));
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();

    specd_draft_request request = Sized<specd_draft_request>();
    request.sequence = sequence;
    request.num_children = 1;
    request.mask_row = -1;
    specd_draft_children answer = Sized<specd_draft_children>();
    REQUIRE(specd_sample_draft(engine.handle(), &request, 1, &answer) == SPECD_OK);
    REQUIRE(answer.num_children == 1);
    CHECK(answer.children[0].id == best);
    const specd_result result = engine.Round(sequence, {answer.children[0].id});
    CHECK(result.verify == SPECD_VERIFY_EXACT_MATCH);
    CHECK(result.num_accepted == 1);
    CHECK(result.tokens[0] == best);
    request.num_children = 2;
    CHECK(specd_sample_draft(engine.handle(), &request, 1, &answer) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("rng = sglang"));
  }
}

}  // namespace
}  // namespace specd
