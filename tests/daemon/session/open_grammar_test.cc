// The text of a constraint on its way from specd_params through the message's file to
// SequenceParams.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/client/open_message.h"
#include "daemon/session/open_request.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

absl::StatusOr<OpenRequest> Read(const specd_params& params) {
  absl::StatusOr<OpenMessage> message = MakeOpenMessage("r", params);
  if (!message.ok()) return message.status();
  return ReadOpenRequest(message->request, message->lists);
}

specd_params Defaults() {
  specd_params params;
  specd_params_init(&params);
  return params;
}

std::string FieldOf(const specd_params& params) { return ErrorFieldOf(Read(params).status()); }

UniqueFd MakeFile(const std::string& bytes) {
  UniqueFd fd(memfd_create("lists", MFD_CLOEXEC));
  REQUIRE(write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  return fd;
}

TEST_SUITE("unit") {
  TEST_CASE("opening: the text of a constraint follows the ids, byte for byte") {
    const std::vector<int32_t> prompt = {7, 8, 9};
    const std::string text("a\0b\xc3\xa4", 5);  // neither a NUL nor an odd length ends it
    specd_params params = Defaults();
    params.grammar_kind = SPECD_GRAMMAR_REGEX;
    params.grammar_whitespace = SPECD_WHITESPACE_COMPACT;
    params.grammar_lenient = 1;
    params.grammar_in_reasoning = 1;
    params.grammar_key_order = SPECD_KEY_ORDER_ANY;
    params.grammar = text.data();
    params.grammar_bytes = text.size();
    for (const specd_ids& ids : {specd_ids{}, specd_ids{prompt.data(), prompt.size()}}) {
      params.prompt_ids = ids;
      const absl::StatusOr<OpenRequest> open = Read(params);
      REQUIRE(open.ok());
      CHECK(open->params.grammar_kind == grammar::GrammarKind::kRegex);
      CHECK(open->params.grammar_whitespace == grammar::Whitespace::kCompact);
      CHECK(open->params.grammar_lenient);
      CHECK(open->params.grammar_in_reasoning);
      CHECK(open->params.grammar_key_order == grammar::KeyOrder::kAny);
      CHECK(open->params.grammar_text == text);
      CHECK(open->prompt.size() == ids.count);
    }
    // Without a length a NUL ends the text. A kind may have no text.
    params.grammar_bytes = 0;
    CHECK(Read(params)->params.grammar_text == "a");
    params.grammar = nullptr;
    params.prompt_ids = {};
    params.grammar_kind = SPECD_GRAMMAR_JSON_OBJECT;
    const absl::StatusOr<OpenMessage> message = MakeOpenMessage("r", params);
    REQUIRE(message.ok());
    CHECK_FALSE(message->lists.valid());
    CHECK(ReadOpenRequest(message->request, message->lists)->params.grammar_text.empty());
  }

  TEST_CASE("opening: each kind of constraint has the number of specd.h") {
    for (const auto& [kind, number] :
         {std::pair{grammar::GrammarKind::kNone, SPECD_GRAMMAR_NONE},
          {grammar::GrammarKind::kJsonSchema, SPECD_GRAMMAR_JSON},
          {grammar::GrammarKind::kJsonObject, SPECD_GRAMMAR_JSON_OBJECT},
          {grammar::GrammarKind::kRegex, SPECD_GRAMMAR_REGEX},
          {grammar::GrammarKind::kEbnf, SPECD_GRAMMAR_EBNF},
          {grammar::GrammarKind::kChoice, SPECD_GRAMMAR_CHOICE},
          {grammar::GrammarKind::kStructuralTag, SPECD_GRAMMAR_STRUCTURAL_TAG}}) {
      CHECK(static_cast<int>(kind) == static_cast<int>(number));
    }
  }

  TEST_CASE("opening: a text of a wrong length is refused by name") {
    const std::string longest(grammar::kGrammarTextBytesMax, 'a');
    specd_params params = Defaults();
    params.grammar = longest.c_str();
    CHECK(Read(params)->params.grammar_text == longest);
    const std::string longer = longest + "a";
    params.grammar = longer.c_str();
    CHECK(FieldOf(params) == "grammar");
    params.grammar_bytes = UINT64_MAX;  // refused before anything is read
    CHECK(FieldOf(params) == "grammar");
    params.grammar = nullptr;
    params.grammar_bytes = 1;
    CHECK(FieldOf(params) == "grammar");
    // Values that another library may send.
    OpenSequenceRequest request;
    request.num_prompt_ids = 2;
    request.num_grammar_bytes = 5;
    CHECK(ErrorFieldOf(ReadOpenRequest(request, UniqueFd()).status()) == "num_fds");
    CHECK(ErrorFieldOf(ReadOpenRequest(request, MakeFile(std::string(12, 'a'))).status()) == "fd");
    CHECK(ReadOpenRequest(request, MakeFile(std::string(13, 'a'))).ok());
    request.num_prompt_ids = 0;
    request.num_grammar_bytes = grammar::kGrammarTextBytesMax + 1;
    CHECK(ErrorFieldOf(ReadOpenRequest(request, MakeFile(std::string(13, 'a'))).status()) ==
          "grammar");
    request.num_grammar_bytes = UINT32_MAX;
    CHECK(ErrorFieldOf(ReadOpenRequest(request, MakeFile(std::string(13, 'a'))).status()) ==
          "grammar");
  }
}

}  // namespace
}  // namespace specd
