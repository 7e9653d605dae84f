// A command line around the detokenizer for the oracle tests.
//
//   specd_decode_ids TOKENIZER_JSON skip|keep
//
// reads lines of token ids separated by blanks from standard input and writes the text of each line
// as one JSON string. Ids before a `|` are the prompt's, which the text goes on after. `skip`
// leaves out special tokens. The ids go through a TextStream one by one, as they do in the daemon.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "detokenizer/text_stream.h"
#include "detokenizer/tokenizer_file.h"

namespace {

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      json += '\\';
      json += character;
    } else if (static_cast<uint8_t>(character) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<uint8_t>(character));
    } else {
      json += character;
    }
  }
  return json + '"';
}

std::vector<specd::TokenId> ReadIds(const std::string& text) {
  std::vector<specd::TokenId> ids;
  std::istringstream words(text);
  for (specd::TokenId id = 0; words >> id;) ids.push_back(id);
  if (words.eof()) return ids;
  std::fprintf(stderr, "not a line of token ids: %s\n", text.c_str());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 3 ? argv[2] : "";
  if (mode != "skip" && mode != "keep") {
    std::fputs("usage: specd_decode_ids TOKENIZER_JSON skip|keep\n", stderr);
    return 2;
  }
  const auto vocabulary = specd::OpenTokenizer(argv[1]);
  if (!vocabulary.ok()) {
    std::fprintf(stderr, "%s\n", std::string(vocabulary.status().message()).c_str());
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    specd::TextStream stream(&*vocabulary, nullptr, {.skip_special_tokens = mode == "skip"});
    specd::TextChunk chunk;
    const size_t bar = line.find('|');
    if (bar != std::string::npos) stream.Prime(ReadIds(line.substr(0, bar)), {});
    for (const specd::TokenId id :
         ReadIds(bar == std::string::npos ? line : line.substr(bar + 1))) {
      stream.Push(id, false, &chunk);
    }
    stream.Finish(specd::TextEnd::kFlush, &chunk);
    std::cout << JsonString(chunk.text) << '\n';
  }
  return 0;
}
