// specd_encode_text TOKENIZER_JSON: one JSON string per line on stdin, its token ids on stdout, by
// the toy engine's encoder. For encoder_oracle.py.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "simdjson.h"
#include "tools/toy_engine/bpe_encoder.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: specd_encode_text TOKENIZER_JSON\n");
    return 2;
  }
  const absl::StatusOr<specd::toy::BpeEncoder> encoder = specd::toy::BpeEncoder::Load(argv[1]);
  if (!encoder.ok()) {
    fmt::print(stderr, "{}\n", std::string(encoder.status().message()));
    return 1;
  }
  simdjson::dom::parser parser;
  for (std::string line; std::getline(std::cin, line);) {
    std::string_view text;
    if (parser.parse(line).get(text) != simdjson::SUCCESS) {
      fmt::print(stderr, "not a JSON string: {}\n", line);
      return 1;
    }
    fmt::print("{}\n", fmt::join(encoder->Encode(text), " "));
  }
  return 0;
}
