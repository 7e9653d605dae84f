// The examples of docs/PROTOCOL.md are what the code writes, byte for byte.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "ipc/control.h"
#include "ipc/include/specd/specd.h"
#include "ipc/token_event.h"

namespace specd {
namespace {

// The blocks that open with "```hex NAME": hex digits, the rest of a line after '#' is comment.
std::map<std::string, std::string> ReadExamples() {
  std::ifstream file(std::string(SPECD_SOURCE_DIR) + "/docs/PROTOCOL.md");
  REQUIRE(file.good());
  std::map<std::string, std::string> examples;
  std::string* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```hex ")) {
      current = &examples[line.substr(7)];
    } else if (line.starts_with("```")) {
      current = nullptr;
    } else if (current != nullptr) {
      std::istringstream words(line.substr(0, line.find('#')));
      for (std::string word; words >> word;) {
        REQUIRE(word.size() == 2);
        current->push_back(static_cast<char>(std::strtoul(word.c_str(), nullptr, 16)));
      }
    }
  }
  return examples;
}

TEST_SUITE("unit") {
  TEST_CASE("PROTOCOL.md: the worked examples are the program's bytes") {
    const std::map<std::string, std::string> examples = ReadExamples();
    CHECK(examples.size() == 3);

    const absl::StatusOr<std::vector<uint8_t>> close =
        EncodeRequest(CloseSequenceRequest{uint64_t{1} << 32 | 5}, 7);
    REQUIRE(close.ok());
    REQUIRE(examples.contains("close-sequence"));
    CHECK(std::string(close->begin(), close->end()) == examples.at("close-sequence"));

    TokenEvent tokens;
    tokens.stream = 1;
    tokens.offset = 2;
    tokens.time_ns = 3;
    tokens.ids = {15, 300};
    tokens.accepted = 1;
    std::string batch;
    AppendTokenBatch({0x0102030405060708, 9, {tokens}}, &batch);
    REQUIRE(examples.contains("token-batch"));
    CHECK(batch == examples.at("token-batch"));

    std::string abort;
    AppendAbortRequest({0x0102030405060708, 1, 4, SPECD_FINISH_STOP}, &abort);
    REQUIRE(examples.contains("abort"));
    CHECK(abort == examples.at("abort"));
  }
}

}  // namespace
}  // namespace specd
