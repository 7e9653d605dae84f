// The order in which a StreamWorker does the work of several CUDA streams.
#include "tests/gpu/ptx/runtime/stream_worker.h"

#include <doctest/doctest.h>

#include <atomic>
#include <string>

#include "tests/gpu/ptx/tests/held_worker.h"

namespace specd::ptx {
namespace {

std::shared_ptr<StreamQueue> NewQueue() { return std::make_shared<StreamQueue>(); }

// The order of three pieces of each of two CUDA streams: "a0", "b0" and so on.
std::string OrderOf(uint64_t seed) {
  StreamWorker worker(seed);
  std::string order;
  const auto other = NewQueue();
  const std::shared_ptr<StreamQueue> queues[] = {NewQueue(), NewQueue()};
  HeldWorker held([&](Work work) { worker.Push(other, {.run = std::move(work)}); });
  for (const char piece : {'0', '1', '2'}) {
    for (int i = 0; i < 2; ++i) {
      worker.Push(queues[i], {.run = [&order, i, piece] {
                    order += {"ab"[i], piece};
                    return absl::OkStatus();
                  }});
    }
  }
  held.Release();
  worker.AwaitAll();
  return order;
}

TEST_SUITE("ptx") {
  TEST_CASE("PTX streams: the seed decides the order between CUDA streams, and none within one") {
    std::string first_order;
    bool differs = false;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(seed);
      const std::string order = OrderOf(seed);
      REQUIRE(order.size() == 12);
      for (const std::string stream : {"a", "b"}) {
        CHECK(order.find(stream + "0") < order.find(stream + "1"));
        CHECK(order.find(stream + "1") < order.find(stream + "2"));
      }
      CHECK(OrderOf(seed) == order);
      if (seed == 1) first_order = order;
      differs = differs || order != first_order;
    }
    CHECK(differs);
  }

  TEST_CASE("PTX streams: work comes after the mark that it waits for, and a null mark is none") {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      StreamWorker worker(seed);
      const auto other = NewQueue();
      const auto first = NewQueue();
      const auto second = NewQueue();
      bool is_done = false;
      bool came_after = false;
      HeldWorker held([&](Work work) { worker.Push(other, {.run = std::move(work)}); });
      worker.Push(first, {});
      const Mark mark = worker.Push(first, {.run = [&] {
                                      is_done = true;
                                      return absl::OkStatus();
                                    }});
      worker.Push(second, {.run =
                               [&] {
                                 came_after = is_done;
                                 return absl::OkStatus();
                               },
                           .after = mark});
      CHECK_FALSE(worker.DoneSince(mark).has_value());
      CHECK_FALSE(worker.IsIdle(*second));
      held.Release();
      worker.AwaitIdle(*second);
      CHECK(came_after);
      CHECK(worker.DoneSince(mark).has_value());
    }
  }

  TEST_CASE("PTX streams: after an error nothing runs, and the first error stays") {
    StreamWorker worker(1);
    const auto queue = NewQueue();
    bool ran = false;
    {
      HeldWorker held([&](Work work) { worker.Push(queue, {.run = std::move(work)}); });
      worker.Push(queue, {.run = [] { return absl::InternalError("the first"); }});
      worker.Push(queue, {.run = [&] {
                    ran = true;
                    return absl::InternalError("the second");
                  }});
      CHECK(worker.status().ok());
    }
    worker.AwaitAll();
    CHECK_FALSE(ran);
    CHECK(worker.status().message() == "the first");
    worker.Fail(absl::InternalError("the caller's"));
    CHECK(worker.status().message() == "the first");
  }

  TEST_CASE("PTX streams: a full CUDA stream makes its caller wait") {
    StreamWorker worker(1);
    const auto queue = NewQueue();
    std::atomic<size_t> num_pushed = 0;
    size_t num_run = 0;
    bool was_too_full = false;
    for (int i = 0; i < 1000; ++i) {
      worker.Push(queue, {.run = [&] {
                    // Slower than a push.
                    for (std::atomic<int> turn = 0; turn < 10000; ++turn) continue;
                    was_too_full |= num_pushed > num_run + 1 + StreamWorker::kMostWaiting;
                    ++num_run;
                    return absl::OkStatus();
                  }});
      ++num_pushed;
    }
    worker.AwaitAll();
    CHECK(num_run == 1000);
    CHECK_FALSE(was_too_full);
  }
}

}  // namespace
}  // namespace specd::ptx
