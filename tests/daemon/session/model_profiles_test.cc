#include "daemon/session/model_profiles.h"

#include <doctest/doctest.h>

#include <string>

#include "daemon/models.h"
#include "daemon/profile_flag.h"
#include "ipc/base/error.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("profiles: an engine finds the model that it names, and no other") {
    ModelProfiles models;
    REQUIRE(models.Add("", {.eos_token_ids = {1}}).ok());
    REQUIRE(models.Add("b/two", {.eos_token_ids = {2}}).ok());
    REQUIRE(models.Add("a-1", {.eos_token_ids = {3}}).ok());
    CHECK((*models.Find(""))->profile.eos_token_ids == std::vector<TokenId>{1});
    CHECK((*models.Find("b/two"))->profile.eos_token_ids == std::vector<TokenId>{2});
    CHECK((*models.Find("a-1"))->profile.name == "a-1");
    const absl::Status unknown = models.Find("a").status();
    CHECK(ErrorFieldOf(unknown) == "profile");
    CHECK(Mentions(unknown, "profile = \"a\" is not one of this daemon's (a-1, b/two)"));
    CHECK(Mentions(unknown, "--profile=a=FILE"));
  }

  TEST_CASE("profiles: without flags of one model, engines must name theirs") {
    ModelProfiles models;
    REQUIRE(
        LoadModels({.profiles = {{"m", {}}}, .detokenizer = DetokenizerMode::kOff}, &models).ok());
    CHECK(models.Find("m").ok());
    CHECK(Mentions(models.Find("").status(), "name one of m in specd_options.profile"));

    ModelProfiles both;
    REQUIRE(LoadModels({.model = {.vocab_size = 8},
                        .profiles = {{"m", {}}},
                        .detokenizer = DetokenizerMode::kOff},
                       &both)
                .ok());
    CHECK((*both.Find(""))->profile.vocab_size == 8);
    // A daemon that is told nothing serves ids only, as ever.
    ModelProfiles none;
    REQUIRE(LoadModels({.detokenizer = DetokenizerMode::kOff}, &none).ok());
    CHECK(none.Find("").ok());
    CHECK(Mentions(none.Find("m").status(), "it has none with a name"));
  }

  TEST_CASE("profiles: names are checked, and given once") {
    ModelProfiles models;
    REQUIRE(models.Add("m", {}).ok());
    CHECK(Mentions(models.Add("m", {}), "profile = m is given twice"));
    CHECK(Mentions(models.Add("a,b", {}), "\"a,b\" is no name of a profile"));
    CHECK(Mentions(models.Add(std::string(65, 'a'), {}), "is no name of a profile"));
    CHECK(Mentions(models.Add("bad", {.vocab_size = -1}), "profile = bad: vocab_size = -1"));
    for (size_t i = 1; i < ModelProfiles::kProfilesMax; ++i) {
      REQUIRE(models.Add("m" + std::to_string(i), {}).ok());
    }
    CHECK(Mentions(models.Add("one-more", {}), "more than 64 profiles"));
  }

  TEST_CASE("profiles: a thread for text needs the tokenizer of every model") {
    ModelProfiles models;
    const absl::Status status = LoadModels(
        {.model = {.tokenizer_path = SPECD_TOKENIZER}, .profiles = {{"m", {}}}}, &models);
    CHECK(Mentions(status, "profile = m"));
    CHECK(Mentions(status, "--detokenizer=off"));
    ModelProfiles texts;
    REQUIRE(LoadModels({.profiles = {{"m", {.tokenizer_path = SPECD_TOKENIZER}}}}, &texts).ok());
    const TextVocabularies vocabularies = TextWorkerFor({}, texts, nullptr).vocabularies;
    REQUIRE(vocabularies.size() == 1);
    CHECK(vocabularies.at("m") == &*(*texts.Find("m"))->profile.vocabulary);
  }

  TEST_CASE("profiles: the flag is repeatable, and each has a name and a file") {
    ProfileFlag flag;
    std::string error;
    REQUIRE(AbslParseFlag("a=/nonexistent/a.json,b=/nonexistent/b.json", &flag, &error));
    ProfileFlag later;
    REQUIRE(AbslParseFlag("c=/nonexistent/c.json", &later, &error));
    CHECK(AbslUnparseFlag(later) ==
          "a=/nonexistent/a.json,b=/nonexistent/b.json,c=/nonexistent/c.json");
    std::vector<NamedProfile> profiles;
    CHECK(Mentions(ReadProfiles(later, &profiles), "/nonexistent/a.json: cannot read"));
    for (const char* text : {"m.json", "=m.json", "m="}) {
      CHECK(Mentions(ReadProfiles({{text}}, &profiles), "is not of the form NAME=FILE"));
    }
  }
}

}  // namespace
}  // namespace specd
