#include "daemon/session/control_service.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/base/error.h"
#include "tests/daemon/session/control_client.h"
#include "tests/support/sealed_memory.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("messages out of order are refused and change nothing") {
    ControlClient client;
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
    ControlClient client;
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
    ControlClient client;
    client.Attach();
    const int fd = client.fixture.session->segment().fd();
    CHECK(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  }

  TEST_CASE("a region needs one sealed descriptor; what is bound must lie inside it") {
    ControlClient client;
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
    ControlClient client;
    const std::vector<uint8_t> noise(40, 0xab);
    const ControlService::Answer answer = client.service.Handle(noise, {});
    CHECK(answer.close);
    const auto header = DecodeHeader(answer.message, ControlReader::kLibrary);
    REQUIRE(header.ok());
    CHECK(header->type == ControlType::kErrorReply);
  }

  TEST_CASE("another protocol version is told which side to upgrade") {
    ControlClient client;
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
    ControlClient client;
    const Reply reply = client.Call(HelloRequest{});
    const auto* hello = std::get_if<HelloReply>(&reply);
    REQUIRE(hello != nullptr);
    CHECK(hello->session_id == 1);  // of the fixture's session
    CHECK(hello->daemon_epoch == 77);
    CHECK(hello->version == "9.8.7");
    CHECK(hello->text_endpoint == "ipc:///text");
  }

  TEST_CASE("a field that is a peer's parameter is refused with what to do instead") {
    // Sends a message as an engine with its own msgpack would.
    ControlClient client;
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
    ControlClient client;
    const UniqueFd fd = SealedMemory(4096);
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
}

}  // namespace
}  // namespace specd
