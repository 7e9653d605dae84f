// The toy's encoder refuses by name every setting that it cannot honour.
#include "tools/toy_engine/bpe_vocabulary.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tests/tools/tiny_tokenizer.h"

namespace specd::toy {
namespace {

void CheckRefused(const std::string& json, std::string_view field) {
  const absl::StatusOr<BpeVocabulary> vocabulary = ParseVocabulary(json);
  REQUIRE_FALSE(vocabulary.ok());
  const std::string message(vocabulary.status().message());
  CHECK_MESSAGE(message.find(field) != std::string::npos, message);
}

std::string WithMerge(std::string_view merge) {
  std::string json = TinyTokenizer{}.Json();
  json.replace(json.find("\"merges\": []"), 12, fmt::format("\"merges\": [{}]", merge));
  return json;
}

TEST_SUITE("unit") {
  TEST_CASE("the plain file is read") { CHECK(ParseVocabulary(TinyTokenizer{}.Json()).ok()); }

  TEST_CASE("another way to split or normalize is refused") {
    CheckRefused(TinyTokenizer{.normalizer = R"({"type": "NFC"})"}.Json(), "normalizer");
    CheckRefused(TinyTokenizer{.pre_tokenizer = "null"}.Json(), "pre_tokenizer");
    CheckRefused(TinyTokenizer{.pre_tokenizer = R"({"type": "Whitespace"})"}.Json(),
                 "pre_tokenizer");
    CheckRefused(
        TinyTokenizer{.pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": true})"}.Json(),
        "add_prefix_space");
    // The library's default for an absent add_prefix_space is true.
    CheckRefused(TinyTokenizer{.pre_tokenizer = R"({"type": "ByteLevel"})"}.Json(),
                 "add_prefix_space");
    CheckRefused(
        TinyTokenizer{.pre_tokenizer =
                          R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})"}
            .Json(),
        "use_regex");
  }

  TEST_CASE("another kind of BPE is refused") {
    for (const char* option : {"byte_fallback", "ignore_merges"}) {
      CheckRefused(TinyTokenizer{.model_options = fmt::format("\"{}\": true,", option)}.Json(),
                   option);
      CHECK(ParseVocabulary(
                TinyTokenizer{.model_options = fmt::format("\"{}\": false,", option)}.Json())
                .ok());
    }
    CheckRefused(TinyTokenizer{.model_options = R"("dropout": 0.1,)"}.Json(), "dropout");
    CheckRefused(TinyTokenizer{.model_options = R"("end_of_word_suffix": "</w>",)"}.Json(),
                 "end_of_word_suffix");
    CheckRefused(R"({"model": {"type": "WordPiece"}})", "model.type");
  }

  TEST_CASE("a vocabulary with holes in its bytes is refused") {
    CheckRefused(TinyTokenizer{.left_out_byte = 'x'}.Json(), "0x78");
  }

  TEST_CASE("broken merges and ids are refused") {
    CheckRefused(WithMerge(R"(["a", "b"])"), "model.merges[0]");  // "ab" is not in the vocabulary
    CheckRefused(WithMerge(R"("ab")"), "model.merges[0]");
    CheckRefused(WithMerge("7"), "model.merges[0]");
    std::string json = TinyTokenizer{}.Json();
    json.replace(json.find("\"x\": 120"), 8, "\"x\": 1048576");
    CheckRefused(json, "1048575");
    json.replace(json.find("1048576"), 7, "-1");
    CheckRefused(json, "model.vocab[\"x\"]");
  }

  TEST_CASE("what is not JSON, or not there, is refused") {
    CheckRefused("{", "JSON");
    const absl::StatusOr<BpeVocabulary> missing = LoadVocabulary("no/such/tokenizer.json");
    REQUIRE_FALSE(missing.ok());
    CHECK(std::string(missing.status().message()).find("no/such/tokenizer.json") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace specd::toy
