// The suite `egress`: text from a round's tokens to a reader over a Unix socket, as readers outside
// are. The reader must have every byte.
//
// In `lossless` the suite is the daemon: TextScene publishes token batches, and the daemon's own
// text side (TextWorker) makes their text. In `latency` an engine is attached to a daemon.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/base/heap.h"
#include "daemon/base/logging.h"
#include "daemon/reader/text_subscription.h"
#include "daemon/text/text_worker.h"
#include "tools/bench/c_engine.h"
#include "tools/bench/child_process.h"
#include "tools/bench/suite.h"
#include "tools/bench/synthetic_vocabulary.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr CaseWords kCases[] = {
    {"lossless", "events a second to a reader that has every byte"},
    {"latency", "from a confirmed token to its reader, at a steady rate"}};
constexpr uint64_t kStreams = 256;
constexpr uint64_t kRounds = 400;
constexpr uint64_t kTokensOfRound = 4;
constexpr double kEventsPerSecond = 1e6;  // the design's
constexpr uint32_t kLiveStreams = 64;
constexpr uint32_t kLiveVocabSize = 1024;
constexpr auto kPause = std::chrono::milliseconds(2);
constexpr double kTargetUs = 200;  // the design's, at p99
constexpr auto kWaitMax = std::chrono::seconds(30);

// ---- the daemon of `lossless`

constexpr uint64_t kEpoch = 7;
constexpr uint64_t kTokenBytes = 3;
constexpr const char* kTokens = "inproc://tokens";
constexpr const char* kAsk = "inproc://ask";

Vocabulary MakeLetters() {
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < 26; ++id) {
    builder.Set(id, fmt::format(" {}x", static_cast<char>('a' + id)), {});
  }
  return std::move(builder).Build();
}

StreamOpening OpeningOf(uint64_t stream) {
  // None of the stop strings completes.
  return {.request_id = fmt::format("r{}", stream),
          .stop_strings = {"\n\nHuman:", " q ", "ax bx cx dx", "</answer>"}};
}

RoundTokens TokensOf(uint64_t stream, uint64_t offset) {
  RoundTokens tokens = {.accepted = static_cast<uint32_t>(kTokensOfRound) - 1};
  for (uint64_t i = 0; i < kTokensOfRound; ++i) {
    tokens.ids.push_back(static_cast<TokenId>((stream + 5 * (offset + i)) % 26));
  }
  return tokens;
}

// A text side whose daemon is this object. Nothing is lost between threads of one process, so the
// answer to a text side that begins is that there are no streams yet. Aborts have no reader.
class TextScene {
 public:
  ~TextScene() {
    if (!thread_.joinable()) return;
    worker_->Stop();
    thread_.join();
  }
  std::string path() const { return folder_->path() + "/s"; }

  absl::Status Start() {
    SPECD_TRY(SetUpLogging({.levels = "off"}));
    SPECD_TAKE(folder_, TemporaryFolder::Make());
    SPECD_TRY(asks_.Bind(kAsk));
    SPECD_TRY(tokens_.Bind(kTokens));
    TextWorker::Options options;
    options.vocabularies = {{"", &vocabulary_}};
    options.clock = Clock::Real();
    options.context = &context_;
    options.tokens_endpoint = kTokens;
    options.aborts_endpoint = "inproc://aborts";
    options.ask_endpoint = kAsk;
    options.text_endpoint = fmt::format("ipc://{}.text", path());
    options.text_ask_endpoint = fmt::format("ipc://{}.text_ask", path());
    options.keep = {.bytes_max = size_t{1} << 30};
    SPECD_TAKE(worker_, TextWorker::Create(options));
    thread_ = std::thread([this] { worker_->Run(); });
    return absl::OkStatus();
  }

  // Streams with rounds, from their openings to their ends.
  void WriteAll() {
    SendAll(0, &OpeningOf);
    uint64_t offset = 0;
    for (uint64_t round = 0; round < kRounds; ++round, offset += kTokensOfRound) {
      SendAll(offset, [offset](uint64_t stream) { return TokensOf(stream, offset); });
      SendHeartbeat();
    }
    SendAll(offset, [](uint64_t) { return StreamEnd{.finish_reason = SPECD_FINISH_LENGTH}; });
  }
  void SendHeartbeat() {
    std::string payload;
    AppendHeartbeat({.epoch = kEpoch, .seq = seq_, .streams = 1}, &payload);
    Publish(kHeartbeatTopic, payload);
    asks_.Step([](std::string_view, uint32_t) {
      std::string nothing;
      AppendAnswer(TokenAnswer{.epoch = kEpoch, .profiles = {""}, .tokenizers = {0}}, &nothing);
      return nothing;
    });
  }

 private:
  // An event of each stream.
  template <class What>
  void SendAll(uint64_t offset, const What& what_of) {
    TokenBatch batch = {.epoch = kEpoch, .seq = ++seq_, .events = {}};
    for (uint64_t stream = 1; stream <= kStreams; ++stream) {
      TokenEvent& event = batch.events.emplace_back();
      event.stream = stream;
      event.offset = offset;
      event.what = what_of(stream);
    }
    std::string payload;
    AppendTokenBatch(batch, &payload);
    Publish(kTokensTopic, payload);
  }
  void Publish(std::string_view topic, std::string_view payload) {
    const std::string_view frames[] = {topic, payload};
    tokens_.Send(frames).IgnoreError();
  }

  ZmqContext context_ = *ZmqContext::Make();
  ReplySocket asks_ = *ReplySocket::Make(&context_, {});
  ZmqSocket tokens_ = *ZmqSocket::Make(&context_, ZmqKind::kPublish, {.send_queue_messages = 0});
  uint64_t seq_ = 0;
  const Vocabulary vocabulary_ = MakeLetters();
  std::unique_ptr<TemporaryFolder> folder_;
  std::unique_ptr<TextWorker> worker_;
  std::thread thread_;
};

// ---- the reader

// Reads all texts of a daemon whose socket has this path. `beat` sends the daemon's heartbeat, if
// none comes by itself.
absl::StatusOr<TextSubscription> Subscribe(const std::string& path, absl::FunctionRef<void()> beat,
                                           ZmqContext* context) {
  SPECD_TAKE(
      TextSubscription texts,
      TextSubscription::Create(context, {.text = fmt::format("ipc://{}.text", path),
                                         .text_ask = fmt::format("ipc://{}.text_ask", path)}));
  std::vector<ReadEvent> none;
  const SteadyClock::time_point start = SteadyClock::now();
  while (!texts.is_current()) {
    if (SteadyClock::now() - start > kWaitMax) return Broken("the text side was not heard");
    beat();
    SPECD_TRY(texts.Step(&none));
  }
  return texts;
}

// Until so many streams have ended, whose texts must have so many bytes together. Calls `seen` for
// each event, and returns their number.
absl::StatusOr<uint64_t> ReadAll(uint64_t num_streams, uint64_t expected_bytes,
                                 absl::FunctionRef<void(const TextEvent&)> seen,
                                 TextSubscription* texts) {
  std::vector<ReadEvent> events;
  SteadyClock::time_point last = SteadyClock::now();
  uint64_t num_events = 0;
  uint64_t bytes = 0;
  for (uint64_t num_ended = 0; num_ended < num_streams;) {
    events.clear();
    SPECD_TRY(texts->Step(&events));
    const SteadyClock::time_point now = SteadyClock::now();
    if (now - last > kWaitMax) return Broken("the texts have no end");
    if (!events.empty()) last = now;
    for (const auto& [event, lost] : events) {
      if (!lost.empty()) return Broken(lost);
      bytes += event.text.size();
      num_ended += event.kind == TextEventKind::kEnd ? 1 : 0;
      seen(event);
    }
    num_events += events.size();
  }
  if (bytes == expected_bytes) return num_events;
  return Broken(fmt::format("{} bytes of {} came", bytes, expected_bytes));
}

// ---- the cases

absl::Status MeasureRate(Output* out) {
  TextScene scene;
  SPECD_TRY(scene.Start());
  ZmqContext context = *ZmqContext::Make();
  SPECD_TAKE(auto texts, Subscribe(
                             scene.path(), [&] { scene.SendHeartbeat(); }, &context));
  const LoadMeter meter;
  const SteadyClock::time_point start = SteadyClock::now();
  std::thread writer([&] { scene.WriteAll(); });
  const absl::StatusOr<uint64_t> num_events = ReadAll(
      kStreams, kStreams * kRounds * kTokensOfRound * kTokenBytes, [](const TextEvent&) {}, &texts);
  const double seconds = MicrosSince(start) / 1e6;
  writer.join();
  SPECD_TRY(num_events.status());
  const double rate = static_cast<double>(*num_events) / seconds;
  Line line;
  line.Name("case", "lossless", 10)
      .Count("streams", static_cast<int64_t>(kStreams), 8)
      .Count("events", static_cast<int64_t>(*num_events), 8)
      .Number("events per s", 12, 0, rate)
      .Target({.measured = rate, .bound = kEventsPerSecond, .is_least = true})
      .Load(meter.Read());
  out->Print(line);
  return absl::OkStatus();
}

// Runs rounds of one token for each stream.
absl::Status RunRounds(uint64_t num_rounds, CEngine* engine, std::vector<int64_t>* confirmed_ns) {
  for (uint64_t round = 0; round < num_rounds; ++round) {
    std::this_thread::sleep_for(kPause);
    SPECD_TRY(engine->RunRound(0).status());
    confirmed_ns->push_back(engine->confirmed_ns());
  }
  return engine->CloseAll();
}

absl::Status MeasureLatency(double seconds, Output* out) {
  const SyntheticVocabulary vocabulary(kLiveVocabSize);
  const TokenId token = vocabulary.Tokenize("a").front();
  SPECD_TAKE(const auto folder, TemporaryFolder::Make());
  SPECD_TAKE(const std::string tokenizer,
             folder->Write("tokenizer.json", TokenizerJson(vocabulary.vocabulary())));
  DaemonProcess daemon({"--detokenizer=thread", "--tokenizer=" + tokenizer});
  SPECD_TRY(daemon.Start().status());
  const auto num_rounds = static_cast<uint64_t>(
      std::max(10.0, seconds / std::chrono::duration<double>(kPause).count()));
  // Small rounds: the way to the reader is measured.
  CEngine engine;
  SPECD_TRY(engine.Start(daemon.uri(), CEngine::Options(kLiveVocabSize, kLiveStreams, 0),
                         {.num_rows = 1, .first_best = static_cast<uint32_t>(token)}));
  ZmqContext context = *ZmqContext::Make();
  SPECD_TAKE(auto texts, Subscribe(
                             daemon.path(), [] {}, &context));
  specd_params params = CEngine::Params(0);
  params.max_tokens = static_cast<uint32_t>(num_rounds);
  SPECD_TRY(engine.Open("r", kLiveStreams, params));
  std::vector<int64_t> confirmed_ns;
  absl::Status ran;
  const LoadMeter meter;
  std::thread worker([&] { ran = RunRounds(num_rounds, &engine, &confirmed_ns); });
  // When the token of each round of each stream was delivered. An event may bring several.
  std::vector<std::pair<uint64_t, int64_t>> deliveries;
  const uint64_t num_bytes =
      kLiveStreams * num_rounds * vocabulary.vocabulary().Bytes(token).size();
  const auto seen = [&](const TextEvent& event) {
    const int64_t at_ns = SteadyClock::now().time_since_epoch().count();
    for (uint64_t round = event.token_offset; round < event.tokens; ++round) {
      deliveries.emplace_back(round, at_ns);
    }
  };
  const absl::Status status = ReadAll(kLiveStreams, num_bytes, seen, &texts).status();
  worker.join();
  SPECD_TRY(ran);
  SPECD_TRY(status);
  if (deliveries.size() != kLiveStreams * num_rounds) return Broken("tokens are missing");
  Times times_us;
  for (const auto& [round, at_ns] : deliveries) {
    times_us.push_back(static_cast<double>(at_ns - confirmed_ns[round]) / 1e3);
  }
  const Summary summary = Summarise(std::move(times_us));
  out->NextTable();
  Line line;
  line.Name("case", "latency", 10)
      .Count("streams", kLiveStreams, 8)
      .Spread(summary, "us", 0)
      .Target({.measured = summary.p99, .bound = kTargetUs, .unit = "us"})
      .Load(meter.Read());
  out->Print(line);
  return absl::OkStatus();
}

absl::Status RunEgress(const Flags& flags, Output* out) {
  KeepFreedMemory();  // as daemon/detok_main.cc does
  for (const CaseWords* const each : Chosen(flags, kCases)) {
    out->Show(each->name);
    SPECD_TRY(each->name == "lossless" ? MeasureRate(out)
                                       : MeasureLatency(flags.Real("seconds"), out));
  }
  return absl::OkStatus();
}

}  // namespace

Suite EgressCommand() {
  return {.name = "egress",
          .summary = "text events to readers, and their latency",
          .cases = WordsOf(kCases),
          .flags = {Flag::Seconds("5", "1")},
          .run = &RunEgress};
}

}  // namespace specd::bench
