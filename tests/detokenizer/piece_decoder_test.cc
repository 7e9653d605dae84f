// The decoders of a tokenizer.json, on the examples of Hugging Face's own tests of decoders.
// Trained models are compared with Hugging Face in tests/oracle/decoder_oracle.py.
#include "detokenizer/piece_decoder.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "detokenizer/text_stream.h"
#include "detokenizer/tokenizer_file.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

absl::StatusOr<Vocabulary> Read(const std::string& decoder,
                                const std::vector<std::string>& pieces) {
  std::string vocab;
  for (size_t i = 0; i < pieces.size(); ++i) {
    vocab += (i == 0 ? "\"" : ",\"") + pieces[i] + "\":" + std::to_string(i);
  }
  return ParseTokenizerJson(R"({"version":"1.0","added_tokens":[],"decoder":)" + decoder +
                                R"(,"model":{"type":"WordPiece","vocab":{)" + vocab + "}}}",
                            "file");
}

// The text of each piece, after a prompt of the first `num_prompt`.
std::string Text(const std::string& decoder, const std::vector<std::string>& pieces,
                 size_t num_prompt = 0) {
  const auto vocabulary = Read(decoder, pieces);
  REQUIRE_MESSAGE(vocabulary.ok(), vocabulary.status().ToString());
  TextStream stream(&*vocabulary, nullptr, {});
  std::vector<TokenId> prompt;
  for (size_t i = 0; i < num_prompt; ++i) prompt.push_back(static_cast<TokenId>(i));
  stream.Prime(prompt, {});
  TextChunk chunk;
  for (size_t i = num_prompt; i < pieces.size(); ++i) {
    stream.Push(static_cast<TokenId>(i), false, &chunk);
  }
  stream.Finish(TextEnd::kFlush, &chunk);
  return chunk.text;
}

std::string Sequence(const std::string& steps) {
  return R"({"type":"Sequence","decoders":[)" + steps + "]}";
}

std::string ErrorOf(const std::string& decoder, const std::vector<std::string>& pieces = {"a"}) {
  const auto vocabulary = Read(decoder, pieces);
  REQUIRE_FALSE(vocabulary.ok());
  CHECK(vocabulary.status().code() == absl::StatusCode::kUnimplemented);
  return std::string(vocabulary.status().message());
}

const std::string kMark = R"({"type":"Replace","pattern":{"String":"▁"},"content":" "})";
const std::string kFallback = R"({"type":"ByteFallback"})";
const std::string kFuse = R"({"type":"Fuse"})";

std::string Strip(const std::string& content, int start, int stop) {
  return R"({"type":"Strip","content":")" + content + R"(","start":)" + std::to_string(start) +
         R"(,"stop":)" + std::to_string(stop) + "}";
}

std::string Metaspace(const std::string& fields) {
  return R"({"type":"Metaspace","replacement":"▁")" + fields + "}";
}

TEST_SUITE("unit") {
  TEST_CASE("Metaspace: the first piece has no space, whatever the scheme but never") {
    const std::vector<std::string> pieces = {"▁Hey", "▁friend!"};
    for (const char* fields : {"", R"(,"prepend_scheme":"always")", R"(,"prepend_scheme":"first")",
                               R"(,"add_prefix_space":true)"}) {
      CHECK(Text(Metaspace(fields), pieces) == "Hey friend!");
      CHECK(Text(Metaspace(fields), pieces, 1) == " friend!");
      // All marks of the first piece go, and the second piece keeps its own.
      CHECK(Text(Metaspace(fields), {"▁▁a▁", "▁", "b"}) == "a b");
      CHECK(Text(Metaspace(fields), {"▁", "▁b"}) == " b");
    }
    for (const char* fields : {R"(,"prepend_scheme":"never")", R"(,"add_prefix_space":false)",
                               R"(,"add_prefix_space":true,"prepend_scheme":"never")"}) {
      CHECK(Text(Metaspace(fields), pieces) == " Hey friend!");
    }
    CHECK(
        Mentions(ErrorOf(Metaspace(R"(,"prepend_scheme":"last")")), "prepend_scheme is \"last\""));
    CHECK(Mentions(ErrorOf(Metaspace(R"(,"add_prefix_space":false,"prepend_scheme":"first")")),
                   "prepend_scheme is \"first\", but add_prefix_space is false"));
    CHECK(Mentions(ErrorOf(R"({"type":"Metaspace","replacement":"__"})"), "replacement is \"__\""));
  }

  TEST_CASE("Metaspace: only marks go, and a byte piece ends the front") {
    const std::string decoder = Sequence(kFallback + "," + Metaspace(""));
    CHECK(Text(decoder, {"▁a b", "▁c"}) == "a b c");
    CHECK(Text(decoder, {"<0xC3>", "<0xA9>", "▁c"}) == "é c");
    CHECK(Text(decoder, {"<0x20>", "▁c"}) == "  c");
  }

  TEST_CASE("WordPiece: a piece without the prefix begins a word, unless it is the first") {
    const std::string decoder = R"({"type":"WordPiece","prefix":"##","cleanup":false})";
    const std::vector<std::string> pieces = {"##uelo", "Ara", "##új", "##o", "No", "##guera"};
    CHECK(Text(decoder, pieces) == "##uelo Araújo Noguera");
    CHECK(Text(decoder, pieces, 1) == " Araújo Noguera");
    CHECK(Text(decoder, {"##", "a"}) == "## a");
    const std::string clean = R"({"type":"WordPiece","prefix":"##","cleanup":true})";
    CHECK(Text(clean, {"it", "'s", ",", "I", "do not", "."}) == "it's, I don't.");
    CHECK(Text(decoder, {"it", "'s"}) == "it 's");
  }

  TEST_CASE("BPEDecoder: the last token loses the space that its suffix is") {
    const std::string decoder = R"({"type":"BPEDecoder","suffix":"</w>"})";
    CHECK(Text(decoder, {"a", "b</w>", "c</w>"}) == "ab c");
    CHECK(Text(decoder, {"a", "b</w>", "c"}, 2) == " c");
    CHECK(Text(decoder, {"b</w>", "</w>", "c"}) == "b  c");
    CHECK(Text(decoder, {"b</w>"}, 1).empty());
    CHECK(Mentions(ErrorOf(decoder, {"a</w>b"}),
                   "the token \"a</w>b\" has the suffix \"</w>\" inside"));
    CHECK(Mentions(ErrorOf(decoder, {"a "}), "the token \"a \" has"));
    CHECK(Mentions(ErrorOf(R"({"type":"BPEDecoder","suffix":""})"), "decoder.suffix is \"\""));
    CHECK(Mentions(ErrorOf(Sequence(Metaspace("") + R"(,{"type":"BPEDecoder","suffix":"</w>"})")),
                   "decoders[1] stands beside a BPEDecoder"));
  }

  // The space is certain only when the next token is there.
  TEST_CASE("BPEDecoder: a stop string that ends with a space waits for the next token") {
    const auto vocabulary = Read(R"({"type":"BPEDecoder","suffix":"</w>"})", {"a</w>", "b</w>"});
    TextStream stream(&*vocabulary, *StopSet::Create({"a "}), {});
    TextChunk chunk;
    CHECK_FALSE(stream.Push(0, false, &chunk).has_value());
    CHECK(chunk.text.empty());
    CHECK(stream.Fork().Push(1, false, &chunk) == 0);
    stream.Finish(TextEnd::kFlush, &chunk);
    CHECK(chunk.text == "a");
  }

  TEST_CASE("no decoder: pieces are words") {
    CHECK(Text("null", {"my", "name", "is", "john"}) == "my name is john");
    CHECK(Text("null", {"my", "name", "is", "john"}, 2) == " is john");
  }

  TEST_CASE("Strip and Replace before Fuse change each piece, after it the text") {
    CHECK(Text(Strip("H", 1, 0), {"Hey", " friend!", "HHH"}) == "ey friend!HH");
    CHECK(Text(Strip("y", 0, 1), {"Hey", " friend!"}) == "He friend!");
    CHECK(Text(Sequence(kMark + "," + Strip(" ", 1, 0)), {"▁a", "▁b"}) == "ab");
    CHECK(Text(Sequence(kMark + "," + kFuse + "," + Strip(" ", 1, 0)), {"▁a", "▁b"}) == "a b");
    CHECK(Text(Sequence(kFuse + "," + kMark + "," + Strip(" ", 1, 0)), {"▁a", "▁b"}) == "a b");
    CHECK(Text(Sequence(""), {"▁a", "▁b"}) == "▁a▁b");
  }

  TEST_CASE("an order that cannot be followed piece by piece is refused by name") {
    const auto refused = [](const std::string& steps, const std::string& part) {
      CHECK(Mentions(ErrorOf(Sequence(steps)), part));
    };
    const std::string strip = Strip(" ", 1, 0);
    refused(kMark + "," + kFallback + "," + strip + "," + kFuse,
            "decoders[2] comes after ByteFallback");
    refused(kFuse + "," + Strip(" ", 0, 1), "decoders[1] is a Strip with content \" \", start 0");
    refused(kFuse + "," + strip + "," + strip, "decoders[2] is a Strip");
    refused(kFuse + "," + strip + "," + kMark, "decoders[2] comes after the pieces are joined");
    refused(kFuse + "," + Metaspace(""), "decoders[1] comes after the pieces are joined");
    refused(kFuse + "," + kFallback, "decoders[1] comes after the pieces are joined");
    refused(R"({"type":"CTC"})", "decoders[0].type is \"CTC\"");
    refused(Sequence(kFuse), "decoders[0].type is \"Sequence\"");
    refused(R"({"type":"Replace","pattern":{"Regex":"a"},"content":""})",
            "decoders[0].pattern.String is missing");
    refused(R"({"type":"Replace"})", "decoders[0].pattern is missing, expected a String");
    refused(R"({"type":"Replace","pattern":{"String":""},"content":""})",
            "decoders[0].pattern.String is \"\", expected some text");
    refused(kFuse + "," + Strip("x", 1, 0), "decoders[1] is a Strip with content \"x\"");
    refused(Strip(" ", 65, 0), "decoders[0].start is 65, allowed are 0..64");
    refused(R"({"type":"Strip","content":" ","stop":0})", "decoders[0].start is missing");
    refused(Strip("xy", 1, 0), "decoders[0].content is \"xy\", expected one character");
    refused(R"({"type":"WordPiece","prefix":"##"})", "decoders[0].cleanup is missing");
    // A small file must not become a large table.
    refused(R"({"type":"Replace","pattern":{"String":"a"},"content":"bb"})",
            "decoders[0].content is \"bb\", expected at most the 1 bytes");
    std::string many = kFuse;
    for (int i = 0; i < 16; ++i) many += "," + kFuse;
    refused(many, "decoder.decoders has 17 members, allowed are 0..16");
  }
}

}  // namespace
}  // namespace specd
