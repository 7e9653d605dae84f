#include "daemon/session/model_profile.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

// A profile whose model has so many tokens, and these added ones after them.
ModelProfile ProfileOf(TokenId num_model_ids, const std::vector<std::string>& added) {
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < num_model_ids; ++id) builder.Set(id, "a", {});
  TokenId id = num_model_ids;
  for (const std::string& content : added) builder.Set(id++, content, {.added = true});
  ModelProfile profile;
  profile.vocabulary = std::move(builder).Build();
  return profile;
}

TEST_SUITE("unit") {
  TEST_CASE("EOS tokens are looked up among the tokenizer's added tokens") {
    ModelProfileOptions options;
    options.tokenizer_path = SPECD_TOKENIZER;
    options.eos_tokens = {"<|endoftext|>"};
    const auto profile = LoadModelProfile(options);
    REQUIRE(profile.ok());
    REQUIRE(profile->eos_token_ids.size() == 1);
    CHECK(profile->vocabulary->Bytes(profile->eos_token_ids[0]) == "<|endoftext|>");
    options.eos_tokens = {"<|no such token|>"};
    CHECK(Mentions(LoadModelProfile(options).status(), "<|no such token|>"));
    options.tokenizer_path = "";
    CHECK(Mentions(LoadModelProfile(options).status(), "--tokenizer"));
  }

  TEST_CASE("thinking_end_ids spell the reasoning_end, or the profile is refused") {
    ModelProfileOptions options;
    options.tokenizer_path = SPECD_TOKENIZER;
    options.reasoning.end = "<|endoftext|>";
    options.thinking.start_id = 5;
    options.thinking.end_ids = {7, 0};  // id 0 is <|endoftext|>
    const auto profile = LoadModelProfile(options);
    REQUIRE(profile.ok());
    CHECK(profile->thinking.end_ids == std::vector<TokenId>{7, 0});
    options.thinking.end_ids = {7};
    CHECK(Mentions(LoadModelProfile(options).status(), "is not the text of thinking_end_ids"));
    options.reasoning.end.clear();
    CHECK(LoadModelProfile(options).ok());
    options.thinking.end_ids = std::vector<TokenId>(65, 7);
    CHECK(Mentions(LoadModelProfile(options).status(), "at most 64"));
    options.thinking.end_ids = {-2};
    CHECK(Mentions(LoadModelProfile(options).status(), "-2 is outside 0"));
  }

  TEST_CASE("EOS ids may be given by number, without a tokenizer and beside texts") {
    ModelProfileOptions options;
    options.eos_token_ids = {7, 2, 7};
    auto profile = LoadModelProfile(options);
    REQUIRE(profile.ok());
    CHECK(profile->eos_token_ids == std::vector<TokenId>{7, 2});
    CHECK(CheckVocabSize(*profile, 8).ok());
    CHECK(Mentions(CheckVocabSize(*profile, 7), "vocab_size = 7"));
    CHECK(Mentions(CheckVocabSize(*profile, 7), "EOS id 7"));
    options.tokenizer_path = SPECD_TOKENIZER;
    options.eos_tokens = {"<|endoftext|>"};  // id 0
    profile = LoadModelProfile(options);
    REQUIRE(profile.ok());
    CHECK(profile->eos_token_ids == std::vector<TokenId>{7, 2, 0});
    options.eos_token_ids = {-1};
    CHECK(
        Mentions(LoadModelProfile(options).status(), "eos_token_ids: -1 is outside 0 .. 1048575"));
    options = {};
    options.vocab_size = 8;
    options.eos_token_ids = {8};
    CHECK(Mentions(LoadModelProfile(options).status(), "eos_token_ids: 8 is outside 0 .. 7"));
  }

  TEST_CASE("the texts of reasoning need each other's end, a tokenizer, and a sane length") {
    ModelProfileOptions options;
    options.reasoning.end = "</think>";
    CHECK(Mentions(LoadModelProfile(options).status(), "needs a tokenizer"));
    options.tokenizer_path = SPECD_TOKENIZER;
    CHECK(LoadModelProfile(options)->reasoning.end == "</think>");
    options.reasoning.end = std::string(65, 'x');
    CHECK(Mentions(LoadModelProfile(options).status(), "reasoning_end"));
    options.reasoning = {"<think>", ""};
    CHECK(Mentions(LoadModelProfile(options).status(), "needs a reasoning_end"));
  }

  // gpt-oss has 200,019 ids and 201,088 columns, and was refused: only 1,023 columns of padding
  // were allowed.
  TEST_CASE("a row may have any number of columns beyond the ids") {
    const ModelProfile gpt_oss = ProfileOf(200019, {});
    CHECK(CheckVocabSize(gpt_oss, 201088).ok());
    CHECK(CheckVocabSize(ProfileOf(100015, {}), 102400).ok());  // DeepSeek V2
    CHECK(CheckVocabSize(gpt_oss, kVocabSizeMax).ok());
    CHECK(CheckVocabSize(gpt_oss, 200019).ok());
    CHECK(WarnOfUnreachableIds(gpt_oss, 201088).empty());
    CHECK(WarnOfUnreachableIds(gpt_oss, 200019).empty());
  }

  // Gemma 3 1B has 262,144 columns and the added token 262144, and was refused.
  TEST_CASE("added tokens past the columns are named by a warning, model tokens are refused") {
    const ModelProfile gemma = ProfileOf(262144, {"<image_soft_token>"});
    CHECK(CheckVocabSize(gemma, 262144).ok());
    CHECK(WarnOfUnreachableIds(gemma, 262145).empty());
    const std::string warning = WarnOfUnreachableIds(gemma, 262144);
    CHECK(warning ==
          "the tokenizer has 1 ids that are never drawn, because a row has only 262144 columns: "
          "262144 \"<image_soft_token>\"");
    const absl::Status refused = CheckVocabSize(gemma, 262143);
    CHECK(Mentions(refused, "vocab_size = 262143"));
    CHECK(Mentions(refused, "has ids up to 262143, so 262144 columns or more fit"));
    CHECK(Mentions(refused, "the daemon's --tokenizer"));
    const std::vector<std::string> pads(20, "[PAD]\n");
    const std::string many = WarnOfUnreachableIds(ProfileOf(4, pads), 4);
    CHECK(many.find("20 ids") != std::string::npos);
    CHECK(many.find("11 \"[PAD]\\n\", ...") != std::string::npos);
    CHECK(many.find("12 ") == std::string::npos);
    // An id that ends outputs must be one that can be drawn.
    ModelProfile ending = ProfileOf(4, {"<end>"});
    ending.eos_token_ids = {4};
    CHECK(Mentions(CheckVocabSize(ending, 4), "EOS id 4"));
  }

  TEST_CASE("errors of an embedded engine name its options, those of a daemon its flags") {
    ModelProfile profile = ProfileOf(8, {});
    profile.embedded = true;
    CHECK(Mentions(CheckVocabSize(profile, 7), "the model of tokenizer has ids up to 7"));
    profile.vocab_size = 9;
    CHECK(Mentions(CheckVocabSize(profile, 8), "the profile_file has vocab_size = 9"));
    ModelProfileOptions options;
    for (const bool embedded : {false, true}) {
      options = {.eos_tokens = {"<end>"}, .embedded = embedded};
      const absl::Status no_eos = LoadModelProfile(options).status();
      options = {.reasoning = {"", "</think>"}, .embedded = embedded};
      const absl::Status no_text = LoadModelProfile(options).status();
      for (const absl::Status& status : {no_eos, no_text}) {
        CHECK(Mentions(status, embedded ? "give tokenizer" : "give --tokenizer"));
        CHECK(Mentions(status, "--") == !embedded);
      }
    }
  }

  TEST_CASE("a stated width must be met exactly and hold the tokenizer") {
    ModelProfileOptions options;
    options.vocab_size = 32000;
    const auto ids_only = LoadModelProfile(options);
    REQUIRE(ids_only.ok());
    CHECK(CheckVocabSize(*ids_only, 32000).ok());
    CHECK(Mentions(CheckVocabSize(*ids_only, 31999), "32000"));
    options.tokenizer_path = SPECD_TOKENIZER;
    options.vocab_size = 100;
    CHECK(Mentions(LoadModelProfile(options).status(), "vocab_size = 100"));
    options.vocab_size = -1;
    CHECK(Mentions(LoadModelProfile(options).status(), "0 .. 1048576"));
    options.vocab_size = 0;
    options.tokenizer_path = "/nonexistent/tokenizer.json";
    CHECK(Mentions(LoadModelProfile(options).status(), "/nonexistent/tokenizer.json"));
  }

  TEST_CASE("an engine with another tokenizer is refused, with both hashes") {
    ModelProfileOptions options;
    options.tokenizer_path = SPECD_TOKENIZER;
    auto profile = LoadModelProfile(options);
    REQUIRE(profile.ok());
    const uint64_t own = profile->tokenizer_hash;
    CHECK(own == profile->vocabulary->Hash());
    CHECK(CheckTokenizer(*profile, own).ok());
    CHECK(CheckTokenizer(*profile, 0).ok());  // the engine names none
    const absl::Status refused = CheckTokenizer(*profile, 0xab);
    CHECK(ErrorCodeOf(refused) == SPECD_ERROR_VOCABULARY);
    CHECK(ErrorFieldOf(refused) == "tokenizer");
    CHECK(Mentions(refused, "hash 00000000000000ab"));
    CHECK(Mentions(refused, fmt::format("that of the daemon has {:016x}", own)));
    CHECK(Mentions(refused, "start the daemon with the tokenizer.json"));
    profile->name = "qwen";
    CHECK(Mentions(CheckTokenizer(*profile, 0xab), "profile \"qwen\""));
    const auto ids_only = LoadModelProfile({});
    REQUIRE(ids_only.ok());
    CHECK(ids_only->tokenizer_hash == 0);
    CHECK(CheckTokenizer(*ids_only, 0xab).ok());
  }

  TEST_CASE("without a tokenizer any width is served") {
    const auto profile = LoadModelProfile({});
    REQUIRE(profile.ok());
    CHECK(CheckVocabSize(*profile, 1).ok());
    CHECK(CheckVocabSize(*profile, 262144).ok());
  }
}

}  // namespace
}  // namespace specd
