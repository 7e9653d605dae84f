#include "tools/bench/opening_scene.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "ipc/base/mapping.h"
#include "kernels/backend.h"
#include "tools/bench/one_row.h"

namespace specd::bench {
namespace {

// A small engine: one sequence, and a row that a core reads in some microseconds.
constexpr SessionLimits kLimits{.vocab_size = 32000,
                                .max_batch = 1,
                                .max_sequences = 4,
                                .max_draft = 1,
                                .ring_depth = 1,
                                .max_scores = 1};
constexpr TokenId kBest = 7;  // the id with the highest logit
constexpr uint32_t kRow = 0;
// A round takes microseconds. A scene that waits longer is broken.
constexpr absl::Duration kTimeout = absl::Seconds(60);

int64_t NowNs() { return Clock::Real()->NowNs(); }
double ToMicroseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

absl::Status Broken(std::string_view what) {
  return absl::InternalError(fmt::format("opening: {}", what));
}

// The longest first step: the prompt is checked, counted, kept, and indexed by its n-grams.
SequenceParams LongParams() {
  SequenceParams params;
  params.max_tokens = 1024;
  params.repetition_penalty = 1.1;
  params.no_repeat_ngram_size = 3;
  return params;
}

// Ids that a linear congruential generator walks through, so that nearly all n-grams differ.
std::vector<TokenId> MakePrompt(size_t num_ids) {
  std::vector<TokenId> prompt;
  prompt.reserve(num_ids);
  uint32_t state = 1;
  for (size_t i = 0; i < num_ids; ++i) {
    state = state * 1664525 + 1013904223;
    prompt.push_back(static_cast<TokenId>((state >> 8) % kLimits.vocab_size));
  }
  return prompt;
}

}  // namespace

// ---- the scene

OpeningScene::OpeningScene()
    : loop_(&sessions_, {.spin_ns = 0,
                         .on_device_failure = [](std::string_view) {},
                         .on_channel_fault = [](Session&, ChannelFault) {}}) {}

absl::StatusOr<std::unique_ptr<OpeningScene>> OpeningScene::Create() {
  std::unique_ptr<OpeningScene> scene(new OpeningScene);
  // The verify thread serves sessions in the order in which they came.
  for (SceneEngine* const engine : {&scene->neighbour_, &scene->engine_}) {
    absl::StatusOr<SceneEngine> attached = scene->Attach(engine == &scene->engine_ ? 2 : 1);
    if (!attached.ok()) return attached.status();
    *engine = *std::move(attached);
    scene->sessions_.Add(engine->session);
  }
  scene->verify_ = std::thread([loop = &scene->loop_] { loop->Run(); });
  return scene;
}

OpeningScene::~OpeningScene() {
  if (!verify_.joinable()) return;
  loop_.Stop();
  verify_.join();
}

absl::StatusOr<SceneEngine> OpeningScene::Attach(uint64_t session_id) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend("cpu");
  if (!backend.ok()) return backend.status();
  SessionOptions options;
  options.identity = {.session_id = session_id, .daemon_epoch = 1};
  options.limits = kLimits;
  options.profile = &profile_;
  options.clock = Clock::Real();
  options.names = &names_;
  absl::StatusOr<std::shared_ptr<Session>> session = Session::Create(options, *std::move(backend));
  if (!session.ok()) return session.status();
  SceneEngine engine;
  engine.session = *std::move(session);
  absl::StatusOr<Segment> segment =
      Segment::Attach(UniqueFd(fcntl(engine.session->segment().fd(), F_DUPFD_CLOEXEC, 0)));
  if (!segment.ok()) return segment.status();
  engine.segment = std::make_unique<Segment>(*std::move(segment));
  engine.channel = std::make_unique<EngineChannel>(engine.segment.get());
  if (absl::Status status = BindOneRow(engine.session.get(), kBest); !status.ok()) return status;
  SequenceParams params;
  params.temperature = 0;
  params.max_tokens = std::numeric_limits<int32_t>::max();
  const auto opened =
      engine.session->OpenSequences(fmt::format("rounds of session {}", session_id), params);
  if (!opened.ok()) return opened.status();
  engine.sequence = opened->front().handle;
  return engine;
}

absl::Status OpeningScene::Submit(SceneEngine* engine, int64_t now_ns) {
  SequenceInput input;
  input.sequence = engine->sequence;
  input.draft = {.num_nodes = 0, .target_rows = &kRow};
  const PushResult pushed =
      engine->channel->Submit(round_id_, {&input, 1}, static_cast<uint64_t>(now_ns));
  return pushed == PushResult::kOk ? absl::OkStatus() : Broken("a round was not taken");
}

absl::Status OpeningScene::Wait(SceneEngine* engine) {
  CompletionView done;
  if (!engine->channel->WaitCompletion({.spin_ns = 0, .timeout = kTimeout}) ||
      !engine->channel->Poll(&done)) {
    return Broken("a round was not answered");
  }
  if (done.round_id != round_id_ || done.results.size() != 1 ||
      done.results[0].status != RoundStatus::kOk || done.results[0].num_kept != 1 ||
      done.results[0].tokens[0] != kBest) {
    return Broken(fmt::format("round {} has a wrong answer", round_id_));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> OpeningScene::RunRound() {
  ++round_id_;
  if (absl::Status status = Submit(&neighbour_, NowNs()); !status.ok()) return status;
  const int64_t start_ns = NowNs();
  if (absl::Status status = Submit(&engine_, start_ns); !status.ok()) return status;
  if (absl::Status status = Wait(&engine_); !status.ok()) return status;
  const double time_us = ToMicroseconds(NowNs() - start_ns);
  if (absl::Status status = Wait(&neighbour_); !status.ok()) return status;
  return time_us;
}

// ---- openings

Openings::Openings(Session* session, size_t num_prompt_ids)
    : session_(session), thread_([this, num_prompt_ids] { Run(num_prompt_ids); }) {}

Openings::~Openings() {
  if (thread_.joinable()) (void)Stop();
}

absl::StatusOr<std::vector<double>> Openings::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  thread_.join();
  if (!status_.ok()) return status_;
  return std::move(times_us_);
}

void Openings::Run(size_t num_prompt_ids) {
  const std::vector<TokenId> prompt = MakePrompt(num_prompt_ids);
  const SequenceParams params = LongParams();
  const std::string name = "opened and closed";
  while (status_.ok() && !stop_.load(std::memory_order_relaxed)) {
    num_begun_.fetch_add(1, std::memory_order_relaxed);
    const int64_t start_ns = NowNs();
    const auto opened = session_->OpenSequences(name, params, {.prompt = prompt, .outputs = {}});
    times_us_.push_back(ToMicroseconds(NowNs() - start_ns));
    status_ = opened.ok() ? session_->CloseSequence(opened->front().handle) : opened.status();
    num_done_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace specd::bench
