// GGUF files of a few pieces. Those of trained models are compared with sentencepiece in
// tests/oracle/sentence_piece_oracle.py.
#include "detokenizer/gguf_tokenizer.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/detokenizer/format_files.h"

namespace specd {
namespace {

using namespace format_files;
using namespace std::string_literals;

std::string Gguf(const std::string& model, const std::vector<Piece>& pieces) {
  return GgufFile({GgufModel(model), GgufTokens(pieces), GgufTypes(pieces)});
}

TEST_SUITE("unit") {
  TEST_CASE("GGUF: SentencePiece's pieces, with the unknown and unused ones as in llama.cpp") {
    for (const uint32_t version : {2U, 3U}) {
      const Vocabulary read =
          Open(GgufFile({GgufTypes(kPieces), GgufTokens(kPieces), GgufModel("llama"),
                         GgufKey("tokenizer.ggml.eos_token_id", 4, Raw(uint32_t{6}))},
                        version));
      CHECK(read.size() == 7);
      CHECK(read.IsSpecial(0));
      CHECK(read.IsSpecial(1));
      CHECK(read.Bytes(2) == "\xC3");
      CHECK(read.Bytes(4) == "  a");
      CHECK(read.IsSpecial(6));  // the id that ends a text
      CHECK_FALSE(read.Contains(7));
      CHECK(Text(read, {}, {1, 4, 4}) == " a  a");
    }
    const std::string no_prefix = GgufKey("tokenizer.ggml.add_space_prefix", 7, "\0"s);
    const std::string extra = GgufKey("tokenizer.ggml.remove_extra_whitespaces", 7, "\1"s);
    const auto text = [](const std::string& key) {
      return Text(Open(GgufFile({GgufModel("t5"), GgufTokens(kPieces), GgufTypes(kPieces), key})),
                  {}, {5, 5, 4});
    };
    CHECK(text(no_prefix) == "    a");
    CHECK(text(extra) == " a");
  }

  TEST_CASE("GGUF: a byte-level BPE") {
    const std::vector<Piece> pieces = {{"Ġb"}, {"Ġ", kUserDefined}, {"é"}, {"<|e|>", kControl}};
    const Vocabulary read = Open(Gguf("gpt2", pieces));
    CHECK(read.Bytes(0) == " b");
    CHECK(read.Bytes(1) == "Ġ");
    CHECK(read.IsAdded(1));
    CHECK(read.Bytes(2) == "\xE9");
    CHECK(read.IsSpecial(3));
    CHECK_FALSE(read.HasFront());
    CHECK(read.text_rules().replacement == Utf8Replacement::kSubpart);
    CHECK(Open(GgufFile({GgufModel("gpt2"), GgufTokens(pieces)})).Bytes(2) == "\xE9");
  }

  TEST_CASE("GGUF: only the metadata is read, whatever follows") {
    const TemporaryFolder folder;
    const std::string path = folder.Write("m", Gguf("llama", kPieces));
    std::filesystem::resize_file(path, std::uintmax_t{1} << 36);  // sparse
    CHECK(OpenTokenizer(path).ok());
  }

  TEST_CASE("GGUF: what cannot be read is refused by key and value") {
    CHECK(Mentions(ErrorOf(Gguf("bert", kPieces)), "tokenizer.ggml.model is \"bert\", known are"));
    CHECK(Mentions(ErrorOf(Gguf("no\nvocab", kPieces)), "is \"no\\nvocab\""));
    CHECK(
        Mentions(ErrorOf(GgufFile({})), "tokenizer.ggml.model is missing: this GGUF file has no"));
    CHECK(Mentions(ErrorOf(GgufFile({GgufModel("llama")})), "tokenizer.ggml.tokens is missing"));
    CHECK(Mentions(ErrorOf(GgufFile({GgufModel("llama")}, 1)), "GGUF file of version 1"));
    CHECK(Mentions(ErrorOf(GgufFile({GgufModel("llama")}, 0x03000000)), "a big-endian one"));
    CHECK(Mentions(ErrorOf(GgufFile({GgufModel("llama"), GgufTokens(kPieces), GgufTypes({{"a"}})})),
                   "token_type has 1 elements, but tokenizer.ggml.tokens 8"));
    CHECK(Mentions(ErrorOf(Gguf("llama", {{"a", 7}})), "token_type[0] is 7, known are 1..6"));
    CHECK(Mentions(ErrorOf(Gguf("llama", {{"a", kByte}})), "tokens[0] is \"a\", expected a byte"));
    CHECK(Mentions(ErrorOf(Gguf("gpt2", {{"\xC4"}})), "tokens[0] is no UTF-8"));
    CHECK(
        Mentions(ErrorOf(GgufFile({GgufKey("tokenizer.ggml.model", 4, Raw(7))})),
                 "a value has the type 4, expected a string at the key \"tokenizer.ggml.model\""));
    CHECK(Mentions(ErrorOf(GgufFile({GgufKey("k", 13, "")})), "a value has the type 13"));
    CHECK(Mentions(ErrorOf(GgufFile({GgufKey("k", 9, Raw(9) + Raw(uint64_t{1}))})),
                   "elements of the type 9"));
    // Counts that are no file's.
    CHECK(Mentions(ErrorOf(GgufFile({GgufKey("k", 9, Raw(10) + Raw(~uint64_t{0} / 8 + 2))})),
                   "longer"));
    CHECK(Mentions(ErrorOf(GgufFile({GgufKey("k", 8, Raw(~uint64_t{0}))})), "longer"));
    const std::string good = Gguf("llama", kPieces);
    for (size_t size = 4; size < good.size(); ++size) {
      CAPTURE(size);
      CHECK(Mentions(ErrorOf(good.substr(0, size)), "cut short"));
    }
  }
}

}  // namespace
}  // namespace specd
