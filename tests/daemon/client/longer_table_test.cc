// A new parameter needs only a row of the parameter table. This program is compiled with a copy of
// speculative/params/param_list.inc that has four more rows (CMakeLists.txt), and with no other
// change.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "daemon/client/open_message.h"
#include "daemon/session/open_request.h"
#include "ipc/base/error.h"
#include "speculative/params/param_check.h"
#include "tests/support/c_drafts.h"
#include "tests/support/mentions.h"
#include "tools/params_doc/params_doc.h"

namespace specd {
namespace {

// Sends the numbers through the message, as a daemon reads it.
absl::StatusOr<OpenRequest> Send(std::initializer_list<specd_number> numbers) {
  specd_params params;
  specd_params_init(&params);
  params.numbers = {numbers.begin(), numbers.size()};
  const absl::StatusOr<OpenMessage> message = MakeOpenMessage("r", params);
  if (!message.ok()) return message.status();
  const absl::StatusOr<std::vector<uint8_t>> bytes = EncodeRequest(message->request, 1);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<ControlHeader> header = DecodeHeader(*bytes, ControlReader::kDaemon);
  REQUIRE(header.ok());
  const absl::StatusOr<Request> request = DecodeRequest(*header, *bytes);
  REQUIRE(request.ok());
  return ReadOpenRequest(std::get<OpenSequenceRequest>(*request), message->lists);
}

std::string RefusalOf(std::initializer_list<specd_number> numbers) {
  const absl::StatusOr<OpenRequest> open = Send(numbers);
  const absl::Status status = open.ok() ? ValidateParams(open->params, 100) : open.status();
  REQUIRE(!status.ok());
  return std::string(status.message());
}

TEST_SUITE("unit") {
  TEST_CASE("longer table: a new row's value arrives, and its default where none is given") {
    const absl::StatusOr<OpenRequest> open =
        Send({{"test_share", 0.25}, {"test_count", 12}, {"test_flag", 0}, {"draft_test_order", 1}});
    REQUIRE(open.ok());
    CHECK(ValidateParams(open->params, 100).ok());
    CHECK(open->params.test_share == 0.25);
    CHECK(open->params.test_count == 12);
    CHECK_FALSE(open->params.test_flag);
    CHECK(open->params.draft.test_order == FilterOrder::kJoint);

    const absl::StatusOr<OpenRequest> without = Send({});
    REQUIRE(without.ok());
    CHECK(without->params.test_share == 0.5);
    CHECK(without->params.test_count == 3);
    CHECK(without->params.test_flag);
    CHECK(without->params.draft.test_order == FilterOrder::kSequential);
  }

  TEST_CASE("longer table: a new row's range is checked, and its name is known") {
    const std::string share = RefusalOf({{"test_share", 1.5}});
    for (const char* part : {"test_share = 1.5", "above 0 .. 1", "a share", "default 0.5"}) {
      CAPTURE(share);
      CHECK(Mentions(share, part));
    }
    CHECK(Mentions(RefusalOf({{"test_count", 13}}), "test_count = 13 is outside 0 .. 12"));
    CHECK(Mentions(RefusalOf({{"test_count", 1.5}}), "test_count = 1.5"));
    CHECK(Mentions(RefusalOf({{"test_flag", 2}}), "test_flag = 2 must be 0 or 1"));
    CHECK(Mentions(RefusalOf({{"draft_test_order", 2}}), "draft_test_order = 2"));
    CHECK(Mentions(RefusalOf({{"test_shore", 0.5}}), "did you mean test_share?"));
    CHECK(Mentions(RefusalOf({{"vllm_share", 0.5}}), "vllm_share is called test_share here"));
  }

  TEST_CASE("longer table: bindings and the documents see a new row") {
    std::map<std::string, specd_param_info> infos;
    specd_param_info info = Sized<specd_param_info>();
    for (uint32_t i = 0; specd_get_param_info(i, &info) == SPECD_OK; ++i) infos[info.name] = info;
    REQUIRE(infos.contains("test_share"));
    CHECK(infos["test_share"].type == SPECD_PARAM_NUMBER);
    CHECK(infos["test_share"].default_value == 0.5);
    CHECK(std::string(infos["test_share"].vllm_name) == "vllm_share");
    CHECK(std::string(infos["test_share"].range) == "above 0 .. 1");
    CHECK(infos["test_count"].type == SPECD_PARAM_INTEGER);
    CHECK(infos["test_count"].maximum == 12);
    CHECK(infos["test_flag"].type == SPECD_PARAM_FLAG);
    CHECK(infos["test_flag"].default_value == 1);
    REQUIRE(infos["draft_test_order"].choices.count == 2);
    CHECK(std::string(infos["draft_test_order"].choices.items[1]) == "joint");

    const std::string doc = ParamsDoc();
    const size_t row = doc.find("| `test_share` ");
    REQUIRE(row != std::string::npos);
    const std::string line = doc.substr(row, doc.find('\n', row) - row);
    for (const char* part : {"number", "0.5", "above 0 .. 1", "`vllm_share`", "a share"}) {
      CHECK(Mentions(line, part));
    }
    CHECK(Mentions(doc, "| `draft_test_order` "));
  }
}

}  // namespace
}  // namespace specd
