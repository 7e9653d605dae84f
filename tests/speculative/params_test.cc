#include "speculative/params/params.h"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>

#include "speculative/params/param_check.h"
#include "speculative/params/param_table.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 100;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// A refusal must name the field, the value and the range; `parts` are what has to stand in it.
void CheckRefused(const SequenceParams& params, std::initializer_list<const char*> parts) {
  const absl::Status status = ValidateParams(params, kVocabSize);
  REQUIRE(!status.ok());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  const std::string text(status.message());
  for (const char* part : parts) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  }
}

void CheckAllowed(const SequenceParams& params) {
  const absl::Status status = ValidateParams(params, kVocabSize);
  INFO(std::string(status.message()));
  CHECK(status.ok());
}

// The params with one number set, by the name of its field.
SequenceParams With(std::string_view field, double value) {
  SequenceParams params;
  // A minimum that is longer than the output is refused for that reason.
  params.max_tokens = 2147483647;
  const ParamRow* row = FindParam(field);
  REQUIRE(row != nullptr);
  if (const auto* place = std::get_if<ParamPlace<double>>(&row->place)) {
    place->write(params) = value;
  } else {
    std::get<ParamPlace<int64_t>>(row->place).write(params) = static_cast<int64_t>(value);
  }
  return params;
}

TEST_SUITE("unit") {
  TEST_CASE("real numbers: the ends of CONTRACT 8 are allowed, one step outside is refused") {
    struct Row {
      const char* field;
      double refused, least, most;
      const char* range;
    };
    const double below_zero = std::nextafter(0.0, -1.0);
    const double above_zero = std::nextafter(0.0, 1.0);
    const double below_two = std::nextafter(-2.0, -3.0);
    for (const Row& row :
         {Row{"temperature", below_zero, 0, 100, "0 .. 100"},
          Row{"top_p", 0, above_zero, 1, "above 0 .. 1"}, Row{"min_p", below_zero, 0, 1, "0 .. 1"},
          Row{"frequency_penalty", below_two, -2, 2, "-2 .. 2"},
          Row{"presence_penalty", below_two, -2, 2, "-2 .. 2"},
          Row{"repetition_penalty", std::nextafter(0.01, 0), 0.01, 100, "0.01 .. 100"},
          Row{"draft_temperature", std::nextafter(1e-5, 0), 1e-5, 100, "1e-05 .. 100"},
          Row{"draft_top_p", 0, above_zero, 1, "above 0 .. 1"},
          Row{"draft_min_p", below_zero, 0, 1, "0 .. 1"}}) {
      CAPTURE(row.field);
      CheckAllowed(With(row.field, row.least));
      CheckAllowed(With(row.field, row.most));
      for (double value : {row.refused, std::nextafter(row.most, kInf), kInf, -kInf}) {
        CheckRefused(With(row.field, value), {row.field, row.range});
      }
      CheckRefused(With(row.field, kNan), {row.field, "nan", row.range});
    }
  }

  TEST_CASE("integers: the ends of CONTRACT 8 are allowed, one step outside is refused") {
    struct Row {
      const char* field;
      double least, most;
      const char* range;
    };
    for (const Row& row : {Row{"n", 1, 64, "1 .. 64"}, Row{"logprobs", -1, 64, "-1 .. 64"},
                           Row{"max_tokens", 1, 2147483647, "1 .. 2147483647"},
                           Row{"min_tokens", 0, 2147483647, "0 .. 2147483647"},
                           Row{"no_repeat_ngram_size", 0, 2147483647, "0 .. 2147483647"}}) {
      CAPTURE(row.field);
      CheckAllowed(With(row.field, row.least));
      CheckAllowed(With(row.field, row.most));
      CheckRefused(With(row.field, row.least - 1), {row.field, row.range});
      CheckRefused(With(row.field, row.most + 1), {row.field, row.range});
    }
    for (const char* field : {"top_k", "draft_top_k"}) {
      CheckAllowed(With(field, -1));
      CheckAllowed(With(field, 9e18));
      CheckRefused(With(field, -2), {field, "-2", "-1 or more"});
    }
  }

  TEST_CASE("lists of ids: inside the vocabulary, bounded") {
    SequenceParams params;
    params.stop_token_ids = {0, 99};
    CheckAllowed(params);
    params.stop_token_ids = {100};
    CheckRefused(params, {"stop_token_ids", "100", "0 .. 99"});
    params.stop_token_ids = {-1};
    CheckRefused(params, {"stop_token_ids", "-1"});
    params.stop_token_ids.assign(65, 1);
    CheckRefused(params, {"stop_token_ids", "65", "64"});

    for (const char* field : {"allowed_token_ids", "disallowed_token_ids", "logprob_token_ids",
                              "no_repeat_ngram_whitelist", "thinking_end_ids"}) {
      CAPTURE(field);
      params = {};
      params.logprobs = 0;
      params.no_repeat_ngram_size = 2;
      params.thinking = {0, 1, {2}, kNoToken};
      auto& ids = std::get<ParamPlace<std::vector<TokenId>>>(FindParam(field)->place).write(params);
      ids = {0, 99};
      CheckAllowed(params);
      ids = {99, 100};
      CheckRefused(params, {field, "100", "0 .. 99"});
      ids = {-1};
      CheckRefused(params, {field, "-1", "0 .. 99"});
    }
    params = {};
    params.allowed_token_ids.assign(kVocabSize, 5);
    CheckAllowed(params);
    params.allowed_token_ids.push_back(5);
    CheckRefused(params, {"allowed_token_ids", "101", "100"});
  }

  TEST_CASE("logit_bias: +-100, at most 1024 ids, each once") {
    SequenceParams params;
    params.logit_bias = {{0, -100.f}, {99, 100.f}};
    CheckAllowed(params);
    params.logit_bias = {{7, std::nextafter(100.f, 101.f)}};
    CheckRefused(params, {"logit_bias[7]", "100.0", "-100 .. 100"});
    params.logit_bias = {{7, std::nanf("")}};
    CheckRefused(params, {"logit_bias[7]", "nan"});
    params.logit_bias = {{100, 1.f}};
    CheckRefused(params, {"logit_bias", "100", "0 .. 99"});
    params.logit_bias = {{7, 1.f}, {8, 1.f}, {7, 1.f}};
    CheckRefused(params, {"logit_bias", "id 7 twice"});

    params.logit_bias.clear();
    for (TokenId id = 0; id < 1024; ++id) params.logit_bias.push_back({id, 1.f});
    CHECK(ValidateParams(params, 2000).ok());
    params.logit_bias.push_back({1024, 1.f});
    CHECK(!ValidateParams(params, 2000).ok());
  }

  TEST_CASE("bad_words: 128 words, 1024 ids together, none empty") {
    SequenceParams params;
    params.bad_words.assign(128, std::vector<TokenId>(8, 1));
    CheckAllowed(params);
    params.bad_words[5].push_back(1);
    CheckRefused(params, {"bad_words", "1025", "1024"});
    params.bad_words.assign(129, {1});
    CheckRefused(params, {"bad_words", "129", "128"});
    params.bad_words = {{1}, {}};
    CheckRefused(params, {"bad_words[1]", "empty"});
    params.bad_words = {{1}, {2, 100}};
    CheckRefused(params, {"bad_words", "100", "0 .. 99"});
  }

  TEST_CASE("stop strings: empty ones and too many are refused with their index") {
    SequenceParams params;
    params.stop_strings = {"a", ""};
    CheckRefused(params, {"stop_strings[1]", "empty"});
    params.stop_strings.assign(1025, "x");
    CheckRefused(params, {"1025", "1024"});
    params.stop_strings = {std::string(32769, 'x')};
    CheckRefused(params, {"32769", "32768"});
    params.stop_strings = {std::string(32768, 'x')};
    CheckAllowed(params);
  }

  TEST_CASE("processors: at most 8, numbers finite, each parameter once") {
    SequenceParams params;
    params.processors.assign(8, {"scale", {{"by", 2.0}}});
    CheckAllowed(params);
    params.processors.push_back({"scale", {}});
    CheckRefused(params, {"processors", "9", "8"});
    params.processors = {{"scale", {{"by", kNan}}}};
    CheckRefused(params, {"processors.scale.by", "nan"});
    params.processors = {{"scale", {{"by", 1.0}, {"by", 2.0}}}};
    CheckRefused(params, {"processors.scale.by", "twice"});
  }

  TEST_CASE("enumerations: an unknown value is refused with the known ones") {
    SequenceParams params;
    params.verify = VerifyMethod::kBlock;
    CheckAllowed(params);
    params.verify = static_cast<VerifyMethod>(12);
    CheckRefused(params, {"verify = 12", "11 (synthetic)"});
    params = {};
    params.rng = static_cast<Rng>(2);
    CheckRefused(params, {"rng = 2", "1 (sglang)"});
    params = {};
    params.filter_order = static_cast<FilterOrder>(2);
    CheckRefused(params, {"filter_order = 2", "1 (joint)"});
    params = {};
    params.draft.filter_order = static_cast<FilterOrder>(2);
    CheckRefused(params, {"draft_filter_order = 2", "1 (joint)"});
    params = {};
    params.logprobs_mode = static_cast<ScoreMode>(5);
    CheckRefused(params, {"logprobs_mode = 5", "4 (unfiltered_logprobs)"});
  }

  TEST_CASE("a sequence is greedy below 1e-5 or with top_k = 1 (CONTRACT 3)") {
    SequenceParams params;
    CHECK(!IsGreedy(params));
    params.temperature = 1e-5;
    CHECK(!IsGreedy(params));
    params.temperature = 0.99e-5;
    CHECK(IsGreedy(params));
    params.temperature = 1;
    params.top_k = 1;
    CHECK(IsGreedy(params));
    params.top_k = 2;
    CHECK(!IsGreedy(params));
    params.top_k = 0;
    params.draft.top_k = 1;  // The drafter's, not the sequence's.
    CHECK(!IsGreedy(params));
  }

  TEST_CASE("the drafts of a round decide: auto, and chains under the methods of trees") {
    using enum VerifyMethod;
    SequenceParams params;
    CHECK(SequenceMethod(params) == kAuto);
    const DraftShape one_hot;
    const DraftShape drawn{.any_drawn = true};
    const DraftShape tree{.is_tree = true};
    const DraftShape drawn_tree{.any_drawn = true, .is_tree = true};
    CHECK(ResolveMethod(kAuto, one_hot) == kExactMatch);
    CHECK(ResolveMethod(kAuto, drawn) == kBlock);
    CHECK(ResolveMethod(kAuto, tree) == kExactMatch);
    CHECK(ResolveMethod(kAuto, drawn_tree) == kTree);
    for (VerifyMethod method : {kGreedy, kExactMatch, kToken, kBlock, kTargetOnly}) {
      for (const DraftShape& draft : {one_hot, drawn, tree, drawn_tree}) {
        CHECK(ResolveMethod(method, draft) == method);
      }
    }
    // A chain is a tree of width 1.
    for (const DraftShape& draft : {one_hot, drawn}) {
      CHECK(ResolveMethod(kTree, draft) == kToken);
      CHECK(ResolveMethod(kTraversal, draft) == kBlock);
    }
    for (const DraftShape& draft : {tree, drawn_tree}) {
      CHECK(ResolveMethod(kTree, draft) == kTree);
      CHECK(ResolveMethod(kTraversal, draft) == kTraversal);
    }
    params.verify = kToken;
    CHECK(SequenceMethod(params) == kToken);
    params.verify = kExactMatch;
    params.temperature = 0;
    CHECK(SequenceMethod(params) == kGreedy);
  }

  TEST_CASE("the scale is log2(e) / T, divided in double") {
    CHECK(ScaleFor(1) == 1.44269504088896340736f);
    CHECK(ScaleFor(0.5) == 2.88539008177792681472f);
    // log2(e) / 0.9 = 1.602994489876626; a division of floats gives 1.60299456.
    CHECK(ScaleFor(0.9) == 1.602994489876626f);
  }

  TEST_CASE("filters: fixed point top_p, log2 of min_p, top_k off outside 1 .. V - 1") {
    SequenceParams params;
    Filters filters = MakeFilters(params, kVocabSize);
    CHECK(filters.top_p == uint64_t{1} << 53);
    CHECK(filters.top_k == 0);
    CHECK(filters.min_p == -std::numeric_limits<float>::infinity());
    CHECK(!filters.joint);

    params.top_p = 0.5;
    CHECK(MakeFilters(params, kVocabSize).top_p == uint64_t{1} << 52);
    params.top_p = 0.1;  // the double is 3602879701896397 / 2^55
    CHECK(MakeFilters(params, kVocabSize).top_p == 900719925474099);
    params.top_p = 1e-300;  // the shortest prefix still has an id
    CHECK(MakeFilters(params, kVocabSize).top_p == 1);
    params.min_p = 0.25;
    CHECK(MakeFilters(params, kVocabSize).min_p == -2.0f);
    params.min_p = 0.05;
    CHECK(MakeFilters(params, kVocabSize).min_p == -4.32192809488736234787f);
    params.min_p = 1;
    CHECK(MakeFilters(params, kVocabSize).min_p == 0.0f);
    params.filter_order = FilterOrder::kJoint;
    CHECK(MakeFilters(params, kVocabSize).joint);
    for (int64_t top_k : {int64_t{-1}, int64_t{0}, int64_t{100}, int64_t{1} << 40}) {
      params.top_k = top_k;
      CHECK(MakeFilters(params, kVocabSize).top_k == 0);
    }
    params.top_k = 99;
    CHECK(MakeFilters(params, kVocabSize).top_k == 99);
  }

  TEST_CASE("filters: a greedy sequence has none, a drafter's top_k = 1 stays") {
    SequenceParams params;
    params.top_k = 1;
    params.top_p = 0.5;
    params.draft.top_k = 1;
    params.draft.top_p = 0.25;
    const Filters none = MakeFilters(params, kVocabSize);
    CHECK(none.top_k == 0);
    CHECK(none.top_p == kTopPOff);
    const Filters draft = MakeFilters(params.draft, kVocabSize);
    CHECK(draft.top_k == 1);
    CHECK(draft.top_p == uint64_t{1} << 51);
  }

  TEST_CASE("penalties and the score request carry each number to its place") {
    SequenceParams params;
    params.repetition_penalty = 1.5;
    params.frequency_penalty = 0.25;
    params.presence_penalty = -0.5;
    const Penalties penalties = MakePenalties(params);
    CHECK(penalties.repetition == 1.5f);
    CHECK(penalties.frequency == 0.25f);
    CHECK(penalties.presence == -0.5f);

    CHECK(NumScores(MakeScoreRequest(params)) == 0);
    params.logprobs = 0;
    params.logprobs_mode = ScoreMode::kProcessedLogit;
    CHECK(NumScores(MakeScoreRequest(params)) == 1);
    params.logprobs = 5;
    params.logprob_token_ids = {3, 4};
    const ScoreRequest request = MakeScoreRequest(params);
    CHECK(request.mode == ScoreMode::kProcessedLogit);
    CHECK(request.num_top == 5);
    CHECK(request.chosen == params.logprob_token_ids.data());
    CHECK(NumScores(request) == 8);
  }
}

}  // namespace
}  // namespace specd
