#include "tools/bench/stall_engine.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "tools/bench/one_row.h"

namespace specd::bench {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

absl::Status Broken(std::string_view what) {
  return absl::InternalError(fmt::format("stall: {}", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StallEngine>> StallEngine::Create(std::shared_ptr<Session> session,
                                                                 TokenId best) {
  std::unique_ptr<StallEngine> engine(new StallEngine(session->options().limits, best));
  engine->session_ = std::move(session);
  absl::StatusOr<Segment> segment =
      Segment::Attach(UniqueFd(fcntl(engine->session_->segment().fd(), F_DUPFD_CLOEXEC, 0)));
  if (!segment.ok()) return segment.status();
  engine->segment_ = std::make_unique<Segment>(*std::move(segment));
  engine->channel_ = std::make_unique<EngineChannel>(engine->segment_.get());
  if (absl::Status status = BindOneRow(engine->session_.get(), best); !status.ok()) return status;
  return engine;
}

absl::Status StallEngine::Open(const std::string& name, const SequenceParams& params,
                               const SequenceHistory& history) {
  const auto opened = session_->OpenSequences(name, params, history);
  if (!opened.ok()) return opened.status();
  SequenceInput input;
  input.sequence = opened->front().handle;
  input.draft = {.num_nodes = static_cast<int32_t>(drafts_.size()),
                 .tokens = drafts_.data(),
                 .target_rows = rows_.data()};
  inputs_.push_back(input);
  return absl::OkStatus();
}

absl::Status StallEngine::CloseAll() {
  for (const SequenceInput& input : std::exchange(inputs_, {})) {
    if (absl::Status status = session_->CloseSequence(input.sequence); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StallEngine::Submit() {
  const PushResult pushed =
      channel_->Submit(++round_id_, inputs_, static_cast<uint64_t>(Clock::Real()->NowNs()));
  return pushed == PushResult::kOk ? absl::OkStatus() : Broken("a round was not taken");
}

bool StallEngine::Poll() {
  CompletionView done;
  return channel_->Poll(&done);
}

absl::StatusOr<RoundStatus> StallEngine::RunRound(bool is_whole) {
  if (absl::Status status = Submit(); !status.ok()) return status;
  CompletionView done;
  if (!channel_->WaitCompletion({.spin_ns = 0, .timeout = kTimeout}) || !channel_->Poll(&done)) {
    return Broken("a round was not answered");
  }
  const bool is_right = done.results.size() == 1 &&
                        (!is_whole || (done.results[0].status == RoundStatus::kOk &&
                                       done.results[0].num_accepted == drafts_.size() &&
                                       done.results[0].tokens[drafts_.size()] == drafts_.front()));
  if (!is_right) return Broken(fmt::format("round {} has a wrong answer", round_id_));
  return done.results[0].status;
}

}  // namespace specd::bench
