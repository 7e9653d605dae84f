#include "tests/simulator/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>

#include "kernels/core/check.h"
#include "tests/simulator/network.h"
#include "tests/simulator/sim_clock.h"

namespace specd::sim {
namespace {

// libspecd gives up after five (kUnansweredMax), and says so. That is no fault.
constexpr uint64_t kUnansweredMax = 4;
// Without faults everything is done long before.
constexpr int kRoundsToFinish = 3000;

absl::Status Broken(std::string text) { return absl::DataLossError(std::move(text)); }

}  // namespace

World::World(const Options& options)
    : options_(options),
      random_(options.seed),
      profile_(MakeProfile()),
      context_(*ZmqContext::Make()),
      ids_(SimReader::Kind::kIds, &context_),
      text_(SimReader::Kind::kText, &context_) {
  DrawRates();
  host_.daemon = [this] { return daemon_.get(); };
  SimClock::OfProcess().sleep = [this] { StepOthers(); };
  const size_t num_engines = 1 + random_.Below(3);
  for (size_t i = 0; i < num_engines; ++i) {
    std::vector<SequencePlan> plans(1 + random_.Below(6));
    for (size_t k = 0; k < plans.size(); ++k) {
      plans[k] = DrawPlan(fmt::format("{}{}", static_cast<char>('A' + i), k), &random_);
    }
    plans_.push_back(std::move(plans));
  }
}

World::~World() {
  Network::OfProcess().serve = [](const std::string&) {};
  Network::OfProcess().loses = [](const std::string&) { return false; };
  SimClock::OfProcess().sleep = [] {};
}

void World::DrawRates() {
  const auto draw = [this](uint64_t often) {
    return random_.OneIn(3) ? 0 : often + random_.Below(8 * often);
  };
  rates_ = {.kill = draw(20),
            .start = 1 + random_.Below(20),
            .lost = draw(4),
            .on_way = draw(10),
            .slow_reader = draw(2),
            .crash = random_.OneIn(4) ? uint64_t{200} : 0,
            .has_detok = random_.OneIn(2)};
}

void World::Log(const std::string& text) const {
  if (options_.logs) std::printf("  %s\n", text.c_str());
}

void World::RunAlone(std::vector<SequencePlan> plans) {
  SimEngine::Options alone;
  alone.plans = std::move(plans);
  alone.alone = true;
  SimDaemon daemon(
      {.epoch = next_epoch_++, .profile = &profile_, .context = &context_, .host = "/alone"});
  Host host;
  host.daemon = [&daemon] { return &daemon; };
  const std::unique_ptr<SimEngine> engine = SimEngine::Attach(&host, alone);
  for (int i = 0; i < 20000 && !engine->IsDone(); ++i) {
    const absl::Status status = engine->Step(&random_);
    SPECD_CHECK(status.ok());
    daemon.StepVerify();
    daemon.StepPublisher();
  }
  SPECD_CHECK(engine->IsDone());
  for (const SequencePlan& plan : alone.plans) {
    SequencePlan without_stop = plan;
    without_stop.stop.clear();
    uncut_[plan.name] = CutAtStop(without_stop, profile_, engine->outcomes().at(plan.name));
    expected_[plan.name] = CutAtStop(plan, profile_, engine->outcomes().at(plan.name));
    begins_[plan.name] = plan.outputs.size();
  }
}

void World::StartDaemon() {
  const uint64_t pieces[] = {0, 0, 1, 64};
  daemon_ = std::make_unique<SimDaemon>(
      SimDaemon::Options{.epoch = next_epoch_++,
                         .profile = &profile_,
                         .context = &context_,
                         .has_text_side = !rates_.has_detok,
                         .piece_work = static_cast<int64_t>(pieces[random_.Below(4)])});
  Log(fmt::format("daemon {} listens", daemon_->epoch()));
}

void World::MayStart() {
  if (daemon_ == nullptr && (!has_faults_ || random_.OneIn(rates_.start))) StartDaemon();
  if (!rates_.has_detok) return;
  if (detok_ == nullptr && (!has_faults_ || random_.OneIn(rates_.start))) {
    Log("a detokenizer begins");
    detok_ = MakeTextWorker(profile_, &context_);
  } else if (has_faults_ && rates_.kill > 0 && random_.OneIn(2 * rates_.kill)) {
    Log("the detokenizer is killed");
    detok_.reset();
  }
}

void World::AttachEngines() {
  for (const auto& plans : plans_) {
    engines_.push_back(SimEngine::Attach(
        &host_, {.plans = plans, .expected = &expected_, .on_fork = [this](const auto& plan) {
                   Log(fmt::format("\"{}\" begins as a copy", plan.name));
                   RunAlone({plan});
                 }}));
    SPECD_CHECK(engines_.back() != nullptr);
  }
  at_work_.resize(engines_.size());
  unanswered_.resize(engines_.size());
  num_taken_.resize(engines_.size());
}

absl::Status World::Run() {
  for (const auto& plans : plans_) RunAlone(plans);
  StartDaemon();
  AttachEngines();
  Network& network = Network::OfProcess();
  network.serve = [this](const std::string& endpoint) { Serve(endpoint); };
  network.loses = [this](const std::string&) {
    return has_faults_ && rates_.lost > 0 && random_.OneIn(rates_.lost);
  };
  network.queue_messages_max = random_.OneIn(2) ? 1000 : 1 + random_.Below(20);
  host_.on_way = [this] { MayEndDaemon(rates_.on_way); };
  for (uint64_t number = 0; number < options_.num_steps; ++number) {
    absl::Status status = Step(number);
    if (!status.ok())
      return Broken(fmt::format("step {}: {}", number, std::string(status.message())));
  }
  return Finish();
}

absl::Status World::Step(uint64_t number) {
  random_ = Random(options_.seed * 1'000'003 + number);
  MayEndDaemon(rates_.kill);
  MayStart();
  MayCrash();
  switch (random_.Below(16)) {
    case 0:
      SimClock::OfProcess().AdvanceNs(static_cast<int64_t>(random_.Below(150'000'000)));
      return absl::OkStatus();
    case 1:
      return StepReader(&ids_);
    case 2:
      return StepReader(&text_);
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
      return StepEngine();
    default:
      StepOthers();
      return absl::OkStatus();
  }
}

absl::Status World::StepReader(SimReader* reader) {
  if (has_faults_ && rates_.slow_reader > 0 && !random_.OneIn(rates_.slow_reader)) {
    return absl::OkStatus();
  }
  return reader->Step().status();
}

absl::Status World::StepEngine() {
  const size_t index = random_.Below(engines_.size());
  if (at_work_[index] || engines_[index] == nullptr) return absl::OkStatus();
  at_work_[index] = true;
  absl::Status status = engines_[index]->Step(&random_);
  at_work_[index] = false;
  return status;
}

void World::StepTextSide() {
  if (detok_ != nullptr) detok_->Step(absl::ZeroDuration());
  if (daemon_ != nullptr) daemon_->StepText();
}

void World::StepOthers() {
  MayEndDaemon(rates_.kill);
  MayStart();
  switch (random_.Below(8)) {
    case 0:
      if (daemon_ != nullptr) daemon_->StepControl();
      break;
    case 1:
    case 2:
    case 3:
      if (daemon_ != nullptr) daemon_->StepVerify();
      break;
    case 4:
    case 5:
      if (daemon_ != nullptr) daemon_->StepPublisher();
      break;
    default:
      StepTextSide();
      break;
  }
}

void World::Serve(const std::string& endpoint) {
  if (has_faults_ && rates_.lost > 0 && random_.OneIn(2 * rates_.lost))
    return;  // it comes too late
  if (endpoint == "inproc://ask") {
    if (daemon_ != nullptr) daemon_->StepPublisher();
  } else {
    StepTextSide();
  }
}

void World::MayCrash() {
  if (rates_.crash == 0 || !random_.OneIn(rates_.crash)) return;
  const size_t index = random_.Below(engines_.size());
  if (engines_[index] == nullptr) return;
  Log(fmt::format("engine {} crashes", static_cast<char>('A' + index)));
  engines_[index].reset();
}

bool World::IsLoose(const std::string& name) const {
  const auto& engine = engines_[static_cast<size_t>(name[0] - 'A')];
  return engine == nullptr || engine->aborted().contains(name);
}

bool World::CanEndDaemon() {
  bool can = true;
  for (size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i] == nullptr) continue;
    if (num_taken_[i] != engines_[i]->num_taken()) unanswered_[i] = 0;
    num_taken_[i] = engines_[i]->num_taken();
    can = can && (unanswered_[i] < kUnansweredMax || engines_[i]->IsDone());
  }
  return can;
}

void World::NoteLost() {
  const auto note = [](const SimReader& reader, const std::string& name, auto* lost) {
    const auto found = reader.streams().find(name);
    if (found == reader.streams().end() || !found->second.has_ended) lost->insert(name);
  };
  for (const auto& engine : engines_) {
    if (engine == nullptr) continue;
    for (const std::string& name : engine->closed()) {
      note(ids_, name, &lost_ids_);
      note(text_, name, &lost_text_);
    }
  }
}

void World::MayEndDaemon(uint64_t one_in) {
  if (!has_faults_ || one_in == 0 || daemon_ == nullptr || !random_.OneIn(one_in)) return;
  if (!CanEndDaemon()) return;
  for (uint64_t& count : unanswered_) ++count;
  NoteLost();
  if (random_.OneIn(3)) {
    Log(fmt::format("daemon {} stops", daemon_->epoch()));
    daemon_->Stop();
  } else {
    Log(fmt::format("daemon {} is killed", daemon_->epoch()));
    daemon_->Kill();
  }
  dead_.push_back(std::move(daemon_));
}

bool World::IsDone() const {
  for (const auto& engine : engines_) {
    if (engine != nullptr && !engine->IsDone()) return false;
  }
  const auto has = [](const SimReader& reader, const std::string& name) {
    const auto found = reader.streams().find(name);
    return found != reader.streams().end() && found->second.has_ended;
  };
  for (const auto& [name, expected] : expected_) {
    if (IsLoose(name)) continue;
    if (!lost_ids_.contains(name) && !has(ids_, name)) return false;
    if (!lost_text_.contains(name) && !has(text_, name)) return false;
  }
  return true;
}

absl::Status World::Finish() {
  Log("no more faults");
  has_faults_ = false;
  Network::OfProcess().queue_messages_max = 100'000;
  for (int round = 0; round < kRoundsToFinish && !IsDone(); ++round) {
    random_ = Random(options_.seed * 1'000'003 + options_.num_steps + static_cast<uint64_t>(round));
    SimClock::OfProcess().AdvanceNs(20'000'000);
    for (int i = 0; i < 8; ++i) StepOthers();
    for (size_t i = 0; i < 2 * engines_.size(); ++i) {
      if (absl::Status status = StepEngine(); !status.ok()) return status;
    }
    for (SimReader* const reader : {&ids_, &text_}) {
      if (absl::Status status = StepReader(reader); !status.ok()) return status;
    }
  }
  if (!IsDone()) return Broken("it does not come to an end: " + Describe());
  if (absl::Status status = CheckReaders(); !status.ok()) return status;
  return CheckLeftovers();
}

absl::Status World::CheckIds(const std::string& name, const ReadStream& read) const {
  const auto is_end = [&](const Expected& end) {
    const std::span<const int32_t> ids = std::span(end.ids).subspan(begins_.at(name));
    if (IsLoose(name) || lost_ids_.contains(name)) {
      return read.ids.size() <= ids.size() &&
             std::equal(read.ids.begin(), read.ids.end(), ids.begin());
    }
    return std::equal(read.ids.begin(), read.ids.end(), ids.begin(), ids.end()) &&
           read.finish_reason == end.finish_reason;
  };
  const Expected& expected = expected_.at(name);
  if (is_end(expected) || is_end(uncut_.at(name))) return absl::OkStatus();
  return Broken(fmt::format("a reader of \"{}\" has [{}] and end {}, and not [{}] and {}", name,
                            fmt::join(read.ids, " "), read.finish_reason,
                            fmt::join(expected.ids, " "), expected.finish_reason));
}

absl::Status World::CheckText(const std::string& name, const ReadStream& read) const {
  const Expected& expected = expected_.at(name);
  const bool is_part = IsLoose(name) || lost_text_.contains(name);
  if (is_part ? uncut_.at(name).text.starts_with(read.text)
              : read.text == expected.text && read.finish_reason == expected.finish_reason &&
                    !read.has_another_end) {
    return absl::OkStatus();
  }
  return Broken(fmt::format("a reader of \"{}\" has \"{}\" and end {}, and not \"{}\" and {}", name,
                            read.text, read.finish_reason, expected.text, expected.finish_reason));
}

absl::Status World::CheckReaders() const {
  for (const auto& [name, read] : ids_.streams()) {
    if (absl::Status status = CheckIds(name, read); !status.ok()) return status;
  }
  for (const auto& [name, read] : text_.streams()) {
    if (absl::Status status = CheckText(name, read); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status World::CheckLeftovers() {
  if (daemon_ == nullptr) StartDaemon();
  // An engine without sequences has what one has that has just come.
  engines_.push_back(SimEngine::Attach(&host_, SimEngine::Options()));
  daemon_->StepControl();
  daemon_->StepPublisher();
  const std::vector<uint64_t> bytes = daemon_->SessionBytes();
  for (const uint64_t taken : bytes) {
    if (taken == bytes.back()) continue;
    return Broken(
        fmt::format("an engine has closed all its sequences, and {} bytes are taken for "
                    "it instead of {}",
                    taken, bytes.back()));
  }
  engines_.clear();
  daemon_->StepControl();
  for (int i = 0; i < 8; ++i) {
    daemon_->StepVerify();
    daemon_->StepPublisher();
    StepTextSide();
  }
  daemon_->StepVerify();  // it renews its list of sessions
  const std::string left = daemon_->Leftovers();
  return left.empty() ? absl::OkStatus() : Broken("after all engines have gone " + left);
}

std::string World::Describe() const {
  std::string text;
  for (const auto& engine : engines_) {
    if (engine != nullptr) text += engine->Describe() + "; ";
  }
  for (const auto& [name, expected] : expected_) {
    if (IsLoose(name)) continue;
    for (const SimReader* const reader : {&ids_, &text_}) {
      const auto found = reader->streams().find(name);
      if (found != reader->streams().end() && found->second.has_ended) continue;
      text += fmt::format("no end of \"{}\" for the reader of {}; ", name,
                          reader == &ids_ ? "ids" : "text");
    }
  }
  return text;
}

}  // namespace specd::sim
