// A ReplySocket answers libzmq's REQ sockets, and what a stranger costs is bounded.
#include "ipc/sockets/reply_socket.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/sockets/request_socket.h"
#include "tests/ipc/sockets/raw_peer.h"

namespace specd {
namespace {

using std::string_view_literals::operator""sv;

struct Fixture {
  explicit Fixture(ReplyOptions options = {}) {
    std::string name = (std::filesystem::temp_directory_path() / "specd-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder = name;
    path = folder + "/s";
    options.busy = "busy";
    options.on_trouble = [this](std::string_view what) { troubles += std::string(what) + "\n"; };
    absl::StatusOr<ReplySocket> made = ReplySocket::Make(&*context, options);
    REQUIRE(made.ok());
    reply.emplace(*std::move(made));
    REQUIRE(reply->Bind("ipc://" + path).ok());
  }
  ~Fixture() {
    reply.reset();
    std::filesystem::remove_all(folder);
  }
  // An answer is the request twice, or as long as it says.
  static std::string AnswerTo(std::string_view request) {
    if (request.starts_with("long")) return std::string(300'000, 'x');
    return std::string(request) + std::string(request);
  }
  void Step() { reply->Step(&AnswerTo); }
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

  std::string troubles;
  std::string folder;
  std::string path;
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

  TEST_CASE("reply: a peer that reads nothing is disconnected, and its answer is dropped") {
    Fixture f({.deaf_max = absl::ZeroDuration()});
    RawPeer raw(f.path, "REQ");
    raw.Say("\1\0\0\4long"sv);
    f.StepUntilTold("does not read the answer");
    CHECK(f.reply->waiting_bytes() == 0);
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
