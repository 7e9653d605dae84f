// The file of OpenSequences as an engine without libspecd could send it: whatever it holds, the
// answer is a refusal that names a field, and no sequence is open.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/base/memory_budget.h"
#include "daemon/session/control_service.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/scripted_backend.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

std::string MessageOf(const Request& request) {
  const absl::StatusOr<std::vector<uint8_t>> bytes = EncodeRequest(request, 1);
  REQUIRE(bytes.ok());
  return {bytes->begin(), bytes->end()};
}

OpenSequenceRequest OpeningOf(const std::string& name) {
  OpenSequenceRequest open;
  open.request_id = name;
  open.numbers = {{"temperature", 0.5}};
  return open;
}

UniqueFd FileOf(const std::string& bytes) {
  UniqueFd fd(memfd_create("openings", MFD_CLOEXEC));
  REQUIRE(write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  return fd;
}

// An attached engine.
struct Client {
  explicit Client(MemoryBudget* memory = nullptr) : service(MakeHost()) {
    if (memory != nullptr) {
      SessionOptions options = fixture.session->options();
      options.memory = memory;
      options.memory_bytes_max = uint64_t{1} << 30;
      fixture.AttachWithoutRows(options, std::make_unique<ScriptedBackend>());
    }
    Call(HelloRequest{}, {});
    Call(MappedRequest{}, {});
  }

  ControlHost MakeHost() {
    ControlHost host;
    host.open_session = [this](const HelloRequest&) -> absl::StatusOr<std::shared_ptr<Session>> {
      return fixture.session;
    };
    host.serve = [](const std::shared_ptr<Session>&) {};
    host.pending = &pending;
    return host;
  }

  Reply Call(const Request& request, UniqueFd fd) {
    const std::string message = MessageOf(request);
    std::vector<UniqueFd> fds;
    if (fd.valid()) fds.push_back(std::move(fd));
    const ControlService::Answer answer = service.Handle(
        {reinterpret_cast<const uint8_t*>(message.data()), message.size()}, std::move(fds));
    CHECK_FALSE(answer.close);
    const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
    REQUIRE(header.ok());
    auto reply = DecodeReply(*header, answer.message);
    REQUIRE(reply.ok());
    return *std::move(reply);
  }

  Reply Open(uint32_t num_openings, const std::string& file) {
    return Call(OpenSequencesRequest{num_openings, static_cast<uint32_t>(file.size())},
                FileOf(file));
  }

  // "INDEX FIELD" of a refusal; "FIELD" if it is about no single opening.
  std::string Refused(uint32_t num_openings, const std::string& file) {
    const Reply reply = Open(num_openings, file);
    if (const auto* error = std::get_if<ErrorReply>(&reply)) return error->field;
    const auto& answer = std::get<SequencesReply>(reply);
    CHECK(answer.sequences.empty());
    CHECK(answer.code < 0);
    CHECK_FALSE(answer.text.empty());
    return std::to_string(answer.refused) + " " + answer.field;
  }

  SessionFixture fixture;
  PendingOpenings pending;
  ControlService service;
};

TEST_SUITE("unit") {
  TEST_CASE("openings: a sequence that a daemon before has refused has failed with the answer") {
    Client client;
    const absl::StatusOr<std::vector<SequenceInfo>> other =
        client.fixture.session->OpenSequences("other", {}, {});
    REQUIRE(other.ok());
    OpenSequenceRequest open;
    open.has_seed = true;
    open.seed = 7;
    open.num_given_ids = 3;
    open.refusal_code = SPECD_ERROR_UNSUPPORTED;
    open.refusal_field = "verify";
    open.refusal_text = "verify = 8 is lossy";
    const auto refused = [&](OpenSequenceRequest request) {
      const std::string file = MessageOf(request);
      const Reply reply = client.Call(
          OpenSequencesRequest{1, static_cast<uint32_t>(file.size()), true}, FileOf(file));
      return std::get<SequencesReply>(reply).field;
    };
    CHECK(refused(open) == "refusal_code");  // of no handle
    open.handle = (*other)[0].handle + 1;    // the next slot
    OpenSequenceRequest wrong = open;
    wrong.num_output_ids = 1;
    CHECK(refused(wrong) == "refusal_code");
    wrong = open;
    wrong.has_seed = false;
    CHECK(refused(wrong) == "refusal_code");
    for (const int no_error : {1, 2, SPECD_ERROR_TIMEOUT - 1}) {
      wrong = open;
      wrong.refusal_code = no_error;
      CHECK(refused(wrong) == "refusal_code");
    }
    CHECK(client.Refused(1, MessageOf(open)) == "0 refusal_code");  // is not pending
    Reply reply = client.Call(open, UniqueFd());
    CHECK(std::get<ErrorReply>(reply).field == "refusal_code");

    // Two at once: neither has a name that could be taken.
    OpenSequenceRequest second = open;
    second.handle = open.handle + 1;
    const std::string file = MessageOf(open) + MessageOf(second);
    reply = client.Call(OpenSequencesRequest{2, static_cast<uint32_t>(file.size()), true},
                        FileOf(file));
    REQUIRE(std::get<SequencesReply>(reply).sequences ==
            std::vector<uint64_t>{open.handle, second.handle});
    const SequenceState state = client.fixture.engine->ReadState(SlotOf(open.handle));
    CHECK(state.finish_reason == SequenceState::kFailed);
    CHECK(state.kept_tokens == 3);
    reply = client.Call(GetOpeningRequest{second.handle}, UniqueFd());
    CHECK(std::get<ErrorReply>(reply).code == SPECD_ERROR_UNSUPPORTED);
    CHECK(std::get<ErrorReply>(reply).field == "verify");
    CHECK(std::get<ErrorReply>(reply).text == open.refusal_text);
    reply = client.Call(CloseSequenceRequest{open.handle}, UniqueFd());
    CHECK(std::holds_alternative<OkReply>(reply));
  }

  // Bug: the memory of such sequences was not counted, so an engine could have 65536 for nothing.
  TEST_CASE("openings: a sequence that a daemon before has refused takes its memory") {
    MemoryBudget memory(uint64_t{1} << 30, "memory_mib");
    Client client(&memory);
    const absl::StatusOr<std::vector<SequenceInfo>> other =
        client.fixture.session->OpenSequences("other", {}, {});
    REQUIRE(other.ok());
    const uint64_t before = memory.taken_bytes();
    OpenSequenceRequest open;
    open.handle = (*other)[0].handle + 1;
    open.has_seed = true;
    open.refusal_code = SPECD_ERROR_UNSUPPORTED;
    const std::string file = MessageOf(open);
    Reply reply = client.Call(OpenSequencesRequest{1, static_cast<uint32_t>(file.size()), true},
                              FileOf(file));
    REQUIRE(std::get<SequencesReply>(reply).sequences.size() == 1);
    CHECK(memory.taken_bytes() >= before + 2048);  // a text may be as long
    reply = client.Call(CloseSequenceRequest{open.handle}, UniqueFd());
    REQUIRE(std::holds_alternative<OkReply>(reply));
    CHECK(memory.taken_bytes() == before);
  }

  TEST_CASE("openings: messages one after another, each with its lists behind it") {
    Client client;
    OpenSequenceRequest with_lists = OpeningOf("b");
    with_lists.num_prompt_ids = 2;
    with_lists.num_output_ids = 1;
    const int32_t ids[] = {3, 1, 2};
    std::string file = MessageOf(OpeningOf("a")) + MessageOf(with_lists);
    file.append(reinterpret_cast<const char*>(ids), sizeof(ids));
    file += MessageOf(OpeningOf("c"));
    const Reply reply = client.Open(3, file);
    REQUIRE(std::holds_alternative<SequencesReply>(reply));
    const auto& answer = std::get<SequencesReply>(reply);
    REQUIRE(answer.sequences.size() == 3);
    CHECK(answer.seeds.size() == 3);
    CHECK(answer.verify == std::vector<int32_t>(3, SPECD_VERIFY_AUTO));
    client.fixture.backend->script = {Confirm(0, {5})};
    REQUIRE(client.fixture.Submit({answer.sequences[1]}) == PushResult::kOk);
    REQUIRE(StepSession(client.fixture.session));
    CompletionView done;
    REQUIRE(client.fixture.engine->Poll(&done));
    CHECK(done.results[0].total_kept == 2);  // one output came with the opening
  }

  TEST_CASE("openings: a file that is not what it says is refused, and opens nothing") {
    Client client;
    const std::string a = MessageOf(OpeningOf("a"));
    const std::string b = MessageOf(OpeningOf("b"));
    CHECK(client.Refused(0, a) == "num_openings");
    CHECK(client.Refused(1025, a) == "num_openings");
    CHECK(client.Refused(1, a + b) == "file_bytes");
    CHECK(client.Refused(2, a) == "1 message");
    CHECK(client.Refused(1, "") == "0 message");
    CHECK(client.Refused(2, a + b.substr(0, 20)) == "1 message");
    CHECK(client.Refused(2, a + b.substr(0, b.size() - 1)) == "1 body_bytes");
    CHECK(client.Refused(2, a + MessageOf(GetStatsRequest{})) == "1 type");
    std::string wild = b;
    const uint32_t body_bytes = ~uint32_t{0};
    std::memcpy(wild.data() + 8, &body_bytes, sizeof(body_bytes));
    CHECK(client.Refused(2, a + wild) == "1 body_bytes");
    OpenSequenceRequest long_prompt = OpeningOf("p");
    long_prompt.num_prompt_ids = 3;
    CHECK(client.Refused(1, MessageOf(long_prompt) + "12345678") == "0 fd");
    long_prompt.num_prompt_ids = ~uint32_t{0};
    CHECK(client.Refused(1, MessageOf(long_prompt)) == "0 num_prompt_ids");
    OpenSequenceRequest wrong = OpeningOf("w");
    wrong.numbers = {{"temperature", -1}};
    Reply reply = client.Open(3, a + b + MessageOf(wrong));
    CHECK(std::get<SequencesReply>(reply).refused == 2);
    CHECK(std::get<SequencesReply>(reply).text.starts_with("temperature = -1"));
    // A file of another size than was said, and one that is no memory.
    reply = client.Call(OpenSequencesRequest{1, static_cast<uint32_t>(a.size()) + 1}, FileOf(a));
    CHECK(std::get<ErrorReply>(reply).field == "fd");
    reply = client.Call(OpenSequencesRequest{1, (uint32_t{1} << 25) + 1}, FileOf(a));
    CHECK(std::get<ErrorReply>(reply).field == "file_bytes");
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const UniqueFd writer(ends[1]);
    reply =
        client.Call(OpenSequencesRequest{1, static_cast<uint32_t>(a.size())}, UniqueFd(ends[0]));
    CHECK(std::get<ErrorReply>(reply).field == "fd");
    // All names and slots are free.
    CHECK(std::get<SequencesReply>(client.Open(2, a + b)).sequences.size() == 2);
    CHECK(client.Refused(2, MessageOf(OpeningOf("c")) + b) == "1 request_id");
  }
}

}  // namespace
}  // namespace specd
