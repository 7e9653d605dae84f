// A ReplySocket answers libzmq's REQ sockets, and what a stranger costs is bounded.
#include "ipc/sockets/reply_socket.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/sockets/request_socket.h"
#include "tests/ipc/sockets/raw_peer.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

using std::string_view_literals::operator""sv;

// Peers over TCP are nobody's user.
std::string FreeTcpEndpoint() {
  const UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  REQUIRE(bind(taken.get(), any, size) == 0);
  REQUIRE(getsockname(taken.get(), any, &size) == 0);
  return "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

struct Fixture {
  explicit Fixture(ReplyOptions options = {}) {
    options.busy = "busy";
    options.on_trouble = [this](std::string_view what) { troubles += std::string(what) + "\n"; };
    absl::StatusOr<ReplySocket> made = ReplySocket::Make(&*context, options);
    REQUIRE(made.ok());
    reply.emplace(*std::move(made));
    REQUIRE(reply->Bind("ipc://" + path).ok());
  }
  // An answer is the request twice, or as long as it says.
  static std::string AnswerTo(std::string_view request) {
    if (request.starts_with("long")) return std::string(300'000, 'x');
    if (request.starts_with("huge")) return std::string(50'000'000, 'x');
    return std::string(request) + std::string(request);
  }
  void Step() {
    reply->Step([this](std::string_view request, uint32_t) {
      ++num_answers;
      return AnswerTo(request);
    });
  }
  void StepUntilTold(std::string_view word) {
    // A set inspects its peers once a second.
    const absl::Time end = PeerSet::Now() + absl::Seconds(30);
    while (troubles.find(word) == std::string::npos && PeerSet::Now() < end) Step();
    REQUIRE(troubles.find(word) != std::string::npos);
  }
  // Steps until so many answers wait, in bytes.
  void StepUntilWaiting(size_t bytes) {
    for (int i = 0; i < 1'000'000 && reply->waiting_bytes() < bytes; ++i) Step();
    REQUIRE(reply->waiting_bytes() >= bytes);
  }

  int num_answers = 0;
  std::string troubles;
  const TemporaryFolder folder;
  const std::string path = folder.Of("s");
  absl::StatusOr<ZmqContext> context = ZmqContext::Make();
  std::optional<ReplySocket> reply;
};

TEST_SUITE("unit") {
  TEST_CASE("zmq: requests of other processes' sockets and of threads are answered") {
    Fixture f;
    REQUIRE(f.reply->Bind("inproc://ask").ok());
    std::atomic<bool> done{false};
    std::vector<std::string> answers;
    std::thread asker([&] {
      for (const std::string& endpoint : {"ipc://" + f.path, std::string("inproc://ask")}) {
        RequestSocket request(&*f.context, endpoint);
        for (const size_t size : {0, 1, 255, 4096}) {
          answers.push_back(
              request.Ask(std::string(size, 'q'), absl::Seconds(30)).value_or("none"));
        }
        answers.push_back(request.Ask("long", absl::Seconds(30)).value_or("none"));
      }
      done = true;
    });
    while (!done) f.Step();
    asker.join();
    REQUIRE(answers.size() == 10);
    for (size_t i = 0; i < answers.size(); i += 5) {
      CHECK(answers[i].empty());
      CHECK(answers[i + 1] == "qq");
      CHECK(answers[i + 2] == std::string(510, 'q'));
      CHECK(answers[i + 3] == std::string(8192, 'q'));
      CHECK(answers[i + 4] == std::string(300'000, 'x'));
    }
    CHECK(f.troubles.empty());
    CHECK(f.reply->waiting_bytes() == 0);
  }

  TEST_CASE("request: an answer that came too late is not that of the next request") {
    Fixture f;
    REQUIRE(f.reply->Bind("inproc://ask").ok());
    RequestSocket request(&*f.context, "inproc://ask");
    CHECK(absl::IsDeadlineExceeded(request.Ask("first", absl::Milliseconds(1)).status()));
    std::atomic<bool> done{false};
    std::string answer;
    std::thread asker([&] {
      answer = request.Ask("second", absl::Seconds(30)).value_or("none");
      done = true;
    });
    while (!done) f.Step();
    asker.join();
    CHECK(answer == "secondsecond");
  }
}

TEST_SUITE("fault") {
  TEST_CASE("reply: a peer that asks without reading is disconnected") {
    Fixture f;
    RawPeer raw(f.path, "REQ");
    raw.Say("\1\0\0\4long\1\0\0\4long"sv);
    f.StepUntilTold("it asks again before it has read its answer");
    CHECK(f.reply->waiting_bytes() == 0);
    CHECK_FALSE(raw.ReadUntil("never"));
  }

  TEST_CASE("reply: of many requests that a peer sends together one is answered") {
    // Bug: small answers went out at once, and a Step answered as many requests as one read had.
    Fixture f;
    RawPeer raw(f.path, "REQ");
    std::string together;
    for (int i = 0; i < 100; ++i) together += "\1\0\0\3abc"sv;
    raw.Say(together);
    f.StepUntilTold("it asks again before it has read its answer");
    CHECK(f.num_answers == 1);
    CHECK_FALSE(raw.ReadUntil("never"));
  }

  TEST_CASE("reply: a peer that reads nothing is disconnected, and its answer is dropped") {
    Fixture f({.answer_max = absl::ZeroDuration()});
    RawPeer raw(f.path, "REQ");
    raw.Say("\1\0\0\4long"sv);
    f.StepUntilTold("has not read the answer within 0");
    CHECK(f.reply->waiting_bytes() == 0);
  }

  TEST_CASE("reply: a peer that reads its answer slowly is disconnected too") {
    // Bug: each byte that it read gave it 10 seconds more.
    Fixture f({.answer_max = absl::Milliseconds(1500)});
    RawPeer raw(f.path, "REQ");
    raw.Say("\1\0\0\4huge"sv);
    f.StepUntilWaiting(1'000'000);
    absl::Time next = PeerSet::Now();
    const absl::Time end = next + absl::Seconds(30);
    // 4 MB a second, for an answer of 50 MB.
    while (f.troubles.empty() && PeerSet::Now() < end) {
      f.Step();
      if (PeerSet::Now() < next) continue;
      next += absl::Milliseconds(10);
      raw.ReadSome(40'000);
    }
    CHECK(f.troubles.find("has not read the answer within 1.5s") != std::string::npos);
    CHECK(f.reply->waiting_bytes() == 0);
  }

  TEST_CASE("reply: slow peers of one user keep no other user waiting") {
    // Bug: they shared the bytes of answers, and specd-detok heard that it must wait.
    Fixture f({.waiting_bytes_max = 1});
    RawPeer deaf(f.path, "REQ");
    deaf.Say("\1\0\0\4long"sv);
    f.StepUntilWaiting(2);
    const std::string tcp = FreeTcpEndpoint();
    REQUIRE(f.reply->Bind(tcp).ok());
    std::atomic<bool> done{false};
    std::string answer;
    std::thread asker([&] {
      RequestSocket request(&*f.context, tcp);
      answer = request.Ask("abc", absl::Seconds(30)).value_or("none");
      done = true;
    });
    while (!done) f.Step();
    asker.join();
    CHECK(answer == "abcabc");
  }

  TEST_CASE("reply: when too many answers wait, the next peer hears that it must wait") {
    Fixture f({.waiting_bytes_max = 1});
    RawPeer deaf(f.path, "REQ");
    deaf.Say("\1\0\0\4long"sv);
    f.StepUntilWaiting(2);
    RawPeer raw(f.path, "REQ");
    raw.Say("\1\0\0\3abc"sv);
    std::atomic<bool> done{false};
    std::thread reader([&] {
      CHECK(raw.ReadUntil("busy"));
      done = true;
    });
    while (!done) f.Step();
    reader.join();
  }

  TEST_CASE("reply: a frame that is too large, or one frame alone, ends the connection") {
    for (const std::string_view bytes :
         {"\2\0\0\0\0\0\1\0\0"sv, "\0\3abc"sv, "\1\1x\0\3abc"sv, "\1\0\1\0\0\3abc"sv}) {
      Fixture f;
      RawPeer raw(f.path, "REQ");
      raw.Say(bytes);
      f.StepUntilTold("is disconnected");
      CHECK_FALSE(raw.ReadUntil("never"));
    }
  }
}

}  // namespace
}  // namespace specd
