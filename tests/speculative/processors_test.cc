// The built-in processors and the registry, one table of cases each; that they agree with brute
// force along whole drafts is row_rules_test.cc.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "speculative/processors/bad_words.h"
#include "speculative/processors/no_repeat_ngram.h"
#include "speculative/processors/processor.h"
#include "speculative/processors/repeat_run.h"
#include "speculative/processors/thinking_budget.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;
constexpr int32_t kVocab = 160'000;

struct Effects {
  Ids banned;
  TokenId forced = kNoToken;
};

// Asks a processor after prompt and outputs. The last num_draft outputs are a draft prefix.
Effects Judge(Processor& processor, const Ids& prompt, const Ids& outputs, size_t num_draft = 0) {
  Ids all = prompt;
  all.insert(all.end(), outputs.begin(), outputs.end());
  const size_t num_kept = all.size() - num_draft;
  processor.Advance({{all.data(), num_kept}, prompt.size(), num_kept}, num_kept);
  const TokenEdits edits;
  FixedList<TokenEdit> pool(processor.max_edits());
  PlaceEditor editor(&edits, kVocab, processor.max_edits(), &pool);
  processor.Apply({all, prompt.size(), num_kept}, &editor);
  const PlaceEdits place = editor.Finish();
  Effects effects{.banned = {}, .forced = place.forced};
  for (int32_t i = 0; i < place.num_overrides; ++i) {
    if ((place.overrides[i].flags & kEditBanned) != 0) {
      effects.banned.push_back(place.overrides[i].id);
    }
  }
  return effects;
}

Ids NgramBans(size_t n, size_t window, const Ids& prompt, const Ids& outputs, Ids whitelist = {}) {
  NoRepeatNgram processor({n, window, std::move(whitelist), 100, 8, kVocab});
  return Judge(processor, prompt, outputs).banned;
}

ThinkingParams Qwen3(int64_t budget) {
  ThinkingParams params = *FindThinkingPreset("qwen3");
  params.budget = budget;
  return params;
}

TokenId Forced(const ThinkingParams& params, const Ids& prompt, const Ids& outputs) {
  ThinkingBudget processor(params);
  return Judge(processor, prompt, outputs).forced;
}

constexpr TokenId kThink = 151667;
constexpr TokenId kEndThink = 151668;
constexpr TokenId kNewline = 198;

TEST_SUITE("unit") {
  TEST_CASE("no-repeat-n-gram: the cases of SGLang") {
    CHECK(NgramBans(2, 100, {1, 2, 3}, {1, 2}) == Ids{3});
    CHECK(NgramBans(2, 100, {1, 2, 3}, {1, 2}, {3}) == Ids{});
    CHECK(NgramBans(3, 100, {1}, {}) == Ids{});
    CHECK(NgramBans(3, 2, {1, 2}, {3, 4}) == Ids{});
    CHECK(NgramBans(2, 100, {3, 4}, {5}) == Ids{});
  }

  TEST_CASE("no-repeat-n-gram: a place costs the different n-grams, however often each stands") {
    Ids history(1000);
    std::mt19937 random(1);
    for (TokenId& id : history) id = static_cast<TokenId>(random() % 5);
    for (const size_t n : {1, 2}) {
      CAPTURE(n);
      NoRepeatNgram processor({n, 0, {}, 1000, 8, 5});
      processor.Advance({history, 0, 1000}, 1000);
      const TokenEdits edits;
      FixedList<TokenEdit> pool(1000);
      PlaceEditor editor(&edits, 5, 1000, &pool);
      processor.Apply({history, 0, 1000}, &editor);
      // Before they are merged: each of the 5 ids follows each of them.
      CHECK(pool.size() == 5);
      CHECK(editor.Finish().num_overrides == 5);
    }
  }

  TEST_CASE("thinking budget: the cases of SGLang") {
    CHECK(Forced(Qwen3(10), {kThink}, {100, 101}) == kNoToken);
    CHECK(Forced(Qwen3(5), {kThink}, {100, 100, 100, 100, 100}) == kNewline);
    CHECK(Forced(Qwen3(5), {100}, {100, 100, 100, 100, 100, 100}) == kNoToken);
    CHECK(Forced(Qwen3(2), {kThink}, {100, 100, kEndThink, 100}) == kNoToken);
    CHECK(Forced(Qwen3(0), {kThink}, {100}) == kNewline);
    const Ids prompt = {kEndThink, 100};
    CHECK(Forced(Qwen3(5), prompt, {kThink, 1, 2, 3, 4, 5}) == kNewline);
    CHECK(Forced(Qwen3(5), prompt, {kThink, 1, 2, 3, 4, 5, kNewline}) == kEndThink);
  }

  TEST_CASE("thinking presets are those of CONTRACT 3") {
    CHECK(FindThinkingPreset("glm-4.5")->start_id == 151350);
    CHECK(FindThinkingPreset("glm-4.5")->end_ids == Ids{151351});
    CHECK(FindThinkingPreset("glm-4.5")->newline_id == 198);
    CHECK(FindThinkingPreset("qwen3")->end_ids == Ids{151668});
    CHECK(FindThinkingPreset("deepseek-r1")->start_id == 128798);
    CHECK(FindThinkingPreset("deepseek-r1")->newline_id == 201);
    CHECK(FindThinkingPreset("qwen3")->budget == -1);
    CHECK_FALSE(FindThinkingPreset("qwen").has_value());
  }

  TEST_CASE("bad words: only what was emitted can begin a word (vLLM)") {
    const std::vector<Ids> words = {{1, 2}, {7}, {1, 2, 3}, {2, 2, 2}};
    const auto judge = [&](const Ids& prompt, const Ids& outputs) {
      return Judge(*BadWords::Make(words), prompt, outputs).banned;
    };
    CHECK(judge({}, {1}) == Ids{2});
    CHECK(judge({1}, {}) == Ids{});
    CHECK(judge({1}, {2}) == Ids{});
    CHECK(judge({}, {9, 1, 2}) == Ids{3});
    CHECK(judge({}, {2, 2}) == Ids{2});
    CHECK(judge({2}, {2}) == Ids{});
    CHECK(BadWords::Make(std::vector<Ids>{{7}}) == nullptr);
  }

  TEST_CASE("a custom processor is found by name and given what it asks for") {
    auto processor = MakeProcessor({"repeat_run", {{"max_run", 2}}});
    REQUIRE(processor.ok());
    CHECK(Judge(**processor, {}, {4, 4}).banned == Ids{4});
    auto default_run = MakeProcessor({"repeat_run", {}});
    CHECK(Judge(**default_run, {}, Ids(7, 4)).banned == Ids{});
    CHECK(Judge(**default_run, {}, Ids(8, 4)).banned == Ids{4});
  }

  TEST_CASE("an unknown processor, parameter or value is refused with what there is") {
    const auto message = [](const ProcessorParams& params) {
      return std::string(MakeProcessor(params).status().message());
    };
    const std::string unknown = message({"repeat_runs", {}});
    CHECK(unknown.find("\"repeat_runs\"") != std::string::npos);
    CHECK(unknown.find("there are: repeat_run") != std::string::npos);
    const std::string parameter = message({"repeat_run", {{"maxrun", 2}}});
    CHECK(parameter.find("\"maxrun\"") != std::string::npos);
    CHECK(parameter.find("max_run") != std::string::npos);
    const std::string range = message({"repeat_run", {{"max_run", 0}}});
    CHECK(range.find("max_run = 0") != std::string::npos);
    CHECK(range.find("1 .. 1000000") != std::string::npos);
    CHECK(message({"repeat_run", {{"max_run", 2.5}}}).find("whole") != std::string::npos);
    CHECK(message({"repeat_run", {{"max_run", NAN}}}).find("nan") != std::string::npos);
    CHECK(message({"repeat_run", {{"max_run", 2}, {"max_run", 3}}}).find("twice") !=
          std::string::npos);
  }

  TEST_CASE("a place adds biases in one order, whoever asks first") {
    const TokenEdits edits;
    const float biases[] = {1e8f, -1e8f, 0.3f};
    float sums[2];
    for (int turn = 0; turn < 2; ++turn) {
      FixedList<TokenEdit> pool(4);
      PlaceEditor editor(&edits, 10, 4, &pool);
      editor.Count(3);
      for (int i = 0; i < 3; ++i) editor.AddBias(3, biases[turn == 0 ? i : 2 - i]);
      const PlaceEdits place = editor.Finish();
      REQUIRE(place.num_overrides == 1);
      sums[turn] = place.overrides[0].bias;
      CHECK(place.overrides[0].count == 1);
    }
    CHECK(sums[0] == sums[1]);
  }
}

}  // namespace
}  // namespace specd
