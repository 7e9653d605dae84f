#include "tools/http/abort_queue.h"

#include <fmt/format.h>

#include <utility>

#include "ipc/events/ask.h"
#include "ipc/sockets/request_socket.h"
#include "tools/http/say.h"

namespace specd::http {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr int kTries = 10;  // for a daemon that is being replaced

}  // namespace

AbortQueue::AbortQueue(ZmqContext* context, std::string ask, std::function<void()> on_result)
    : context_(context),
      ask_(std::move(ask)),
      on_result_(std::move(on_result)),
      thread_([this] { Run(); }) {}

AbortQueue::~AbortQueue() {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
  }
  thread_.join();
}

AbortResult AbortQueue::Abort(const std::string& request_id) {
  Waiting one = {.request_id = request_id};
  AbortResult result = one.result.get_future().share();
  absl::MutexLock lock(&mutex_);
  if (waiting_.size() < kWaitingMax) {
    waiting_.push_back(std::move(one));
    return result;
  }
  const std::string why =
      fmt::format("{} is not aborted, because {} others wait", request_id, kWaitingMax);
  Say(why);
  one.result.set_value(absl::ResourceExhaustedError(why));
  return result;
}

void AbortQueue::Run() {
  RequestSocket asker(context_, ask_);
  while (true) {
    Waiting one;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](AbortQueue* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
            return self->is_over_ || !self->waiting_.empty();
          },
          this));
      if (is_over_) return;
      one = std::move(waiting_.front());
      waiting_.pop_front();
    }
    std::string ask;
    AppendAsk({.kind = AskKind::kAbort, .request_id = one.request_id}, &ask);
    absl::Status status = absl::DeadlineExceededError("");
    for (int i = 0; i < kTries && absl::IsDeadlineExceeded(status); ++i) {
      const absl::StatusOr<std::string> reply = asker.Ask(ask, kPatience);
      status = reply.ok() ? DecodeTokenAnswer(*reply).status() : reply.status();
    }
    // A stream that has ended meanwhile is refused (NOT_FOUND): that is as good.
    if (!status.ok() && !absl::IsNotFound(status) && !absl::IsCancelled(status)) {
      Say(fmt::format("{} is not aborted: {}", one.request_id, std::string(status.message())));
    }
    one.result.set_value(status);
    on_result_();
  }
}

}  // namespace specd::http
