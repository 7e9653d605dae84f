#include "speculative/params.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

namespace specd {
namespace {

// A refusal must name the field, the value and the range; `parts` are what has to stand in it.
void CheckRefused(const SequenceParams& params, std::initializer_list<const char*> parts) {
  const absl::Status status = ValidateParams(params, 100);
  REQUIRE(!status.ok());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  const std::string text(status.message());
  for (const char* part : parts) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_SUITE("unit") {
  TEST_CASE("the defaults are valid and agree with the table") {
    const SequenceParams params;
    CHECK(ValidateParams(params, 100).ok());
    CHECK(ParamTable()[0].default_value == params.temperature);
    CHECK(ParamTable()[1].default_value == params.draft_temperature);
    CHECK(ParamTable()[2].default_value == static_cast<double>(params.max_tokens));
  }

  TEST_CASE("numbers: the ends of each range are allowed, one step outside is refused by name") {
    SequenceParams params;
    params.temperature = 0;
    CHECK(ValidateParams(params, 100).ok());
    params.temperature = 2;
    CHECK(ValidateParams(params, 100).ok());
    params.temperature = std::nextafter(2.0, 3.0);
    CheckRefused(params, {"temperature", "0 .. 2"});
    params.temperature = -0.5;
    CheckRefused(params, {"temperature", "-0.5", "0 .. 2"});
    params.temperature = std::numeric_limits<double>::quiet_NaN();
    CheckRefused(params, {"temperature", "nan"});
    params.temperature = 1;
    params.draft_temperature = 0;
    CheckRefused(params, {"draft_temperature", "1e-05 .. 2"});
    params.draft_temperature = 1;
    params.max_tokens = 0;
    CheckRefused(params, {"max_tokens", "0", "1 .. 2147483647"});
    params.max_tokens = 2147483648;
    CheckRefused(params, {"max_tokens"});
  }

  TEST_CASE("stop ids must lie inside the vocabulary") {
    SequenceParams params;
    params.stop_token_ids = {0, 99};
    CHECK(ValidateParams(params, 100).ok());
    params.stop_token_ids = {100};
    CheckRefused(params, {"stop_token_ids", "100", "0 .. 99"});
    params.stop_token_ids = {-1};
    CheckRefused(params, {"stop_token_ids", "-1"});
    params.stop_token_ids.assign(65, 1);
    CheckRefused(params, {"stop_token_ids", "65", "64"});
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
    CHECK(ValidateParams(params, 100).ok());
  }

  TEST_CASE("a method that contradicts the temperature is refused, not bent") {
    SequenceParams params;
    params.verify = VerifyMethod::kGreedy;
    CheckRefused(params, {"greedy", "temperature = 1"});
    params.temperature = 0;
    CHECK(ValidateParams(params, 100).ok());
    params.verify = VerifyMethod::kToken;
    CheckRefused(params, {"token", "temperature = 0"});
    params.verify = static_cast<VerifyMethod>(9);
    CheckRefused(params, {"verify = 9"});
  }

  TEST_CASE("temperature below 1e-5 is greedy, at 1e-5 it is not (CONTRACT 3)") {
    SequenceParams params;
    params.temperature = 1e-5;
    CHECK(ResolveMethod(params) == VerifyMethod::kExactMatch);
    params.temperature = 0.99e-5;
    CHECK(ResolveMethod(params) == VerifyMethod::kGreedy);
    params.verify = VerifyMethod::kExactMatch;
    CHECK(ResolveMethod(params) == VerifyMethod::kGreedy);
    params.temperature = 1;
    params.verify = VerifyMethod::kToken;
    CHECK(ResolveMethod(params) == VerifyMethod::kToken);
  }
}

}  // namespace
}  // namespace specd
