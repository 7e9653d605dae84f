// A constraint's masks over the vocabulary of each kind of file. What a mask allows is found here
// by trying the bytes of each token on a list of all texts.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tests/detokenizer/format_files.h"

namespace specd {
namespace {

using namespace format_files;

constexpr TokenId kEos = 0;

// The pieces of every file, as SentencePiece writes them, and the same as bytes.
const std::vector<Piece> kMaskPieces = {{"</s>", kControl},
                                        {"yes"},
                                        {"▁yes"},
                                        {"ye"},
                                        {"s"},
                                        {"▁"},
                                        {"no"},
                                        {"▁n"},
                                        {"o"},
                                        {"é"},
                                        {"<0xC3>", kByte},
                                        {"<0xA9>", kByte}};
const std::vector<std::string> kBytes = {"",   "yes", " yes", "ye", "s",    " ",
                                         "no", " n",  "o",    "é",  "\xC3", "\xA9"};
const std::vector<std::string> kTexts = {"yes", " yes", "no", " no", "é", "no é"};

std::string TokenizerJson(const std::string& decoder, const std::vector<std::string>& pieces) {
  std::string vocab;
  for (size_t i = 1; i < pieces.size(); ++i) {
    vocab += (i == 1 ? "\"" : ",\"") + pieces[i] + "\":" + std::to_string(i);
  }
  return R"({"version":"1.0","added_tokens":[{"id":0,"content":"</s>","special":true}],)"
         R"("decoder":)" +
         decoder + R"(,"model":{"type":"BPE","merges":[],"vocab":{)" + vocab + "}}}";
}

std::vector<std::string> Texts(const std::vector<Piece>& pieces) {
  std::vector<std::string> texts;
  for (const Piece& piece : pieces) texts.push_back(piece.text);
  return texts;
}

bool IsPrefixOfText(const std::string& begin) {
  for (const std::string& text : kTexts) {
    if (text.compare(0, begin.size(), begin) == 0) return true;
  }
  return false;
}

// Masks after each sequence of ids that the texts allow.
void CheckMasks(const Vocabulary& vocabulary, const std::vector<std::string>& bytes) {
  grammar::GrammarCompiler compiler(
      {.vocabulary = &vocabulary, .vocab_size = static_cast<int32_t>(bytes.size())});
  const auto compiled =
      compiler.CompileAnew({.kind = grammar::GrammarKind::kRegex, .text = " ?yes| ?no|é|no é"});
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().ToString());
  std::vector<std::string> begun = {""};
  size_t num_allowed = 0;
  for (size_t i = 0; i < begun.size(); ++i) {
    CAPTURE(begun[i]);
    const auto matcher = (*compiled)->NewMatcher({.stop_ids = {kEos}});
    REQUIRE(matcher->AcceptText(begun[i]));
    const auto mask = matcher->Mask();
    for (size_t id = 1; id < bytes.size(); ++id) {
      CAPTURE(id);
      const std::string after = begun[i] + bytes[id];
      const bool allowed = !bytes[id].empty() && IsPrefixOfText(after);
      CHECK(mask.Allows(static_cast<TokenId>(id)) == allowed);
      if (!allowed) continue;
      ++num_allowed;
      begun.push_back(after);
    }
  }
  CHECK(num_allowed > 5);  // some of each vocabulary
}

TEST_SUITE("grammar") {
  TEST_CASE("masks: the same pieces in every kind of file have the masks of their bytes") {
    CheckMasks(Open(SentencePieceModel(kMaskPieces, Normalizer(true, false))), kBytes);
    CheckMasks(Open(SentencePieceModel(kMaskPieces, Normalizer(true, true))), kBytes);
    CheckMasks(
        Open(GgufFile({GgufModel("llama"), GgufTokens(kMaskPieces), GgufTypes(kMaskPieces)})),
        kBytes);
    const std::string metaspace = R"({"type":"Metaspace","replacement":"▁"})";
    CheckMasks(Open(TokenizerJson(
                   R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},)" + metaspace + "]}",
                   Texts(kMaskPieces))),
               kBytes);
    const std::vector<Piece> byte_level = {{"</s>", kControl},
                                           {"yes"},
                                           {"Ġyes"},
                                           {"ye"},
                                           {"s"},
                                           {"Ġ"},
                                           {"no"},
                                           {"Ġn"},
                                           {"o"},
                                           {"Ã©"},
                                           {"Ã"},
                                           {"©"}};
    CheckMasks(Open(GgufFile({GgufModel("gpt2"), GgufTokens(byte_level), GgufTypes(byte_level)})),
               kBytes);
    CheckMasks(Open(TokenizerJson(R"({"type":"Sequence","decoders":[{"type":"ByteLevel"}]})",
                                  Texts(byte_level))),
               kBytes);
    CheckMasks(Open("1 'yes' 3\n2 ' yes' 4\n3 'ye' 2\n4 's' 1\n5 ' ' 1\n6 'no' 2\n7 ' n' 2\n"
                    "8 'o' 1\n9 'é' 2\n10 b'\\xc3' 1\n11 b'\\xa9' 1\n"),
               kBytes);
  }

  TEST_CASE("masks: a decoder that adds spaces gives them to the tokens") {
    const std::vector<std::string> pieces = {"",   "yes",  "##yes", "##ye", "##s",
                                             "##", "##no", "n",     "##o",  "##é"};
    const std::vector<std::string> bytes = {"", " yes", "yes", "ye", "s", "", "no", " n", "o", "é"};
    CheckMasks(Open(TokenizerJson(R"({"type":"WordPiece","prefix":"##","cleanup":false})", pieces)),
               bytes);
    CheckMasks(Open(TokenizerJson(R"({"type":"BPEDecoder","suffix":"</w>"})",
                                  {"", "yes", "ye", "s", "no", "no</w>", "é", "</w>", "n", "o"})),
               {"", "yes", "ye", "s", "no", "no ", "é", " ", "n", "o"});
  }
}

}  // namespace
}  // namespace specd
