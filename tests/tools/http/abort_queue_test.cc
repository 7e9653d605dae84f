// What becomes of an abort, whatever the daemon says to each ask for it.
#include "tools/http/abort_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ipc/events/ask.h"
#include "ipc/sockets/reply_socket.h"

namespace specd::http {
namespace {

// What the daemon does with an ask. kNothing: it answers too late.
enum class Does { kNothing, kEnds, kKnowsNone, kIsBusy };

// A queue whose daemon answers as it is told, the last word again and again.
struct Scene {
  ZmqContext context = *ZmqContext::Make();
  std::vector<Does> script;
  std::atomic<size_t> num_asked{0};
  std::atomic<uint64_t> running{0};     // 0: none
  std::atomic<size_t> ends_after{999};  // asks, after which no text goes on
  std::atomic<bool> holds{false};       // an ask waits
  std::atomic<bool> is_over{false};
  std::thread daemon;
  std::unique_ptr<AbortQueue> queue;

  explicit Scene(std::vector<Does> does, absl::Duration keep = absl::Seconds(60))
      : script(std::move(does)) {
    daemon = std::thread([this, asks = *ReplySocket::Make(&context, {})]() mutable {
      REQUIRE(asks.Bind("inproc://ask").ok());
      while (!is_over) {
        if (!holds) asks.Step([this](std::string_view ask, uint32_t) { return Answer(ask); });
        absl::SleepFor(absl::Milliseconds(1));
      }
    });
    queue = std::make_unique<AbortQueue>(
        &context, AbortQueue::Options{
                      .ask = "inproc://ask",
                      .running = [this](const std::string&) -> std::optional<uint64_t> {
                        if (running == 0 || num_asked >= ends_after) return {};
                        return running.load();
                      },
                      .on_result = [] {},
                      .answer_max = absl::Milliseconds(script[0] == Does::kNothing ? 200 : 60'000),
                      .pause = absl::Milliseconds(2),
                      .keep = keep});
  }
  ~Scene() {
    is_over = true;
    daemon.join();
    context.Shutdown();
    queue.reset();
  }
  std::string Answer(std::string_view payload) {
    const absl::StatusOr<specd::Ask> ask = DecodeAsk(payload);
    CHECK(ask.ok());
    const size_t at = num_asked++;
    std::string reply;
    switch (script[std::min(at, script.size() - 1)]) {
      case Does::kNothing:
        absl::SleepFor(absl::Milliseconds(400));
        [[fallthrough]];
      case Does::kEnds:
        AppendAnswer(TokenAnswer(), &reply);
        break;
      case Does::kKnowsNone:
        AppendRefusal(absl::NotFoundError("no stream of it"), &reply);
        break;
      case Does::kIsBusy:
        AppendRefusal(absl::UnavailableError("a crowd asks"), &reply);
        break;
    }
    return reply;
  }
};

TEST_SUITE("AbortQueue") {
  // Bug: a daemon that was started just now knew no stream, and the client was told 404.
  TEST_CASE("a stream whose text goes on is asked for again until its engine has come back") {
    Scene scene({Does::kKnowsNone, Does::kKnowsNone, Does::kIsBusy, Does::kEnds});
    scene.running = 7;
    CHECK(scene.queue->Abort("r").get().ok());
    CHECK(scene.num_asked == 4);
  }

  TEST_CASE("a stream that no text is of is asked for once") {
    Scene scene({Does::kKnowsNone});
    const absl::Status status = scene.queue->Abort("r").get();
    CHECK(absl::IsNotFound(status));
    CHECK(status.message() == "no stream of it");
    CHECK(scene.num_asked == 1);
  }

  TEST_CASE("a busy daemon is asked again though no text is known") {
    Scene scene({Does::kIsBusy, Does::kIsBusy, Does::kEnds});
    CHECK(scene.queue->Abort("r").get().ok());
  }

  TEST_CASE("a stream that ends meanwhile is asked for no more") {
    Scene scene({Does::kKnowsNone});
    scene.running = 7;
    scene.ends_after = 3;
    CHECK(absl::IsNotFound(scene.queue->Abort("r").get()));
    CHECK(scene.num_asked == 3);
  }

  // Bug: the first ask ended it, its answer was lost, and the client read that none had run.
  TEST_CASE("after an ask without an answer, NOT_FOUND does not say that none had run") {
    Scene scene({Does::kNothing, Does::kKnowsNone});
    const absl::Status status = scene.queue->Abort("r").get();
    CHECK(absl::IsNotFound(status));
    CHECK(status.message() == "request r had ended, or was ended just now");
  }

  // Bug: such an ask ended the next stream of the request id.
  TEST_CASE("after an ask without an answer, the end of the text is the answer") {
    Scene scene({Does::kNothing, Does::kEnds});
    scene.running = 7;
    scene.ends_after = 1;
    const absl::Status status = scene.queue->Abort("r").get();
    CHECK(status.message() == "request r had ended, or was ended just now");
    CHECK(scene.num_asked == 1);
  }

  TEST_CASE("what waits too long is dropped, and those behind it are not kept waiting") {
    Scene scene({Does::kKnowsNone}, absl::Seconds(1));
    scene.running = 7;
    const AbortResult first = scene.queue->Abort("r");
    for (int i = 0; i < 10'000 && scene.num_asked < 2; ++i) absl::SleepFor(absl::Milliseconds(1));
    REQUIRE(scene.num_asked >= 2);
    const AbortResult second = scene.queue->Abort("s");
    const absl::Status status = first.get();
    CHECK(absl::IsUnavailable(status));
    CHECK(status.message() == "no stream of it, though its text goes on; its engine may come back");
    CHECK(absl::IsUnavailable(second.get()));
  }

  TEST_CASE("those that wait for one request are one") {
    Scene scene({Does::kEnds});
    scene.holds = true;
    const AbortResult other = scene.queue->Abort("other");
    std::vector<AbortResult> same;
    for (int i = 0; i < 5000; ++i) same.push_back(scene.queue->Abort("r"));
    scene.holds = false;
    CHECK(other.get().ok());
    for (const AbortResult& each : same) CHECK(each.get().ok());
    CHECK(scene.num_asked <= 4);  // one may be under way when the next one comes
  }
}

}  // namespace
}  // namespace specd::http
