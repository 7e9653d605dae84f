#include "speculative/params/param_numbers.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "speculative/params/param_check.h"

namespace specd {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

absl::Status Set(std::string_view name, double value) {
  SequenceParams params;
  return SetNumber(name, value, &params);
}

void CheckRefused(std::string_view name, double value, std::initializer_list<const char*> parts) {
  SequenceParams params;
  const absl::Status status = SetNumber(name, value, &params);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  const std::string text(status.message());
  for (const char* part : parts) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  }
  for (const ParamRow& row : ParamTable()) CHECK(ValueText(row, params) == ValueText(row, {}));
}

TEST_SUITE("unit") {
  TEST_CASE("numbers: every parameter but the seed and the lists is one, and is set by its name") {
    size_t num_numbers = 0;
    for (const ParamRow& row : ParamTable()) {
      CAPTURE(row.field);
      const bool is_list = RangeText(row).starts_with("at most");
      CHECK(IsNumber(row) == (!is_list && row.field != "seed"));
      if (!IsNumber(row)) continue;
      ++num_numbers;
      // 0 and 1 are values of every type, and one of them is no default.
      const double other = NumberOf(row, {}) == 1 ? 0 : 1;
      SequenceParams params;
      REQUIRE(SetNumber(row.field, other, &params).ok());
      CHECK(NumberOf(row, params) == other);
      for (const ParamRow& each : ParamTable()) {
        CHECK((ValueText(each, params) == ValueText(each, {})) == (&each != &row));
      }
    }
    CHECK(num_numbers == 43);
  }

  TEST_CASE("numbers: a member holds the value as it came") {
    SequenceParams params;
    REQUIRE(SetNumber("temperature", 0.1, &params).ok());
    CHECK(params.temperature == 0.1);
    REQUIRE(SetNumber("temperature", kNan, &params).ok());  // ValidateParams refuses it
    CHECK(std::isnan(params.temperature));
    REQUIRE(SetNumber("top_k", -1, &params).ok());
    CHECK(params.top_k == -1);
    REQUIRE(SetNumber("top_k", 9007199254740993.0, &params).ok());
    CHECK(params.top_k == 9007199254740992);  // the literal is this double
    REQUIRE(SetNumber("verify", 3, &params).ok());
    CHECK(params.verify == VerifyMethod::kToken);
    REQUIRE(SetNumber("draft_filter_order", 1, &params).ok());
    CHECK(params.draft.filter_order == FilterOrder::kJoint);
    REQUIRE(SetNumber("thinking_start_id", 2147483647, &params).ok());
    CHECK(params.thinking.start_id == 2147483647);
    REQUIRE(SetNumber("skip_special_tokens", 0, &params).ok());
    CHECK_FALSE(params.skip_special_tokens);
    REQUIRE(SetNumber("draft_edits", 1, &params).ok());
    CHECK(params.draft.edits);
  }

  TEST_CASE("numbers: a value that the member cannot hold is refused with the range") {
    for (const double value : {1.5, kNan, kInf, -kInf, 9223372036854775808.0, 1e300}) {
      CheckRefused("top_k", value, {"top_k = ", "whole number", "-1 or more", "default 0"});
    }
    for (const double value : {0.5, kNan, 2147483648.0, -2147483649.0}) {
      CheckRefused("thinking_start_id", value,
                   {"thinking_start_id = ", "vocab_size", "default -1"});
    }
    for (const double value : {2.0, 0.5, -1.0, kNan}) {
      CheckRefused("ignore_eos", value, {"ignore_eos = ", "0 or 1", "default 0"});
    }
    CheckRefused("skip_special_tokens", 2, {"default 1"});
    for (const double value : {-1.0, 0.5, 4294967296.0, kNan}) {
      CheckRefused("verify", value, {"verify = ", "greedy, exact_match", "default auto"});
    }
    // A value that fits the type is judged with the other values of the sequence.
    SequenceParams params;
    REQUIRE(SetNumber("verify", 12, &params).ok());  // one past synthetic
    CHECK_FALSE(ValidateParams(params, 8).ok());
  }

  TEST_CASE("numbers: a name that is none says what to do") {
    CheckRefused("temprature", 1, {"temprature", "did you mean temperature?"});
    CheckRefused("draft_topk", 1, {"did you mean draft_top_k?"});
    CheckRefused("seed", 1, {"seed", "its own field"});
    CheckRefused("stop_token_ids", 1, {"stop_token_ids", "its own field"});
    for (const std::string& name : {std::string(), std::string("q"), std::string(100000, 't')}) {
      CheckRefused(name, 1, {"is no parameter; docs/PARAMETERS.md"});
      CHECK(Set(name, 1).message().size() < 200);
    }
    const absl::Status peers = Set("max_new_tokens", 5);
    CHECK(peers.code() == absl::StatusCode::kUnimplemented);
    CHECK(std::string(peers.message()).find("max_tokens") != std::string::npos);
    const absl::Status refused = Set("best_of", 2);
    CHECK(refused.code() == absl::StatusCode::kUnimplemented);
    CHECK(std::string(refused.message()).find("cumulative_logprob") != std::string::npos);
  }
}

}  // namespace
}  // namespace specd
