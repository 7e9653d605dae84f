#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "detokenizer/text_stream.h"
#include "detokenizer/tokenizer_file.h"

namespace specd {
namespace {

// The parts of a file; each test replaces what it is about.
struct File {
  std::string version = R"("1.0")";
  std::string added_tokens = "[]";
  std::string decoder = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true})";
  std::string model_type = R"("type":"BPE",)";
  std::string vocab = R"({"a":0,"Ġb":1})";

  std::string Json() const {
    return R"({"version":)" + version + R"(,"truncation":null,"padding":null,"added_tokens":)" +
           added_tokens + R"(,"normalizer":null,"decoder":)" + decoder + R"(,"model":{)" +
           model_type + R"("dropout":null,"vocab":)" + vocab + R"(,"merges":[]}})";
  }
};

std::string Added(int id, const std::string& content, bool special) {
  return R"({"id":)" + std::to_string(id) + R"(,"content":")" + content +
         R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)" +
         (special ? "true" : "false") + "}";
}

Vocabulary Parse(const std::string& json) {
  auto vocabulary = ParseTokenizerJson(json, "model/tokenizer.json");
  INFO(vocabulary.status().ToString());
  REQUIRE(vocabulary.ok());
  return *std::move(vocabulary);
}

// The file must be refused, and the message must hold the file's name and all of `parts`: field,
// value and remedy.
void CheckRefused(const std::string& json, absl::StatusCode code,
                  const std::vector<std::string>& parts) {
  const auto vocabulary = ParseTokenizerJson(json, "model/tokenizer.json");
  REQUIRE_FALSE(vocabulary.ok());
  const std::string message(vocabulary.status().message());
  CAPTURE(message);
  CHECK(vocabulary.status().code() == code);
  CHECK(message.find("model/tokenizer.json: ") == 0);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

constexpr char kStripOne[] = R"(,{"type":"Strip","content":" ","start":1,"stop":0})";

// As Llama 2 writes it (with kStripOne) and Gemma (without).
File SentencePiece(const std::string& strip) {
  return {.added_tokens = "[" + Added(10, "▁▁▁", false) + "," + Added(11, "<s>", true) + "]",
          .decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
                     R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"})" +
                     strip + "]}",
          .vocab = R"({"a":0,"▁b":1,"▁▁":2,"<0xE4>":3,"<0x0A>":4,"<0x00>":5,"<0xZZ>":6,)"
                   R"("<0x041>":7,"<0xab>":8})"};
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("tokenizer.json: vocabulary, added tokens and holes") {
    const Vocabulary vocabulary = Parse(
        File{.added_tokens = "[" + Added(7, "<eos>", true) + "," + Added(5, "<think>", false) + "]"}
            .Json());
    CHECK(vocabulary.size() == 8);
    CHECK(vocabulary.Bytes(0) == "a");
    CHECK(vocabulary.Bytes(1) == " b");
    CHECK(vocabulary.Bytes(5) == "<think>");
    CHECK(vocabulary.IsAdded(5));
    CHECK_FALSE(vocabulary.IsSpecial(5));
    CHECK(vocabulary.IsSpecial(7));
    CHECK(vocabulary.FindAdded("<eos>") == 7);
    for (const TokenId hole : {2, 3, 4, 6, 8}) CHECK_FALSE(vocabulary.Contains(hole));
  }

  TEST_CASE("tokenizer.json: tokens decode as in the test of HF ByteLevel") {
    const Vocabulary vocabulary = Parse(
        File{.vocab = R"({"Hello":0,"Ġthere":1,"Ġdear":2,"Ġfriend!":3,"Ġ":4,"[PA D]":5})"}.Json());
    TextStream stream(&vocabulary, nullptr, {});
    TextChunk chunk;
    for (TokenId id = 0; id < 6; ++id) stream.Push(id, false, &chunk);
    CHECK(chunk.text == "Hello there dear friend! [PA D]");
  }

  TEST_CASE("tokenizer.json: added tokens are literal, not mapped (HF #1392 #1915 #1996)") {
    const std::vector<std::string> contents = {"ilÖveyou", "đem", "č", "嗎", "д", "a b", "Ġ"};
    std::string added_tokens;
    for (size_t i = 0; i < contents.size(); ++i) {
      added_tokens +=
          (i == 0 ? "[" : ",") + Added(static_cast<int>(10 + i), contents[i], i % 2 == 0);
    }
    const Vocabulary vocabulary = Parse(File{.added_tokens = added_tokens + "]"}.Json());
    for (size_t i = 0; i < contents.size(); ++i) {
      CHECK(vocabulary.Bytes(static_cast<TokenId>(10 + i)) == contents[i]);
    }
  }

  TEST_CASE("tokenizer.json: an added token that also stands in the model is literal") {
    // U+00E9 is the byte E9 in the map, so the model's entry alone would decode to a lone byte.
    const File file{.added_tokens = "[" + Added(2, "é", true) + "]",
                    .vocab = R"({"a":0,"Ġb":1,"é":2})"};
    const Vocabulary vocabulary = Parse(file.Json());
    CHECK(vocabulary.Bytes(2) == "é");
    CHECK(vocabulary.IsSpecial(2));
    CHECK(vocabulary.size() == 3);
  }

  TEST_CASE(
      "tokenizer.json: a model entry written like a special token is special (HF is_special)") {
    const File file{.added_tokens = "[" + Added(9, "<s>", true) + "]",
                    .vocab = R"({"a":0,"<s>":1})"};
    const Vocabulary vocabulary = Parse(file.Json());
    CHECK(vocabulary.IsSpecial(1));
    CHECK_FALSE(vocabulary.IsAdded(1));
    CHECK_FALSE(vocabulary.IsSpecial(0));
  }

  TEST_CASE("tokenizer.json: the variants of a byte-level file are read") {
    const std::string one = R"({"type":"Sequence","decoders":[{"type":"ByteLevel"}]})";
    CHECK(Parse(File{.decoder = one}.Json()).Bytes(1) == " b");
    // The file of GPT-2 has no model.type and is known by its merges.
    CHECK(Parse(File{.model_type = ""}.Json()).Bytes(1) == " b");
    CHECK(Parse(File{.added_tokens = "null"}.Json()).size() == 2);
    // The same added token twice says nothing new.
    const std::string twice = "[" + Added(3, "<s>", true) + "," + Added(3, "<s>", true) + "]";
    CHECK(Parse(File{.added_tokens = twice}.Json()).IsSpecial(3));
    CHECK(Parse(File{.vocab = R"({"last":1048575})"}.Json()).size() == 1048576);
  }

  TEST_CASE("tokenizer.json: the order of the fields does not matter") {
    const Vocabulary vocabulary =
        Parse(R"({"model":{"vocab":{"é":1},"merges":[],"type":"BPE"},"decoder":{"type":"ByteLevel"},
                  "added_tokens":[)" +
              Added(1, "é", false) + R"(],"version":"1.0"})");
    CHECK(vocabulary.Bytes(1) == "é");
  }

  TEST_CASE("tokenizer.json: what is not JSON is refused with its cause and remedy") {
    const std::string json = File().Json();
    CheckRefused("", kInvalid, {"empty", "download it again"});
    CheckRefused(" \n", kInvalid, {"empty"});
    CheckRefused("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", kInvalid,
                 {"Git LFS pointer", "git lfs pull"});
    CheckRefused("\x0A\x08\xFFmodel", kInvalid,
                 {"not a JSON object", "\\x08\\xff", "tokenizer.json"});
    CheckRefused("[1]", kInvalid, {"not a JSON object", "[1]"});
    CheckRefused(
        json.substr(0, json.size() / 2), kInvalid,
        {"cut short", std::to_string(json.size() / 2) + " bytes", "download the file again"});
    CheckRefused(R"({"version":"1.0",})", kInvalid, {"not valid JSON", "download it again"});
    CheckRefused(File{.vocab = "{\"\xFF\":0}"}.Json(), kInvalid, {"not valid JSON", "UTF-8"});
  }

  TEST_CASE("tokenizer.json: every truncation is refused") {
    const std::string json = File{.added_tokens = "[" + Added(7, "<eos>", true) + "]"}.Json();
    for (size_t size = 0; size < json.size(); ++size) {
      CAPTURE(size);
      CHECK_FALSE(ParseTokenizerJson(json.substr(0, size), "x").ok());
    }
  }

  TEST_CASE("tokenizer.json: another version is refused") {
    CheckRefused(File{.version = R"("2.0")"}.Json(), kUnsupported,
                 {"version is \"2.0\"", "supported is \"1.0\"", "save the tokenizer again"});
    CheckRefused(File{.version = "1.0"}.Json(), kUnsupported, {"version is 1.0, supported"});
    CheckRefused(R"({"decoder":null})", kInvalid, {"version is missing", "tokenizer.json"});
  }

  TEST_CASE("tokenizer.json: every other decoder is refused by its name") {
    const std::string remedy = "take the token ids from the token events";
    const std::string supported = "a decoder of ByteLevel, ByteFallback, Replace";
    CheckRefused(File{.decoder = R"({"type":"CTC"})"}.Json(), kUnsupported,
                 {"decoder.type is \"CTC\"", supported, remedy});
    CheckRefused(File{.decoder = R"({"add_prefix_space":true})"}.Json(), kUnsupported,
                 {"decoder.type is missing", supported});
    CheckRefused(File{.decoder = R"({"type":7})"}.Json(), kUnsupported, {"decoder.type is 7"});
    CheckRefused(File{.decoder = R"({"type":"Sequence"})"}.Json(), kInvalid,
                 {"decoder.decoders is missing", "download the file again"});
  }

  TEST_CASE("tokenizer.json: SentencePiece's pieces are spaces, bytes and text") {
    const File file = SentencePiece(kStripOne);
    const Vocabulary vocabulary = Parse(file.Json());
    CHECK(vocabulary.Bytes(0) == "a");
    CHECK(vocabulary.Bytes(1) == " b");
    CHECK(vocabulary.Bytes(2) == "  ");
    CHECK(vocabulary.Bytes(3) == "\xE4");
    CHECK(vocabulary.Bytes(4) == "\n");
    CHECK(vocabulary.Bytes(5) == std::string(1, '\0'));
    CHECK(vocabulary.Bytes(6) == "<0xZZ>");
    CHECK(vocabulary.Bytes(7) == "<0x041>");
    CHECK(vocabulary.Bytes(8) == "\xAB");
    // Gemma adds its runs of spaces; the decoder reads added tokens as it reads others.
    CHECK(vocabulary.Bytes(10) == "   ");
    CHECK(vocabulary.Bytes(11) == "<s>");
    CHECK(vocabulary.IsSpecial(11));
    CHECK(vocabulary.FindAdded("<s>") == 11);
    CHECK(vocabulary.text_rules().stripped_spaces == 1);
    CHECK(vocabulary.text_rules().replacement == Utf8Replacement::kByte);
    CHECK(Parse(SentencePiece("").Json()).text_rules().stripped_spaces == 0);
    CHECK(Parse(File{}.Json()).text_rules().replacement == Utf8Replacement::kSubpart);
  }

  TEST_CASE("tokenizer.json: the pieces of a Unigram model have their index as id") {
    File file = SentencePiece(kStripOne);
    file.model_type = R"("type":"Unigram","unk_id":0,)";
    file.vocab = R"([["<unk>",0.0],["▁a",-1.5],["<0x41>",-2]])";
    file.added_tokens = "[" + Added(0, "<unk>", true) + "," + Added(7, "<s>", true) + "]";
    const Vocabulary vocabulary = Parse(file.Json());
    CHECK(vocabulary.size() == 8);
    CHECK(vocabulary.IsSpecial(0));
    CHECK(vocabulary.Bytes(1) == " a");
    CHECK(vocabulary.Bytes(2) == "A");
    file.added_tokens = "[]";
    file.vocab = R"([["a",0],"b"])";
    CheckRefused(file.Json(), kInvalid, {"model.vocab[1] is \"b\"", "a pair"});
    file.vocab = R"([["a",0],["b",0]])";
    file.added_tokens = "[" + Added(1, "c", false) + "]";
    CheckRefused(file.Json(), kInvalid, {"model.vocab[\"b\"] is 1", "stands for \"c\""});
  }

  TEST_CASE("tokenizer.json: every other model is refused by its name") {
    // A decoder does not depend on the model.
    for (const std::string type : {"WordPiece", "WordLevel"}) {
      CHECK(Parse(File{.model_type = R"("type":")" + type + R"(",)"}.Json()).Bytes(1) == " b");
    }
    CheckRefused(File{.model_type = R"("type":"Other",)"}.Json(), kUnsupported,
                 {"model.type is \"Other\"", "WordPiece or WordLevel model", "token events"});
    CheckRefused(File{.model_type = R"("type":"Unigram",)"}.Json(), kInvalid,
                 {"model.vocab is missing or not an array of pieces"});
    CheckRefused(R"({"version":"1.0","decoder":{"type":"ByteLevel"},"model":{"vocab":{"a":0}}})",
                 kUnsupported, {"model.type is missing", "merges"});
    CheckRefused(R"({"version":"1.0","decoder":{"type":"ByteLevel"}})", kInvalid,
                 {"model is missing", "download the file again"});
    CheckRefused(File{.vocab = R"([["a",0.0]])"}.Json(), kInvalid,
                 {"model.vocab is missing or not an object"});
  }

  TEST_CASE("tokenizer.json: ids outside 0..2^20-1 are refused") {
    for (const std::string id :
         {"-1", "1048576", "4294967296", "18446744073709551615", "1.5", "\"7\"", "null"}) {
      CheckRefused(File{.vocab = R"({"a":0,"Ġtoken":)" + id + "}"}.Json(), kInvalid,
                   {"model.vocab[\"Ġtoken\"] is " + id, "0..1048575", "mend the id"});
      CheckRefused(
          File{.added_tokens = R"([{"id":)" + id + R"(,"content":"x","special":true}])"}.Json(),
          kInvalid, {"added_tokens[0].id is " + id, "0..1048575", "mend the id"});
    }
  }

  TEST_CASE("tokenizer.json: one id for two tokens is refused with both") {
    CheckRefused(File{.vocab = R"({"first":4,"second":4})"}.Json(), kInvalid,
                 {"model.vocab[\"second\"] is 4", "stands for \"first\"", "an id of its own"});
    CheckRefused(File{.added_tokens = "[" + Added(1, "<eos>", true) + "]"}.Json(), kInvalid,
                 {"model.vocab[\"Ġb\"] is 1", "stands for \"<eos>\"", "an id of its own"});
    CheckRefused(
        File{.added_tokens = "[" + Added(9, "<x>", true) + "," + Added(9, "<y>", true) + "]"}
            .Json(),
        kInvalid, {"added_tokens[1].id is 9", "\"<y>\"", "\"<x>\"", "an id of its own"});
    CheckRefused(
        File{.added_tokens = "[" + Added(9, "<x>", true) + "," + Added(9, "<x>", false) + "]"}
            .Json(),
        kInvalid, {"added_tokens[1].special is false", "\"<x>\"", "says true"});
  }

  TEST_CASE("tokenizer.json: incomplete added tokens are refused with field and remedy") {
    const auto refused = [](const std::string& added_tokens,
                            const std::vector<std::string>& parts) {
      CheckRefused(File{.added_tokens = added_tokens}.Json(), kInvalid, parts);
    };
    refused(R"([{"content":"x","special":true}])", {"added_tokens[0].id is missing", "download"});
    refused(R"([{"id":3,"special":true}])", {"added_tokens[0].content is missing", "download"});
    refused(R"([{"id":3,"content":5,"special":true}])",
            {"added_tokens[0].content", "not a string"});
    refused(R"([{"id":3,"content":"x"}])", {"added_tokens[0].special is missing", "add it"});
    refused("{}", {"added_tokens is an object", "expected an array"});
    refused("[3]", {"added_tokens[0].id is missing"});
  }

  TEST_CASE("tokenizer.json: a token that is too long is refused and a long value is shortened") {
    const std::string longest(65535, 'x');
    CHECK(Parse(File{.vocab = R"({")" + longest + R"(":0})"}.Json()).Bytes(0) == longest);
    CheckRefused(File{.vocab = R"({")" + longest + R"(y":0})"}.Json(), kInvalid,
                 {"model.vocab", "65536 bytes", "0..65535"});
    CheckRefused(File{.added_tokens = "[" + Added(3, longest + "y", true) + "]"}.Json(), kInvalid,
                 {"added_tokens[0].content", "65536 bytes", "0..65535"});

    // Shortened to at most 60 bytes, which would cut the twentieth character.
    std::string shown = "x";
    for (int i = 0; i < 19; ++i) shown += "語";
    CheckRefused(File{.vocab = R"({")" + shown + R"(語語":-1})"}.Json(), kInvalid,
                 {"[\"" + shown + "...\"]"});
  }
}

}  // namespace specd
