#include "daemon/session/profile_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace specd {
namespace {

using Numbers = NamedNumbers;

void CheckRefused(const std::string& json, std::initializer_list<const char*> parts) {
  CAPTURE(json);
  const absl::StatusOr<ModelProfileOptions> options = ParseProfile(json, "/models/m.json");
  REQUIRE_FALSE(options.ok());
  const std::string text(options.status().message());
  CAPTURE(text);
  CHECK(text.find("/models/m.json: ") == 0);
  for (const char* part : parts) CHECK_MESSAGE(text.find(part) != std::string::npos, part);
}

TEST_SUITE("unit") {
  TEST_CASE("profile file: each key has its place") {
    const auto options = ParseProfile(R"({
      "tokenizer": "t/tokenizer.json", "vocab_size": 151936, "eos_tokens": ["<|im_end|>", "</s>"],
      "eos_token_ids": [2, 7], "reasoning_start": "<think>", "reasoning_end": "</think>",
      "thinking_start_id": 10, "thinking_end_ids": [11, 12], "thinking_newline_id": 13,
      "scale": 0.0625, "cap": 30.5, "grammar_whitespace": "compact", "grammar_in_reasoning": true,
      "grammar_lenient": false, "grammar_key_order": "any"})",
                                      "/models/m.json");
    REQUIRE_MESSAGE(options.ok(), std::string(options.status().message()));
    CHECK(options->tokenizer_path == "/models/t/tokenizer.json");
    CHECK(options->vocab_size == 151936);
    CHECK(options->eos_tokens == std::vector<std::string>{"<|im_end|>", "</s>"});
    CHECK(options->eos_token_ids == std::vector<TokenId>{2, 7});
    CHECK(options->reasoning.start == "<think>");
    CHECK(options->reasoning.end == "</think>");
    CHECK_FALSE(options->reasoning_must_be_added);
    CHECK(options->thinking.start_id == 10);
    CHECK(options->thinking.end_ids == std::vector<TokenId>{11, 12});
    CHECK(options->thinking.newline_id == 13);
    CHECK(options->thinking.budget == -1);
    CHECK(options->scale == 0.0625);
    CHECK(options->cap == 30.5);
    CHECK(options->grammar == Numbers{{"grammar_whitespace", 1},
                                      {"grammar_in_reasoning", 1},
                                      {"grammar_lenient", 0},
                                      {"grammar_key_order", 1}});
    CHECK(ParseProfile("{}", "p")->IsEmpty());
    CHECK(ParseProfile(R"({"tokenizer": "t.json"})", "p.json")->tokenizer_path == "t.json");
    CHECK(ParseProfile(R"({"tokenizer": "/t.json"})", "/a/p.json")->tokenizer_path == "/t.json");
  }

  TEST_CASE("profile file: an unknown key is refused with the nearest name") {
    CheckRefused(R"({"tokeniser": "t.json"})",
                 {"#/tokeniser: ", "did you mean tokenizer?", "thinking_end_ids"});
    CheckRefused(R"({"eos_token_id": [2]})", {"did you mean eos_token_ids?"});
    // Names of vLLM, and a parameter that belongs to a request.
    CheckRefused(R"({"enable_in_reasoning": true})", {"is called grammar_in_reasoning here"});
    // A choice of engines that is not there, also where it names specd's own.
    for (const char* engine : {"xgrammar", "specd", "auto"}) {
      CheckRefused("{\"grammar_backend\": \"" + std::string(engine) + "\"}",
                   {"#/grammar_backend: ", "grammar_backend is refused", "no xgrammar",
                    "leave it out", "grammar_lenient"});
    }
    CheckRefused(R"({"disable_fallback": true})", {"disable_fallback is refused", "leave it out"});
    CheckRefused(R"({"temperature": 0.5})", {"temperature is no key of a model profile"});
    CheckRefused(R"({"vocab_size": 5, "vocab_size": 6})", {"vocab_size"});
    CheckRefused("{\"" + std::string(5000, 'x') + "\": 1}", {"is no key of a model profile"});
  }

  TEST_CASE("profile file: an error has the file and the place") {
    CheckRefused("", {"not JSON"});
    CheckRefused("[]", {"#: a model profile is an object, not an array"});
    CheckRefused(R"({"vocab_size": 5,, })", {"not JSON", "byte 17"});
    CheckRefused(R"({"vocab_size": "5"})", {"#/vocab_size: expected a number, found a string"});
    CheckRefused(R"({"vocab_size": 5.5})", {"#/vocab_size: 5.5 is no integer"});
    CheckRefused(R"({"vocab_size": 4294967296})", {"no integer of 32 bits"});
    CheckRefused(R"({"eos_token_ids": [1, "2"]})", {"#/eos_token_ids/1: expected a number"});
    CheckRefused(R"({"eos_tokens": "</s>"})", {"#/eos_tokens: expected an array"});
    CheckRefused(R"({"eos_tokens": [5]})", {"#/eos_tokens/0: expected a string"});
    CheckRefused(R"({"tokenizer": ""})", {"#/tokenizer: the path is empty"});
    CheckRefused(R"({"scale": 0})", {"#/scale: scale = 0 must be above 0"});
    CheckRefused(R"({"scale": 1e300})", {"scale = 1e300"});
    CheckRefused(R"({"scale": 1e-300})", {"scale = 1e-300"});
    CheckRefused(R"({"cap": -1})", {"#/cap: cap = -1 must be 0 (none) or more"});
    CheckRefused(R"({"grammar_whitespace": "loose"})", {"none of flexible, compact"});
    CheckRefused(R"({"grammar_lenient": 1})", {"#/grammar_lenient: expected a boolean"});
  }

  TEST_CASE("profile file: a reasoning_parser of vLLM stands for its markers") {
    const auto known = ParseProfile(R"({"reasoning_parser": "deepseek_r1"})", "p");
    REQUIRE(known.ok());
    CHECK(known->reasoning.start == "<think>");
    CHECK(known->reasoning.end == "</think>");
    CHECK(known->reasoning_must_be_added);
    // With markers of its own the profile needs nothing of the parser.
    const auto both =
        ParseProfile(R"({"reasoning_end": "</think>", "reasoning_parser": "qwen3"})", "p");
    REQUIRE(both.ok());
    CHECK(both->reasoning.start.empty());
    CHECK_FALSE(both->reasoning_must_be_added);
    CheckRefused(R"({"reasoning_end": "</t>", "reasoning_parser": "qwen3"})",
                 {"stands for </think>, but the profile names </t>"});
    CheckRefused(R"({"reasoning_parser": "qwen4"})",
                 {"qwen4 is not known here; did you mean qwen3?", "reasoning_end"});
  }

  TEST_CASE("profile file: a file that cannot be read is refused by its path") {
    CHECK(std::string(ReadProfileFile("/nonexistent/p.json").status().message()) ==
          "/nonexistent/p.json: cannot read the model profile (No such file or directory); name a "
          "readable JSON file");
    const std::string path = std::filesystem::temp_directory_path() /
                             ("specd_profile_file_test." + std::to_string(::getpid()));
    std::ofstream(path) << R"({"vocab_size": 7})";
    CHECK(ReadProfileFile(path)->vocab_size == 7);
    std::ofstream(path) << std::string(size_t{1} << 17, ' ');
    CHECK(std::string(ReadProfileFile(path).status().message()).find("at most 65536 bytes") !=
          std::string::npos);
    std::remove(path.c_str());
  }
}

}  // namespace
}  // namespace specd
