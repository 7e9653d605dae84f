// SentencePiece models of a few pieces. Trained models are compared with sentencepiece in
// tests/oracle/sentence_piece_oracle.py.
#include "detokenizer/sentence_piece_model.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/detokenizer/format_files.h"

namespace specd {
namespace {

using namespace format_files;

TEST_SUITE("unit") {
  TEST_CASE("SentencePiece model: each type of piece") {
    const Vocabulary read = Open(SentencePieceModel(kPieces, Normalizer(true, false)));
    CHECK(read.size() == 8);
    CHECK(read.Bytes(0) == " ⁇ ");
    CHECK_FALSE(read.IsSpecial(0));
    CHECK(read.Bytes(1) == "<s>");
    CHECK(read.IsSpecial(1));
    CHECK(read.Bytes(2) == "\xC3");
    CHECK(read.Bytes(4) == "  a");
    CHECK(read.FrontBytes(4) == " a");
    CHECK(read.Bytes(6) == " <tool>");
    CHECK(read.IsAdded(6));
    CHECK_FALSE(read.IsSpecial(6));
    CHECK(read.Bytes(7) == "unused");
    CHECK(read.text_rules().replacement == Utf8Replacement::kByte);
  }

  TEST_CASE("SentencePiece model: which spaces the front loses") {
    const auto text = [](bool dummy, bool extra, const std::vector<TokenId>& prompt,
                         const std::vector<TokenId>& outputs) {
      return Text(Open(SentencePieceModel(kPieces, Normalizer(dummy, extra))), prompt, outputs);
    };
    CHECK(text(true, false, {}, {1, 4, 4}) == " a  a");
    CHECK(text(true, false, {}, {5, 5, 4}) == "   a");
    CHECK(text(true, false, {5}, {5, 4}) == "   a");
    CHECK(text(true, true, {}, {5, 5, 4, 5}) == " a ");
    CHECK(text(true, true, {5}, {5, 4}) == " a");
    CHECK(text(false, true, {}, {5, 4}) == " a");
    CHECK(text(false, false, {}, {5, 4}) == "   a");
    // The unknown piece and a byte are text.
    CHECK(text(true, false, {}, {0, 5}) == " ⁇  ");
    CHECK(text(true, false, {}, {2, 3, 5}) == "é ");
    CHECK(text(true, false, {2}, {3, 5}) == "é ");
  }

  TEST_CASE("SentencePiece model: a file that is none, or cannot be followed, is refused") {
    const std::string model = SentencePieceModel(kPieces, Normalizer(true, true));
    CHECK(Mentions(ErrorOf(model.substr(0, model.size() - 1)), "cut short"));
    CHECK(Mentions(ErrorOf(model + "\x12\x03\xC0\x01\x01"), "treat_whitespace_as_suffix is true"));
    CHECK(Mentions(ErrorOf(model + BytesField(5, BytesField(2, "map"))),
                   "denormalizer_spec.precompiled_charsmap has 3 bytes"));
    const auto with = [](const Piece& piece) {
      return ErrorOf(SentencePieceModel({{"a"}, piece}, ""));
    };
    CHECK(Mentions(with({"\xFF"}), "pieces[1].piece has 1 bytes, expected UTF-8"));
    CHECK(Mentions(with({""}), "pieces[1].piece has 0 bytes"));
    CHECK(Mentions(with({"<0xGG>", kByte}), "pieces[1] is \"<0xGG>\" of type 6"));
    CHECK(Mentions(with({"a", 7}), "pieces[1] is \"a\" of type 7, known are 1..6"));
    CHECK(Mentions(ErrorOf(SentencePieceModel({{"<unk>", kUnknown}, {"a"}, {"<u>", kUnknown}}, "")),
                   "pieces[2] is a second unknown piece"));
    // Text that begins with the byte of a model is none.
    CHECK(Mentions(ErrorOf("\n{\n  \"a\": \"                                    \"\n"), "JSON"));
  }
}

}  // namespace
}  // namespace specd
