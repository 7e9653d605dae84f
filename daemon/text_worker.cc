#include "daemon/text_worker.h"

#include <array>
#include <string_view>
#include <utility>

#include "daemon/logging.h"

namespace specd {
namespace {

// A client waits for the first heartbeat to know that it is subscribed, so the period is what a
// start costs at most.
constexpr int64_t kHeartbeatNs = 200'000'000;
constexpr absl::Duration kWait = absl::Milliseconds(50);

}  // namespace

absl::StatusOr<std::unique_ptr<TextWorker>> TextWorker::Create(const Options& options) {
  absl::StatusOr<ZmqSocket> tokens =
      ZmqSocket::Make(options.context, ZmqKind::kSubscribe, ZmqOptions{});
  if (!tokens.ok()) return tokens.status();
  absl::StatusOr<ZmqSocket> text =
      ZmqSocket::Make(options.context, ZmqKind::kPublish, ZmqOptions{});
  if (!text.ok()) return text.status();
  absl::StatusOr<ZmqSocket> aborts = ZmqSocket::Make(options.context, ZmqKind::kPush, ZmqOptions{});
  if (!aborts.ok()) return aborts.status();
  for (const absl::Status& status :
       {text->Bind(options.text_endpoint), tokens->Subscribe(kTokensTopic),
        tokens->Connect(options.tokens_endpoint), aborts->Connect(options.aborts_endpoint)}) {
    if (!status.ok()) return status;
  }
  return std::unique_ptr<TextWorker>(
      new TextWorker(options, *std::move(tokens), *std::move(text), *std::move(aborts)));
}

TextWorker::TextWorker(const Options& options, ZmqSocket tokens, ZmqSocket text, ZmqSocket aborts)
    : options_(options),
      tokens_(std::move(tokens)),
      text_(std::move(text)),
      aborts_(std::move(aborts)),
      streams_(options.vocabulary) {}

void TextWorker::Run() {
  while (!stop_.load(std::memory_order_relaxed) && !closed_) Step(kWait);
  while (!closed_ && Step(kWait)) {
  }
  const TextCounters& sums = counters();
  Log("detok").info("{} streams, {} tokens, {} late, {} broken, {} events of unknown streams",
                    sums.streams, sums.tokens, sums.late_tokens, sums.broken_streams,
                    sums.unknown_events);
}

bool TextWorker::Step(absl::Duration timeout) {
  SendHeartbeats();
  absl::StatusOr<bool> received = tokens_.Receive(&frames_, timeout);
  if (!received.ok()) {
    closed_ = true;
    if (!absl::IsCancelled(received.status())) {
      Log("detok").error("receiving token events: {}", std::string(received.status().message()));
    }
    return false;
  }
  if (!*received) return false;
  if (frames_.size() == 2) HandleBatch(frames_[1]);
  return true;
}

void TextWorker::HandleBatch(const std::string& payload) {
  absl::StatusOr<TokenBatch> batch = DecodeTokenBatch(payload);
  if (!batch.ok()) {
    Log("detok").error("unreadable token events: {}", std::string(batch.status().message()));
    return;
  }
  if (batch->epoch != epoch_) {
    if (epoch_ != 0) {
      Log("detok").warn("the daemon was restarted: {} streams end here", streams_.num_live());
      streams_.EndAll(&texts_);
    }
    epoch_ = batch->epoch;
  } else if (batch->seq != last_batch_seq_ + 1) {
    Log("detok").warn("token messages {} .. {} were lost", last_batch_seq_ + 1, batch->seq - 1);
  }
  last_batch_seq_ = batch->seq;
  for (const TokenEvent& event : batch->events) streams_.Apply(event, &texts_, &abort_requests_);
  // Aborts first: an engine that stops a round earlier saves more than a client that reads later.
  SendAborts(&abort_requests_);
  SendTexts(&texts_);
}

void TextWorker::SendTexts(std::vector<TextEvent>* texts) {
  for (TextEvent& event : *texts) {
    event.epoch = epoch_;
    event.seq = ++seq_;
    const std::string topic = TextTopic(event.request_id);
    buffer_.clear();
    AppendTextEvent(event, &buffer_);
    const std::array<std::string_view, 2> frames = {topic, buffer_};
    if (absl::StatusOr<bool> sent = text_.Send(frames); !sent.ok()) closed_ = true;
  }
  texts->clear();
}

void TextWorker::SendAborts(std::vector<AbortRequest>* aborts) {
  for (AbortRequest& request : *aborts) {
    request.epoch = epoch_;
    buffer_.clear();
    AppendAbortRequest(request, &buffer_);
    const std::array<std::string_view, 1> frames = {buffer_};
    absl::StatusOr<bool> sent = aborts_.Send(frames);
    if (!sent.ok() || !*sent) {
      Log("detok").error("an abort could not be sent: the engine will run to its length");
    }
  }
  aborts->clear();
}

void TextWorker::SendHeartbeats() {
  const int64_t now_ns = options_.clock->NowNs();
  if (now_ns < next_heartbeat_ns_) return;
  next_heartbeat_ns_ = now_ns + kHeartbeatNs;
  buffer_.clear();
  AppendHeartbeat({epoch_, seq_, streams_.num_live()}, &buffer_);
  const std::array<std::string_view, 2> frames = {kHeartbeatTopic, buffer_};
  if (absl::StatusOr<bool> sent = text_.Send(frames); !sent.ok()) closed_ = true;
  // On the way back an empty frame is enough: it says "I look for stop strings".
  const std::array<std::string_view, 1> alive = {std::string_view()};
  if (absl::StatusOr<bool> sent = aborts_.Send(alive); !sent.ok()) closed_ = true;
}

}  // namespace specd
