#include "daemon/session/profile_defaults.h"

#include <doctest/doctest.h>

#include "daemon/session/open_request.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

ModelProfile Profile() {
  ModelProfile profile;
  profile.thinking.start_id = 10;
  profile.thinking.end_ids = {11, 12};
  profile.thinking.newline_id = 13;
  profile.scale = 0.5;
  profile.cap = 30;
  profile.grammar = {{"grammar_whitespace", 1}, {"grammar_lenient", 1}};
  return profile;
}

SequenceParams Applied(const OpenSequenceRequest& request) {
  absl::StatusOr<OpenRequest> open = ReadOpenRequest(request, UniqueFd());
  REQUIRE_MESSAGE(open.ok(), std::string(open.status().message()));
  ApplyProfile(Profile(), request, &open->params);
  return open->params;
}

TEST_SUITE("unit") {
  TEST_CASE("profile: a thinking budget without ids has those of the model") {
    OpenSequenceRequest request;
    request.numbers = {{"thinking_budget", 5}};
    const SequenceParams params = Applied(request);
    CHECK(params.thinking.budget == 5);
    CHECK(params.thinking.start_id == 10);
    CHECK(params.thinking.end_ids == std::vector<TokenId>{11, 12});
    CHECK(params.thinking.newline_id == 13);
    // Without a budget there is nothing to end, and ids would be refused.
    CHECK(Applied({}).thinking.end_ids.empty());
    // An opening that names an id or a preset speaks for all of them.
    request.numbers = {{"thinking_budget", 5}, {"thinking_start_id", 1}};
    CHECK(Applied(request).thinking.start_id == 1);
    CHECK(Applied(request).thinking.end_ids.empty());
    request.numbers = {{"thinking_budget", 5}};
    request.thinking_preset = "qwen3";
    CHECK(Applied(request).thinking.start_id > 13);
  }

  TEST_CASE(
      "profile: a constraint has the defaults of the model, unless the opening names others") {
    OpenSequenceRequest request;
    request.numbers = {{"grammar_kind", SPECD_GRAMMAR_JSON_OBJECT}};
    SequenceParams params = Applied(request);
    CHECK(params.grammar_whitespace == grammar::Whitespace::kCompact);
    CHECK(params.grammar_lenient);
    request.numbers.emplace_back("grammar_whitespace", SPECD_WHITESPACE_FLEXIBLE);
    params = Applied(request);
    CHECK(params.grammar_whitespace == grammar::Whitespace::kFlexible);
    CHECK(params.grammar_lenient);
    // Without a constraint they would be numbers without a use.
    CHECK(Applied({}).grammar_whitespace == grammar::Whitespace::kFlexible);
  }

  TEST_CASE("profile: logits that name neither scale nor cap have those of the model") {
    const ModelProfile profile = Profile();
    CHECK(WithProfile(profile, {}).scale == 0.5);
    CHECK(WithProfile(profile, {}).cap == 30);
    CHECK(WithProfile(profile, {.scale = 2}).scale == 2);
    CHECK(WithProfile(profile, {.scale = 2}).cap == 0);
    CHECK(WithProfile(profile, {.cap = 5}).scale == 1);
    CHECK(WithProfile(profile, {.kind = SPECD_PROBABILITIES}).scale == 1);
  }
}

}  // namespace
}  // namespace specd
