#include "daemon/reader/text_subscription.h"

#include <fmt/format.h>

#include <utility>

namespace specd {
namespace {

// The longest wait of a step.
constexpr absl::Duration kTick = absl::Milliseconds(200);
// An ask without an answer is sent again: the text side may have died with it.
constexpr absl::Duration kResend = absl::Seconds(1);
// Between two asks to a side that cannot answer yet.
constexpr absl::Duration kAgain = absl::Milliseconds(50);
constexpr std::string_view kAllTexts = "text/";

}  // namespace

absl::StatusOr<TextSubscription> TextSubscription::Create(ZmqContext* context,
                                                          const Options& options) {
  absl::Status status = ValidateEndpoint("text_ask", options.text_ask);
  if (!status.ok()) return status;
  absl::StatusOr<ZmqSocket> socket = ZmqSocket::Make(context, ZmqKind::kSubscribe, {});
  if (!socket.ok()) return socket.status();
  status = socket->Subscribe(kAllTexts);
  if (status.ok()) status = socket->Subscribe(kHeartbeatTopic);
  if (status.ok()) status = socket->Connect(options.text);
  if (!status.ok()) return status;
  return TextSubscription(*std::move(socket), RequestSocket(context, options.text_ask));
}

absl::Status TextSubscription::Step(std::vector<ReadEvent>* out) {
  return reader_.ask() == nullptr ? Hear(out) : AskOnce(out);
}

absl::Status TextSubscription::Hear(std::vector<ReadEvent>* out) {
  const absl::StatusOr<bool> received = socket_.Receive(&frames_, kTick);
  if (!received.ok() || !*received) return received.status();
  if (frames_.size() != 2) {
    return absl::InvalidArgumentError(
        fmt::format("a message has {} frames; specd sends a topic and a payload", frames_.size()));
  }
  if (frames_[0] == kHeartbeatTopic) {
    const absl::StatusOr<Heartbeat> heartbeat = DecodeHeartbeat(frames_[1]);
    if (heartbeat.ok()) reader_.Hear(*heartbeat, out);
    return heartbeat.status();
  }
  absl::StatusOr<TextEvent> event = DecodeTextEvent(frames_[1]);
  if (event.ok()) reader_.Hear(*std::move(event), out);
  return event.status();
}

absl::Status TextSubscription::AskOnce(std::vector<ReadEvent>* out) {
  request_.clear();
  AppendAsk(*reader_.ask(), &request_);
  const absl::StatusOr<std::string> reply = asker_.Ask(request_, kResend);
  if (absl::IsDeadlineExceeded(reply.status())) return absl::OkStatus();  // repeated
  if (!reply.ok()) return reply.status();
  const absl::StatusOr<TextAnswer> answer = DecodeTextAnswer(*reply);
  if (absl::IsUnavailable(answer.status())) {
    absl::SleepFor(kAgain);
    return absl::OkStatus();
  }
  if (!answer.ok() && !absl::IsNotFound(answer.status())) return answer.status();
  return reader_.Answered(answer, out);
}

}  // namespace specd
