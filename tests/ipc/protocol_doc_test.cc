// The examples of docs/PROTOCOL.md are what the code writes, byte for byte.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "ipc/control/control.h"
#include "ipc/events/ask.h"
#include "ipc/events/token_event.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/engine_channel.h"
#include "tests/ipc/segment/ipc_test_support.h"

namespace specd {
namespace {

std::ifstream OpenPage() {
  std::ifstream file(std::string(SPECD_SOURCE_DIR) + "/docs/PROTOCOL.md");
  REQUIRE(file.good());
  return file;
}

// The blocks that open with "```hex NAME": hex digits, the rest of a line after '#' is comment.
std::map<std::string, std::string> ReadExamples() {
  std::ifstream file = OpenPage();
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
  TEST_CASE("PROTOCOL.md: the row of StatsReply has the counters in their order") {
    std::string names;
#define SPECD_COUNTER(name, metric, meaning) names += names.empty() ? #name : ", " #name;
#include "kernels/core/counter_list.inc"
    std::ifstream file = OpenPage();
    std::string row;
    while (std::getline(file, row) && row.find("| StatsReply |") == std::string::npos) {
    }
    CHECK(row == "| 106 | StatsReply | " + names + ": u64 each |");
  }

  TEST_CASE("PROTOCOL.md: the worked examples are the program's bytes") {
    const std::map<std::string, std::string> examples = ReadExamples();
    CHECK(examples.size() == 9);

    const absl::StatusOr<std::vector<uint8_t>> close =
        EncodeRequest(CloseSequenceRequest{uint64_t{1} << 32 | 5}, 7);
    REQUIRE(close.ok());
    REQUIRE(examples.contains("close-sequence"));
    CHECK(std::string(close->begin(), close->end()) == examples.at("close-sequence"));

    const absl::StatusOr<std::vector<uint8_t>> fork =
        EncodeRequest(ForkSequenceRequest{uint64_t{1} << 32 | 5, "b", true, 300}, 8);
    REQUIRE(fork.ok());
    REQUIRE(examples.contains("fork-sequence"));
    CHECK(std::string(fork->begin(), fork->end()) == examples.at("fork-sequence"));

    const absl::StatusOr<std::vector<uint8_t>> join = EncodeRequest(
        JoinRequest{"rank", "0.1.0", 4711, "1f-00112233445566778899aabbccddeeff", 1}, 1);
    REQUIRE(join.ok());
    REQUIRE(examples.contains("join"));
    CHECK(std::string(join->begin(), join->end()) == examples.at("join"));

    const TokenEvent tokens = {.stream = 1,
                               .offset = 2,
                               .time_ns = 3,
                               .what = RoundTokens{.ids = {15, 300}, .accepted = 1}};
    std::string batch;
    AppendTokenBatch({0x0102030405060708, 9, {tokens}}, &batch);
    REQUIRE(examples.contains("token-batch"));
    CHECK(batch == examples.at("token-batch"));

    TextEvent text;
    text.epoch = 0x0102030405060708;
    text.seq = 10;
    text.stream = 1;
    text.request_id = "r";
    text.token_offset = 2;
    text.tokens = 4;
    text.byte_offset = 5;
    text.scores = {{15, -0.5f, 1}, {15, -0.5f, 1}, {300, -2.25f, 2}, {7, -0.25f, 1}};
    std::string scored;
    AppendTextEvent(text, &scored);
    REQUIRE(examples.contains("text-scores"));
    CHECK(scored == examples.at("text-scores"));

    std::string abort;
    AppendAbortRequest({0x0102030405060708, 1, 4, SPECD_FINISH_STOP}, &abort);
    REQUIRE(examples.contains("abort"));
    CHECK(abort == examples.at("abort"));

    std::string ask;
    AppendAsk({.kind = AskKind::kFrom, .stream = 1, .offset = 2}, &ask);
    REQUIRE(examples.contains("ask"));
    CHECK(ask == examples.at("ask"));
  }

  TEST_CASE("PROTOCOL.md: the record of a round is the program's bytes") {
    Segment segment = test::MakeSegment({32000, 1, 1, 1, 1, 0});
    EngineChannel engine(&segment);
    test::DraftBuffers draft{{300}, {}, {2, 3}, {}};
    draft.mask_rows = {9, -1};
    SequenceInput view = draft.View(uint64_t{1} << 32 | 5);
    view.draft.kinds = nullptr;
    view.draft.draft_rows = nullptr;
    REQUIRE(engine.Submit(1, {&view, 1}, 1) == PushResult::kOk);
    const std::map<std::string, std::string> examples = ReadExamples();
    const std::string& example = examples.at("draft-record");
    CHECK(segment.layout().draft_record_bytes == example.size());
    CHECK(std::string(segment.at(segment.layout().draft_payload_offset), example.size()) ==
          example);
    CompletionView completion;
    DaemonChannel daemon(&segment);
    SubmissionCopy copy(segment.limits());
    REQUIRE(daemon.Take(&copy, 2));
    daemon.Complete(copy, std::vector<SequenceResult>(1), 3);
    REQUIRE(engine.Poll(&completion));

    const TokenId prefix[] = {300};
    const DraftInput call = {.sequence = uint64_t{1} << 32 | 5,
                             .row = 4,
                             .prefix = prefix,
                             .num_prefix = 1,
                             .num_children = 1,
                             .first_node = 2};
    REQUIRE(engine.Call({&call, 1}, 1) == PushResult::kOk);
    CHECK(segment.layout().call_record_bytes == 320);
    const std::string& children = examples.at("children-record");
    CHECK(children.size() == 64);
    CHECK(std::string(segment.at(segment.layout().call_request_offset), 64) == children);
  }
}

}  // namespace
}  // namespace specd
