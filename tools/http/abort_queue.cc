#include "tools/http/abort_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ipc/events/ask.h"
#include "tools/http/say.h"

namespace specd::http {
namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

AbortQueue::AbortQueue(ZmqContext* context, Options options)
    : context_(context), options_(std::move(options)), thread_([this] { Run(); }) {}

AbortQueue::~AbortQueue() {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    news_.Signal();
  }
  thread_.join();
}

AbortResult AbortQueue::Abort(const std::string& request_id) {
  const SteadyTime now = SteadyClock::now();
  Waiting one = {.request_id = request_id,
                 .stream = options_.running(request_id),
                 .due = now,
                 .expires = now + absl::ToChronoNanoseconds(options_.keep)};
  absl::MutexLock lock(&mutex_);
  const auto same = std::find_if(waiting_.begin(), waiting_.end(), [&one](const Waiting& each) {
    return each.request_id == one.request_id && each.stream == one.stream;
  });
  if (same != waiting_.end()) {
    same->expires = one.expires;
    return same->result;
  }
  AbortResult result = one.result;
  if (waiting_.size() < kWaitingMax) {
    waiting_.push_back(std::move(one));
    news_.Signal();
    return result;
  }
  const std::string why =
      fmt::format("{} is not aborted, because {} others wait", request_id, kWaitingMax);
  Say(why);
  one.promise.set_value(absl::ResourceExhaustedError(why));
  return result;
}

void AbortQueue::Run() {
  RequestSocket asker(context_, options_.ask);
  while (std::optional<Waiting> one = Next()) {
    const std::optional<absl::Status> status = Ask(&asker, &*one);
    status.has_value() ? Finish(&*one, *status) : AskAgain(*std::move(one));
  }
}

std::optional<AbortQueue::Waiting> AbortQueue::Next() {
  absl::MutexLock lock(&mutex_);
  while (!is_over_) {
    const auto first =
        std::min_element(waiting_.begin(), waiting_.end(),
                         [](const Waiting& a, const Waiting& b) { return a.due < b.due; });
    const SteadyTime now = SteadyClock::now();
    if (first == waiting_.end()) {
      news_.Wait(&mutex_);
    } else if (first->due > now) {
      news_.WaitWithTimeout(&mutex_, absl::FromChrono(first->due - now));
    } else {
      Waiting one = std::move(*first);
      waiting_.erase(first);
      return one;
    }
  }
  return std::nullopt;
}

std::optional<absl::Status> AbortQueue::Ask(RequestSocket* asker, Waiting* one) const {
  if (SteadyClock::now() >= one->expires) return one->last;
  std::string ask;
  AppendAsk({.kind = AskKind::kAbort, .request_id = one->request_id}, &ask);
  const absl::StatusOr<std::string> reply = asker->Ask(ask, options_.answer_max);
  const absl::Status status = reply.ok() ? DecodeTokenAnswer(*reply).status() : reply.status();
  const bool is_unanswered = absl::IsDeadlineExceeded(status);
  const bool is_unknown = absl::IsNotFound(status);
  if (!is_unanswered && !is_unknown && !absl::IsUnavailable(status)) return status;
  if (!one->stream.has_value()) one->stream = options_.running(one->request_id);
  const bool runs = one->stream.has_value() && options_.running(one->request_id) == one->stream;
  one->was_unanswered |= is_unanswered;
  one->last = absl::UnavailableError(
      fmt::format("{}{}", std::string(status.message()),
                  is_unknown ? ", though its text goes on; its engine may come back" : ""));
  // Once its stream has ended, a further ask would end the next one of this request id.
  if (runs || (!is_unknown && !one->stream.has_value())) return std::nullopt;
  if (is_unknown && !one->was_unanswered) return status;
  return absl::NotFoundError(
      fmt::format("request {} had ended, or was ended just now", one->request_id));
}

void AbortQueue::AskAgain(Waiting one) {
  one.due = SteadyClock::now() + absl::ToChronoNanoseconds(options_.pause);
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(one));
}

void AbortQueue::Finish(Waiting* one, const absl::Status& status) const {
  // A stream that has ended meanwhile is refused (NOT_FOUND): that is as good.
  if (!status.ok() && !absl::IsNotFound(status) && !absl::IsCancelled(status)) {
    Say(fmt::format("{} is not aborted: {}", one->request_id, std::string(status.message())));
  }
  one->promise.set_value(status);
  options_.on_result();
}

}  // namespace specd::http
