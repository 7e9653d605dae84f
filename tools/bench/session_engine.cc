#include "tools/bench/session_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <utility>

#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "kernels/backend.h"
#include "tools/bench/try.h"

namespace specd::bench {

SequenceParams Greedy() {
  SequenceParams params;
  params.max_tokens = std::numeric_limits<int32_t>::max();
  params.temperature = 0;
  return params;
}

SessionLimits LimitsOf(uint32_t num_sequences, uint32_t max_draft, uint32_t vocab_size) {
  return {.vocab_size = vocab_size,
          .max_batch = num_sequences,
          .max_sequences = num_sequences,
          .max_draft = max_draft,
          .ring_depth = 1,
          .max_scores = 1};
}

absl::StatusOr<std::unique_ptr<SessionEngine>> SessionEngine::Create(SessionOptions options) {
  std::unique_ptr<SessionEngine> engine(new SessionEngine);
  options.identity.daemon_epoch = 1;
  options.clock = Clock::Real();
  if (options.profile == nullptr) options.profile = &engine->profile_;
  if (options.names == nullptr) options.names = &engine->names_;
  SPECD_TAKE(auto backend, MakeBackend("cpu"));
  SPECD_TAKE(engine->session_, Session::Create(options, std::move(backend)));
  UniqueFd fd(fcntl(engine->session_->segment().fd(), F_DUPFD_CLOEXEC, 0));
  SPECD_TAKE(Segment segment, Segment::Attach(std::move(fd)));
  engine->segment_ = std::make_unique<Segment>(std::move(segment));
  engine->channel_ = std::make_unique<EngineChannel>(engine->segment_.get());
  return engine;
}

absl::Status SessionEngine::BindOneRow(TokenId best, bool has_drafts) {
  const SessionLimits& limits = session_->options().limits;
  best_ = best;
  drafts_.assign(has_drafts ? limits.max_draft : 0, best);
  rows_.assign(drafts_.size() + 1, 0);
  std::vector<float> row(limits.vocab_size);
  row[static_cast<size_t>(best)] = 100;
  const auto vocab_size = static_cast<int32_t>(row.size());
  return Bind(TensorRole::kTargetRows, {.data = row.data(),
                                        .num_rows = 1,
                                        .row_stride = vocab_size,
                                        .vocab_size = vocab_size,
                                        .rules = {}});
}

absl::Status SessionEngine::Bind(TensorRole role, const TensorView& rows) {
  const auto size_bytes = static_cast<size_t>(rows.num_rows * rows.row_stride) * sizeof(float);
  UniqueFd fd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  for (size_t written = 0; written < size_bytes;) {
    const ssize_t count =
        write(fd.get(), static_cast<const char*>(rows.data) + written, size_bytes - written);
    if (count <= 0) return Broken("its rows have no memory");
    written += static_cast<size_t>(count);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return Broken("its rows are not sealed");
  SPECD_TAKE(const uint32_t region, session_->RegisterRegion(std::move(fd), size_bytes));
  TensorSpec spec;
  spec.num_rows = static_cast<uint64_t>(rows.num_rows);
  return session_->Bind(role, region, spec);
}

absl::Status SessionEngine::Open(const std::string& name, const SequenceParams& params) {
  return Open(name, params,
              {.num_nodes = static_cast<int32_t>(drafts_.size()),
               .tokens = drafts_.data(),
               .target_rows = rows_.data()});
}

absl::Status SessionEngine::Open(const std::string& name, const SequenceParams& params,
                                 const Draft& draft) {
  SPECD_TAKE(const auto opened, session_->OpenSequences(name, params, {}));
  SequenceInput& input = inputs_.emplace_back();
  input.sequence = opened.front().handle;
  input.draft = draft;
  return absl::OkStatus();
}

absl::Status SessionEngine::CloseAll() {
  for (const SequenceInput& input : std::exchange(inputs_, {})) {
    SPECD_TRY(session_->CloseSequence(input.sequence));
  }
  return absl::OkStatus();
}

absl::Status SessionEngine::Submit() {
  const PushResult pushed =
      channel_->Submit(++round_id_, inputs_, static_cast<uint64_t>(Clock::Real()->NowNs()));
  return pushed == PushResult::kOk ? absl::OkStatus() : Broken("a round was not taken");
}

absl::StatusOr<bool> SessionEngine::Poll() {
  CompletionView done;
  if (!channel_->Poll(&done)) return false;
  done_ns_ = static_cast<int64_t>(done.done_ns);
  bool is_right = done.round_id == round_id_ && done.results.size() == inputs_.size();
  for (const SequenceResult& result : done.results) {
    is_right = is_right && result.status == RoundStatus::kOk;
    if (best_ == kNoToken || !is_right) continue;
    is_right = result.num_accepted == drafts_.size() && result.tokens[drafts_.size()] == best_;
  }
  if (is_right) return true;
  return Broken(fmt::format("round {} has a wrong answer", round_id_));
}

absl::StatusOr<int64_t> SessionEngine::RunRound() {
  // A round takes microseconds. A scene that waits longer is broken.
  constexpr absl::Duration kTimeout = absl::Seconds(60);
  SPECD_TRY(Submit());
  channel_->WaitCompletion({.spin_ns = 0, .timeout = kTimeout});
  SPECD_TAKE(const bool is_answered, Poll());
  if (is_answered) return done_ns_;
  return Broken("a round was not answered");
}

LoopScene::LoopScene(std::function<void()> on_events)
    : loop_(&sessions_, {.spin_ns = 0,
                         .on_device_failure = [](std::string_view) {},
                         .on_channel_fault = [](Session&, ChannelFault) {},
                         .on_events = std::move(on_events)}),
      verify_([this] { loop_.Run(); }) {}

LoopScene::~LoopScene() { Stop(); }

void LoopScene::Stop() {
  if (!verify_.joinable()) return;
  loop_.Stop();
  verify_.join();
}

absl::StatusOr<std::unique_ptr<SessionEngine>> LoopScene::Attach(SessionOptions options,
                                                                 TokenId best, bool has_drafts) {
  options.identity.session_id = ++num_attached_;
  options.names = &names_;
  if (options.profile == nullptr) options.profile = &profile_;
  SPECD_TAKE(std::unique_ptr<SessionEngine> engine, SessionEngine::Create(options));
  SPECD_TRY(engine->BindOneRow(best, has_drafts));
  // The verify thread serves sessions in the order in which they came.
  sessions_.Add(engine->session());
  loop_.Wake();
  return engine;
}

void LoopScene::Detach(const SessionEngine& engine) {
  engine.session()->EndAll();
  sessions_.Remove(engine.session().get());
  loop_.Wake();
}

}  // namespace specd::bench
