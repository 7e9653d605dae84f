// ControlClient speaks bytes to a ControlService over a fresh session, for tests of its answers.
// One thread.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/session/control_service.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {

struct ControlClient {
  ControlClient() : service(MakeHost()) {}

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

}  // namespace specd
