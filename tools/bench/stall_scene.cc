#include "tools/bench/stall_scene.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "kernels/backend.h"

namespace specd::bench {
namespace {

// A small engine: a sequence with four drafts over 32,000 tokens.
constexpr SessionLimits kSmall{.vocab_size = 32000,
                               .max_batch = 1,
                               .max_sequences = 1,
                               .max_draft = 4,
                               .ring_depth = 1,
                               .max_scores = 1};
constexpr SessionLimits kMonster{.vocab_size = kVocabSizeMax,
                                 .max_batch = 640,
                                 .max_sequences = 640,
                                 .max_draft = 64,
                                 .ring_depth = 1,
                                 .max_scores = 1};
constexpr TokenId kBest = 7;  // the id with the highest logit, and every draft token
constexpr absl::Duration kTimeout = absl::Seconds(60);

int64_t NowNs() { return Clock::Real()->NowNs(); }

absl::Status Broken(std::string_view what) {
  return absl::InternalError(fmt::format("stall: {}", what));
}

// Shares one row of logits with the session.
absl::Status BindRow(Session* session) {
  const uint64_t size_bytes = session->options().limits.vocab_size * sizeof(float);
  UniqueFd fd(memfd_create("row", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::vector<float> row(session->options().limits.vocab_size);
  row[kBest] = 100;  // so far above the others that every coin draws it
  if (write(fd.get(), row.data(), size_bytes) != static_cast<ssize_t>(size_bytes) ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return Broken("the row has no memory");
  }
  const absl::StatusOr<uint32_t> region = session->RegisterRegion(std::move(fd), size_bytes);
  if (!region.ok()) return region.status();
  TensorSpec spec;
  spec.num_rows = 1;
  return session->Bind(TensorRole::kTargetRows, *region, spec);
}

}  // namespace

// An engine's end of its session. All rows of its rounds are the same, and every draft stands.
class StallScene::Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<Session> session) {
    const SessionLimits& limits = session->options().limits;
    std::unique_ptr<Engine> engine(new Engine(limits));
    engine->session_ = std::move(session);
    absl::StatusOr<Segment> segment =
        Segment::Attach(UniqueFd(fcntl(engine->session_->segment().fd(), F_DUPFD_CLOEXEC, 0)));
    if (!segment.ok()) return segment.status();
    engine->segment_ = std::make_unique<Segment>(*std::move(segment));
    engine->channel_ = std::make_unique<EngineChannel>(engine->segment_.get());
    if (absl::Status status = BindRow(engine->session_.get()); !status.ok()) return status;
    SequenceParams params;
    params.max_tokens = std::numeric_limits<int32_t>::max();
    if (limits.vocab_size == kMonster.vocab_size) {
      params.top_p = 0.95;
    } else {
      params.temperature = 0;
    }
    for (uint32_t i = 0; i < limits.max_batch; ++i) {
      const auto opened = engine->session_->OpenSequences(
          fmt::format("{}.{}", engine->session_->options().identity.session_id, i), params);
      if (!opened.ok()) return opened.status();
      SequenceInput input;
      input.sequence = opened->front().handle;
      input.draft = {.num_nodes = static_cast<int32_t>(limits.max_draft),
                     .tokens = engine->drafts_.data(),
                     .target_rows = engine->rows_.data()};
      engine->inputs_.push_back(input);
    }
    return engine;
  }

  const std::shared_ptr<Session>& session() const { return session_; }

  absl::Status Submit() {
    const PushResult pushed =
        channel_->Submit(++round_id_, inputs_, static_cast<uint64_t>(NowNs()));
    return pushed == PushResult::kOk ? absl::OkStatus() : Broken("a round was not taken");
  }
  bool Poll() {
    CompletionView done;
    return channel_->Poll(&done);
  }

  // Runs rounds until this time.
  absl::Status Run(int64_t end_ns, std::vector<double>* times_us) {
    do {  // one round at least, however late the thread begins
      const int64_t start_ns = NowNs();
      if (absl::Status status = Submit(); !status.ok()) return status;
      CompletionView done;
      if (!channel_->WaitCompletion({.spin_ns = 0, .timeout = kTimeout}) ||
          !channel_->Poll(&done)) {
        return Broken("a round was not answered");
      }
      times_us->push_back(static_cast<double>(NowNs() - start_ns) / 1e3);
      const bool is_right = done.results.size() == 1 &&
                            done.results[0].status == RoundStatus::kOk &&
                            done.results[0].num_accepted == drafts_.size() &&
                            done.results[0].tokens[drafts_.size()] == kBest;
      if (!is_right) return Broken(fmt::format("round {} has a wrong answer", round_id_));
    } while (NowNs() < end_ns);
    return absl::OkStatus();
  }

 private:
  explicit Engine(const SessionLimits& limits)
      : drafts_(limits.max_draft, kBest), rows_(limits.max_draft + 1, 0) {}

  const std::vector<TokenId> drafts_;
  const std::vector<uint32_t> rows_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<EngineChannel> channel_;
  std::vector<SequenceInput> inputs_;
  uint64_t round_id_ = 0;
};

StallScene::StallScene(const Options& options)
    : options_(options),
      loop_(&sessions_, {.spin_ns = 0,
                         .on_device_failure = [](std::string_view) {},
                         .on_channel_fault = [](Session&, ChannelFault) {}}) {}

absl::StatusOr<std::unique_ptr<StallScene>> StallScene::Create(const Options& options) {
  std::unique_ptr<StallScene> scene(new StallScene(options));
  for (int i = 0; i < kSmallEngines; ++i) {
    absl::StatusOr<std::unique_ptr<Engine>> engine = scene->Attach(kSmall);
    if (!engine.ok()) return engine.status();
    scene->small_.push_back(*std::move(engine));
  }
  scene->verify_ = std::thread([loop = &scene->loop_] { loop->Run(); });
  return scene;
}

StallScene::~StallScene() {
  if (!verify_.joinable()) return;
  loop_.Stop();
  verify_.join();
}

absl::StatusOr<std::unique_ptr<StallScene::Engine>> StallScene::Attach(
    const SessionLimits& limits) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend("cpu");
  if (!backend.ok()) return backend.status();
  SessionOptions options;
  options.identity = {.session_id = ++num_attached_, .daemon_epoch = 1};
  options.limits = limits;
  options.profile = &profile_;
  options.clock = Clock::Real();
  options.names = &names_;
  options.threads = options_.threads;
  options.piece_work = options_.piece_work;
  absl::StatusOr<std::shared_ptr<Session>> session = Session::Create(options, *std::move(backend));
  if (!session.ok()) return session.status();
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(*std::move(session));
  if (engine.ok()) {
    sessions_.Add((*engine)->session());
    loop_.Wake();
  }
  return engine;
}

absl::StatusOr<std::vector<double>> StallScene::RunSmall(double seconds) {
  const int64_t end_ns = NowNs() + static_cast<int64_t>(seconds * 1e9);
  std::vector<std::vector<double>> times_us(small_.size());
  std::vector<absl::Status> statuses(small_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < small_.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = small_[i]->Run(end_ns, &times_us[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all_us;
  for (size_t i = 0; i < small_.size(); ++i) {
    if (!statuses[i].ok()) return statuses[i];
    all_us.insert(all_us.end(), times_us[i].begin(), times_us[i].end());
  }
  return all_us;
}

absl::Status StallScene::BeginMonster() {
  absl::StatusOr<std::unique_ptr<Engine>> monster = Attach(kMonster);
  if (!monster.ok()) return monster.status();
  monster_ = *std::move(monster);
  return monster_->Submit();
}

absl::Status StallScene::EndMonster() {
  const bool answered = monster_->Poll();
  monster_->session()->EndAll();
  sessions_.Remove(monster_->session().get());
  loop_.Wake();
  monster_.reset();
  return answered ? Broken("the monster's round ended before the small ones") : absl::OkStatus();
}

}  // namespace specd::bench
