// A command line around the detokenizer for the oracle tests.
//
//   specd_decode_ids TOKENIZER_JSON skip|keep
//
// reads lines of token ids separated by blanks from standard input and writes the text of each line
// as one JSON string. `skip` leaves out special tokens. The ids go through a TextStream one by one,
// as they do in the daemon.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

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
    std::istringstream ids(line);
    specd::TokenId id = 0;
    while (ids >> id) stream.Push(id, false, &chunk);
    if (!ids.eof()) {
      std::fprintf(stderr, "not a line of token ids: %s\n", line.c_str());
      return 2;
    }
    stream.Finish(specd::TextEnd::kFlush, &chunk);
    std::cout << JsonString(chunk.text) << '\n';
  }
  return 0;
}
