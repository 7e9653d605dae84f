#include "daemon/session/control_service.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

// A service over a fresh session, and a client that speaks bytes to it.
struct Client {
  Client() : service(MakeHost()) {}

  ControlHost MakeHost() {
    ControlHost host;
    host.open_session = [this](const HelloRequest&) -> absl::StatusOr<std::shared_ptr<Session>> {
      return fixture.session;
    };
    host.hello.version = "9.8.7";
    host.hello.text_endpoint = "ipc:///text";
    host.serve = [this](const std::shared_ptr<Session>&) { ++served; };
    return host;
  }

  Reply Call(const Request& request, int fd = -1) {
    auto message = EncodeRequest(request, ++next_id);
    REQUIRE(message.ok());
    std::vector<UniqueFd> fds;
    if (fd >= 0) fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    const ControlService::Answer answer = service.Handle(*message, std::move(fds));
    const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
    REQUIRE(header.ok());
    CHECK(header->request_id == next_id);
    auto reply = DecodeReply(*header, answer.message);
    REQUIRE(reply.ok());
    return *reply;
  }

  int32_t Code(const Request& request, int fd = -1) {
    const Reply reply = Call(request, fd);
    const auto* error = std::get_if<ErrorReply>(&reply);
    return error == nullptr ? SPECD_OK : error->code;
  }

  // Returns the text side's part of the one opening that waits in the events.
  TokenEvent OpenedInfo() {
    TokenEvent event;
    REQUIRE(fixture.Pop(&event));
    REQUIRE(event.kind() == TokenEventKind::kOpen);
    return event;
  }

  CompletionView Round(uint64_t sequence, ScriptedOutcome outcome) {
    fixture.backend->script = {std::move(outcome)};
    REQUIRE(fixture.Submit({sequence}) == PushResult::kOk);
    REQUIRE(StepSession(fixture.session));
    CompletionView done;
    REQUIRE(fixture.engine->Poll(&done));
    return done;
  }

  void Attach() {
    REQUIRE(Code(HelloRequest{}) == SPECD_OK);
    REQUIRE(Code(MappedRequest{}) == SPECD_OK);
  }

  SessionFixture fixture;
  int served = 0;
  uint32_t next_id = 0;
  ControlService service;
};

TEST_SUITE("unit") {
  TEST_CASE("messages out of order are refused and change nothing") {
    Client client;
    CHECK(client.Code(OpenSequenceRequest{}) == SPECD_ERROR_STATE);
    CHECK(client.Code(MappedRequest{}) == SPECD_ERROR_STATE);
    CHECK(client.Code(HelloRequest{}) == SPECD_OK);
    CHECK(client.served == 0);  // not before the engine has mapped the segment
    OpenSequenceRequest open;
    open.request_id = "r";
    CHECK(client.Code(open) == SPECD_ERROR_STATE);
    CHECK(client.Code(MappedRequest{}) == SPECD_OK);
    CHECK(client.served == 1);
    CHECK(client.Code(MappedRequest{}) == SPECD_ERROR_STATE);
    CHECK(client.Code(HelloRequest{}) == SPECD_ERROR_STATE);
    CHECK(client.Code(open) == SPECD_OK);
  }

  TEST_CASE("a request that finds no memory is refused, and the connection goes on") {
    SessionFixture fixture;
    bool full = true;
    ControlHost host;
    host.open_session = [&](const HelloRequest&) -> absl::StatusOr<std::shared_ptr<Session>> {
      if (full) throw std::bad_alloc();
      return fixture.session;
    };
    ControlService service(host);
    const auto hello = EncodeRequest(HelloRequest{}, 1);
    REQUIRE(hello.ok());
    const auto reply_of = [](const ControlService::Answer& answer) {
      CHECK_FALSE(answer.close);
      const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
      REQUIRE(header.ok());
      return *DecodeReply(*header, answer.message);
    };
    const Reply refused = reply_of(service.Handle(*hello, {}));
    REQUIRE(std::holds_alternative<ErrorReply>(refused));
    CHECK(std::get<ErrorReply>(refused).code == SPECD_ERROR_EXHAUSTED);
    CHECK(std::get<ErrorReply>(refused).text.find("memory") != std::string::npos);
    full = false;
    CHECK(std::holds_alternative<HelloReply>(reply_of(service.Handle(*hello, {}))));
  }

  TEST_CASE("a message that is not handled is refused with its id, and changes nothing") {
    Client client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "r";
    const auto message = EncodeRequest(open, 77);
    REQUIRE(message.ok());
    const ControlService::Answer answer = client.service.Refuse(
        *message, MakeError(SPECD_ERROR_EXHAUSTED, "it", "there is no thread"));
    CHECK_FALSE(answer.close);
    const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
    REQUIRE(header.ok());
    CHECK(header->request_id == 77);
    const auto reply = DecodeReply(*header, answer.message);
    REQUIRE(reply.ok());
    REQUIRE(std::holds_alternative<ErrorReply>(*reply));
    CHECK(std::get<ErrorReply>(*reply).code == SPECD_ERROR_EXHAUSTED);
    CHECK(std::get<ErrorReply>(*reply).field == "it");
    CHECK(client.Code(open) == SPECD_OK);  // the name is free
  }

  TEST_CASE("after the mapping nobody can map the segment for writing again") {
    Client client;
    client.Attach();
    const int fd = client.fixture.session->segment().fd();
    CHECK(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  }

  TEST_CASE("a sequence is opened, aborted and closed; a second close finds nothing") {
    Client client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "r";
    open.numbers = {{"temperature", 0.5}};
    open.has_seed = true;
    open.seed = 99;
    const Reply reply = client.Call(open);
    const auto* sequence = std::get_if<SequenceReply>(&reply);
    REQUIRE(sequence != nullptr);
    CHECK(sequence->seeds == std::vector<uint64_t>{99});
    CHECK(sequence->verify == SPECD_VERIFY_AUTO);
    CHECK(client.Code(AbortSequenceRequest{sequence->sequences[0]}) == SPECD_OK);
    CHECK(client.fixture.engine->ReadState(0).finish_reason == SPECD_FINISH_ABORT);
    CHECK(client.Code(CloseSequenceRequest{sequence->sequences[0]}) == SPECD_OK);
    CHECK(client.Code(CloseSequenceRequest{sequence->sequences[0]}) == SPECD_ERROR_NOT_FOUND);
  }

  TEST_CASE("a region needs one sealed descriptor; what is bound must lie inside it") {
    Client client;
    client.Attach();
    RegisterRegionRequest region{4096};
    CHECK(client.Code(region) == SPECD_ERROR_INVALID_ARGUMENT);
    UniqueFd fd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(ftruncate(fd.get(), 4096) == 0);
    CHECK(client.Code(region, fd.get()) == SPECD_ERROR_REGION);  // not sealed
    REQUIRE(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(client.Code(RegisterRegionRequest{8192}, fd.get()) == SPECD_ERROR_REGION);  // too short
    const Reply reply = client.Call(region, fd.get());
    const auto* registered = std::get_if<RegionReply>(&reply);
    REQUIRE(registered != nullptr);
    BindTensorRequest bind{SPECD_TARGET_ROWS,
                           registered->region,
                           {.dtype = SPECD_FLOAT32, .num_rows = 128, .kind = SPECD_LOGITS}};
    CHECK(client.Code(bind) == SPECD_OK);  // 128 rows of 8 floats are 4096 bytes
    bind.spec.num_rows = 129;
    CHECK(client.Code(bind) == SPECD_ERROR_REGION);
    bind.spec.num_rows = 1;
    bind.spec.offset_bytes = ~uint64_t{0} - 31;
    CHECK(client.Code(bind) != SPECD_OK);
  }

  TEST_CASE("bytes that are no message are answered once and the connection is closed") {
    Client client;
    const std::vector<uint8_t> noise(40, 0xab);
    const ControlService::Answer answer = client.service.Handle(noise, {});
    CHECK(answer.close);
    const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
    REQUIRE(header.ok());
    CHECK(header->type == ControlType::kErrorReply);
  }

  TEST_CASE("another protocol version is told which side to upgrade") {
    Client client;
    auto message = EncodeRequest(HelloRequest{}, 1);
    REQUIRE(message.ok());
    (*message)[4] = kProtocolVersion + 1;
    const ControlService::Answer answer = client.service.Handle(*message, {});
    const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
    REQUIRE(header.ok());
    const auto reply = DecodeReply(*header, answer.message);
    REQUIRE(reply.ok());
    const auto* error = std::get_if<ErrorReply>(&*reply);
    REQUIRE(error != nullptr);
    CHECK(error->code == SPECD_ERROR_VERSION);
    CHECK(error->text.find("upgrade") != std::string::npos);
    CHECK(client.service.session() == nullptr);
  }

  TEST_CASE("a hello is told who the session is, and what the host says of itself") {
    Client client;
    const Reply reply = client.Call(HelloRequest{});
    const auto* hello = std::get_if<HelloReply>(&reply);
    REQUIRE(hello != nullptr);
    CHECK(hello->session_id == 1);  // of the fixture's session
    CHECK(hello->daemon_epoch == 77);
    CHECK(hello->version == "9.8.7");
    CHECK(hello->text_endpoint == "ipc:///text");
  }

  TEST_CASE("every parameter of an opening arrives where it is used") {
    Client client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "r";
    open.numbers = {{"verify", SPECD_VERIFY_TOKEN},
                    {"temperature", 0.5},
                    {"draft_temperature", 0.8},
                    {"max_tokens", 5},
                    {"ignore_eos", 1},
                    {"include_stop", 1},
                    {"skip_special_tokens", 0}};
    open.has_seed = true;
    open.seed = 99;
    open.stop_token_ids = {6};
    open.stop_strings = {"x"};
    Reply reply = client.Call(open);
    const uint64_t first = std::get<SequenceReply>(reply).sequences[0];
    CHECK(std::get<SequenceReply>(reply).seeds[0] == 99);
    CHECK(std::get<SequenceReply>(reply).verify == SPECD_VERIFY_TOKEN);
    const TokenEvent info = client.OpenedInfo();
    CHECK(info.opening()->request_id == "r");
    CHECK(info.opening()->stop_strings == std::vector<std::string>{"x"});
    CHECK(info.opening()->include_stop);
    CHECK_FALSE(info.opening()->skip_special_tokens);

    CompletionView done = client.Round(first, Confirm(3, {1, 7, 1, 1}));  // 7 is EOS
    CHECK(done.results[0].finish_reason == FinishReason::kNone);
    done = client.Round(first, Confirm(3, {1, 1, 1, 1}));
    CHECK(done.results[0].finish_reason == FinishReason::kLength);
    CHECK(done.results[0].total_kept == 5);
    const Task& task = client.fixture.backend->seen[0];
    CHECK(task.method == VerifyMethod::kToken);
    CHECK(task.target_scale == static_cast<float>(2.8853900817779268));  // log2(e) / 0.5
    CHECK(task.draft_scale == static_cast<float>(1.8033688011112043));   // log2(e) / 0.8
    CHECK(task.seed == 99);

    open.request_id = "s";
    reply = client.Call(open);
    done = client.Round(std::get<SequenceReply>(reply).sequences[0], Confirm(1, {1, 6}));
    CHECK(done.results[0].finish_reason == FinishReason::kStop);
    CHECK(done.results[0].stop_token == 6);
  }

  TEST_CASE("a fork and the counters are asked for in messages of their own") {
    Client client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "r";
    Reply reply = client.Call(open);
    const uint64_t source = std::get<SequenceReply>(reply).sequences[0];
    client.Round(source, Confirm(2, {1, 2, 3}));
    reply = client.Call(ForkSequenceRequest{source, "s", true, 17});
    const auto* fork = std::get_if<SequenceReply>(&reply);
    REQUIRE(fork != nullptr);
    REQUIRE(fork->sequences.size() == 1);
    CHECK(fork->sequences[0] != source);
    CHECK(fork->seeds == std::vector<uint64_t>{17});
    CHECK(client.Code(ForkSequenceRequest{source, "s", false, 0}) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(client.Code(ForkSequenceRequest{source, "t", false, 0}) == SPECD_OK);
    reply = client.Call(GetStatsRequest{});
    const auto* stats = std::get_if<StatsReply>(&reply);
    REQUIRE(stats != nullptr);
    CHECK(stats->counters.rounds == 1);
    CHECK(stats->counters.drafted == 3);
    CHECK(stats->counters.accepted == 2);
    CHECK(stats->counters.kept == 3);
  }

  TEST_CASE("what a request has made goes if its answer was given up, and nothing else does") {
    Client client;
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "kept";
    REQUIRE(client.Code(open) == SPECD_OK);
    open.request_id = "r";
    open.numbers = {{"n", 2}};
    REQUIRE(client.Code(open) == SPECD_OK);
    CHECK(client.Code(GiveUpRequest{client.next_id}) == SPECD_OK);
    CHECK(client.fixture.names.Claim("r"));
    CHECK(client.fixture.names.Claim("r#1"));
    CHECK_FALSE(client.fixture.names.Claim("kept"));

    const UniqueFd file(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(ftruncate(file.get(), 4096) == 0);
    REQUIRE(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    const Reply region = client.Call(RegisterRegionRequest{4096}, file.get());
    REQUIRE(std::holds_alternative<RegionReply>(region));
    CHECK(client.Code(GiveUpRequest{client.next_id}) == SPECD_OK);
    CHECK(client.Code(UnregisterRegionRequest{std::get<RegionReply>(region).region}) ==
          SPECD_ERROR_NOT_FOUND);

    // An earlier request, one that makes nothing, and one that was refused.
    CHECK(client.Code(GiveUpRequest{3}) == SPECD_OK);
    CHECK(client.Code(GetStatsRequest{}) == SPECD_OK);
    CHECK(client.Code(GiveUpRequest{client.next_id}) == SPECD_OK);
    open.request_id = "kept";
    open.numbers = {};
    CHECK(client.Code(open) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(client.Code(GiveUpRequest{client.next_id}) == SPECD_OK);
    CHECK_FALSE(client.fixture.names.Claim("kept"));
  }

  TEST_CASE("a field that is a peer's parameter is refused with what to do instead") {
    // Sends a message as an engine with its own msgpack would.
    Client client;
    client.Attach();
    auto message = EncodeRequest(OpenSequenceRequest{}, 9);
    REQUIRE(message.ok());
    // The map has its four fields that are never left out; one more field follows.
    REQUIRE((*message)[24] == 0x84);
    ++(*message)[24];
    const std::string field =
        "\xa7"
        "best_of\x02";
    message->insert(message->end(), field.begin(), field.end());
    (*message)[8] = static_cast<uint8_t>((message->size() - 24) & 0xff);
    (*message)[9] = static_cast<uint8_t>((message->size() - 24) >> 8);
    const ControlService::Answer answer = client.service.Handle(*message, {});
    const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
    REQUIRE(header.ok());
    const auto reply = DecodeReply(*header, answer.message);
    REQUIRE(reply.ok());
    const auto* error = std::get_if<ErrorReply>(&*reply);
    REQUIRE(error != nullptr);
    CHECK(error->code == SPECD_ERROR_UNSUPPORTED);
    CHECK(error->field == "best_of");
    CHECK(error->text.find("best_of is refused") != std::string::npos);
  }

  TEST_CASE("descriptors that nobody announced are refused, and so is a second one") {
    Client client;
    UniqueFd fd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(ftruncate(fd.get(), 4096) == 0);
    REQUIRE(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(client.Code(HelloRequest{}, fd.get()) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(client.service.session() == nullptr);
    client.Attach();
    auto message = EncodeRequest(RegisterRegionRequest{4096}, ++client.next_id);
    REQUIRE(message.ok());
    std::vector<UniqueFd> fds;
    for (int i = 0; i < 2; ++i) fds.emplace_back(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    const ControlService::Answer answer = client.service.Handle(*message, std::move(fds));
    const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
    REQUIRE(header.ok());
    CHECK(header->type == ControlType::kErrorReply);
    CHECK(client.Code(RegisterRegionRequest{4096}, fd.get()) == SPECD_OK);
  }

  // Bug: one engine opened as many sequences in a second as it liked.
  TEST_CASE("service: openings beyond the rate are refused, and each kind of opening counts") {
    Client client;
    SessionOptions options;
    options.identity = {3, 77};
    options.limits = SessionFixture::kLimits;
    options.profile = &client.fixture.profile;
    options.clock = &client.fixture.clock;
    options.names = &client.fixture.names;
    options.openings_per_second = 3;
    client.fixture.Attach(options, std::make_unique<ScriptedBackend>());
    client.Attach();
    OpenSequenceRequest open;
    open.request_id = "two";
    open.numbers = {{"n", 2.0}};
    const Reply opened = client.Call(open);
    REQUIRE(std::holds_alternative<SequenceReply>(opened));
    const uint64_t source = std::get<SequenceReply>(opened).sequences.front();
    CHECK(client.Code(ForkSequenceRequest{source, "fork", false, 0}) == SPECD_OK);
    open.request_id = "more";
    open.numbers = {};
    const UniqueFd file(memfd_create("openings", MFD_CLOEXEC));
    const std::pair<Request, int> refused[] = {{open, -1},
                                               {ForkSequenceRequest{source, "x", false, 0}, -1},
                                               {OpenSequencesRequest{1, 100, false}, file.get()}};
    for (const auto& each : refused) {
      const Reply reply = client.Call(each.first, each.second);
      REQUIRE(std::holds_alternative<ErrorReply>(reply));
      CHECK(std::get<ErrorReply>(reply).field == "session_openings_per_second");
    }
    // Other messages go on, and a later opening does.
    CHECK(client.Code(GetStatsRequest{}) == SPECD_OK);
    client.fixture.clock.AdvanceNs(1'000'000'000);
    CHECK(client.Code(open) == SPECD_OK);
    const SessionUse use = client.fixture.session->Use();
    CHECK(use.openings == 4);
    CHECK(use.refusals == 3);
    CHECK(use.sequences == 4);
    CHECK(use.sequences_max == 4);
    CHECK(use.openings_per_second_max == 3);
    // An opening that is refused for another reason counts as one.
    client.fixture.clock.AdvanceNs(1'000'000'000);
    for (int i = 0; i < 3; ++i) CHECK(client.Code(open) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(client.Code(open) == SPECD_ERROR_EXHAUSTED);
  }

  TEST_CASE("service: an operator sees the rounds in flight") {
    Client client;
    client.Attach();
    client.fixture.BindRows();
    const SequenceHandle handle = client.fixture.Open("s");
    client.fixture.backend->script = {ScriptedOutcome{}, ScriptedOutcome{}};
    CHECK(client.fixture.session->Use().rounds == 0);
    CHECK(client.fixture.session->Use().rounds_max == 2);
    for (const uint64_t count : {1, 2}) {
      REQUIRE(client.fixture.Submit({handle}, count) == PushResult::kOk);
      CHECK(client.fixture.session->Use().rounds == count);
    }
    REQUIRE(StepSession(client.fixture.session));
    CHECK(client.fixture.session->Use().rounds == 1);
  }
}

}  // namespace
}  // namespace specd
